/* Tagged messages, as the rooms above call them. */
#ifndef WEFT_ENDPOINTS_MESSAGES_TAG_H
#define WEFT_ENDPOINTS_MESSAGES_TAG_H

#include <endpoints/transfer/placement.h>

struct wire_credit;

/* Handlers of lane messages and of offers. */
void weft__on_tag(struct lane *lane, unsigned id, const void *data, size_t len);
void weft__on_credit(struct link *link, struct lane *lane, const struct wire_credit *credit);
void weft__tag_offered(struct weft_ep *ep, const struct wire_rts *rts);
/* The sender withdraws its offer. False: no unexpected message stands for it. */
bool weft__tag_offer_withdrawn(struct link *link, uint32_t offer);
/* A place_fn. A tagged message that crosses whole is written straight into its posted receive. */
bool weft__place_tag(struct lane *lane, const void *head, size_t head_len, size_t len,
                     struct placement_record *of, struct placement *to);

/* The arguments of a tagged receive. */
struct tag_receive {
    uint64_t tag, mask;
    const weft_iov_t *iov;
    size_t n_iov;
    weft_tag_info_t *info_p;
};

/* Members of ep_ops. */
weft_status_t weft__tag_send_wait(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov,
                                  size_t n_iov, const weft_op_t *op);
weft_status_t weft__tag_send_ready(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov,
                                   size_t n_iov, const weft_op_t *op);

#endif
