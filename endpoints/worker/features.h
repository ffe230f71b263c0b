/* The tables that core calls the other rooms by, and what the worker's interfaces report to. */
#ifndef WEFT_ENDPOINTS_WORKER_FEATURES_H
#define WEFT_ENDPOINTS_WORKER_FEATURES_H

#include <endpoints/core/features.h>
#include <transports/transport.h>

/* features.c */
extern const struct features weft__features;
/* dispatch.c */
extern const struct iface_up weft__worker_up;
/* ep_ops.c */
extern const struct ep_ops weft__ep_ops_wait, weft__ep_ops_ready, weft__ep_ops_refuse;
extern const struct ep_ops weft__ep_ops_leased_wait, weft__ep_ops_leased_ready;

/* lane_dispatch.c */
void weft__on_lane(struct lane *lane, unsigned id, const void *data, size_t len);

#endif
