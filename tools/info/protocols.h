/*
 * weft-info --protocols: which way messages go, from which size to which, and what that is
 * estimated from.
 */
#ifndef WEFT_TOOLS_INFO_PROTOCOLS_H
#define WEFT_TOOLS_INFO_PROTOCOLS_H

#include <weft/weft.h>

/*
 * For the transports that are named, and the peers that listen at the URIs among the names; for all
 * transports when there are no names. False: one is not there.
 */
int info_protocols(weft_worker_t *worker, char *const *names, int n_names);
/* Of the transports; of all of them when none is named. */
int info_protocols_json(weft_worker_t *worker, char *const *names, int n_names);
/* Of the URIs; null: no worker answered. */
int info_pairs_json(weft_worker_t *worker, char *const *names, int n_names);

#endif
