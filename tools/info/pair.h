/* weft-info --protocols URI: this process and the one that listens there. */
#ifndef WEFT_TOOLS_INFO_PAIR_H
#define WEFT_TOOLS_INFO_PAIR_H

#include <weft/weft.h>

struct info_pair {
    const char *uri;
    weft_ep_info_t ep;
    size_t transport; /* of its lane: weft_worker_transport, weft_worker_protocol */
};

/*
 * Connects, reports, and closes again. Returns false if no worker answered there, with the reason
 * on stderr.
 */
int info_pair(weft_worker_t *worker, const char *uri,
              void (*notify)(weft_worker_t *, const struct info_pair *));

#endif
