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
void info_protocols_json(weft_worker_t *worker); /* of all transports */
int info_pairs_json(weft_worker_t *worker, char *const *names,
                    int n_names); /* of the URIs; NULL: no worker answered */

#endif
