/* Makes pairs of lanes within one iface, and notifies their owner of them. */
#include "pair.h"

static struct pair_lane *lane_new(struct iface *iface, size_t size, const struct lane_ops *ops,
                                  void (*open)(struct job *job)) {
    struct pair_lane *pair = weft__alloc(iface, size, "struct pair_lane");
    if (!pair) return NULL;
    pair->lane = (struct lane){.ops = ops, .iface = iface};
    pair->job.run = open;
    inbox_init(&pair->inbox);
    pending_queue_init(&pair->pending);
    return pair;
}

weft_status_t weft__pair_new(struct iface *iface, size_t size, const struct lane_ops *ops,
                             void (*open)(struct job *job), void *listen_arg,
                             struct pair_lane **dialed_p) {
    struct pair_lane *dialed = lane_new(iface, size, ops, open);
    struct pair_lane *accepted = lane_new(iface, size, ops, open);
    if (!dialed || !accepted) {
        talloc_free(dialed);
        talloc_free(accepted);
        return WEFT_ERR_NO_MEMORY;
    }
    dialed->dialed = true;
    dialed->peer = accepted;
    accepted->peer = dialed;
    accepted->listen_arg = listen_arg;
    pair_post(accepted);
    pair_post(dialed);
    *dialed_p = dialed;
    return WEFT_OK;
}
