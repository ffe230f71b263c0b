/* Messages of a library that holds a lease of another library's worker (core/lease.h). */
#ifndef WEFT_ENDPOINTS_MESSAGES_LEASED_H
#define WEFT_ENDPOINTS_MESSAGES_LEASED_H

#include <stdbool.h>
#include <weft/am.h>
#include <weft/tag.h>

struct lease;

/* The ids of the lease call the handlers of lease->user, or (false) nothing. */
weft_status_t weft__leased_handlers(weft_worker_t *provider, struct lease *lease, bool on);

struct am_send_args; /* am.h */
struct tag_receive;  /* tag.h */
weft_status_t weft__leased_am_send_wait(struct weft_ep *ep, const struct am_send_args *args);
weft_status_t weft__leased_am_send_ready(struct weft_ep *ep, const struct am_send_args *args);
weft_status_t weft__leased_tag_send_wait(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov,
                                         size_t n_iov, const weft_op_t *op);
weft_status_t weft__leased_tag_send_ready(struct weft_ep *ep, uint64_t tag, const weft_iov_t *iov,
                                          size_t n_iov, const weft_op_t *op);

/* Receives of the worker that holds the lease, posted at its provider. */
weft_status_t weft__leased_tag_recv(weft_worker_t *worker, const struct tag_receive *r,
                                    const weft_op_t *op);
weft_status_t weft__leased_tag_probe(weft_worker_t *worker, uint64_t tag, uint64_t mask,
                                     weft_tag_info_t *info_p);
weft_status_t weft__leased_tag_take(weft_worker_t *worker, uint64_t tag, uint64_t mask,
                                    weft_tag_info_t *info_p, weft_tag_message_t **message_p);
/* An unexpected message: if its tag is of a lease, so is the endpoint that a peer has opened. */
void weft__leased_follow(struct weft_ep *ep, uint64_t tag);
/* The lease ends: messages for it that were not received reach no one. */
void weft__leased_messages_drop(weft_worker_t *provider, const struct lease *lease);
/* Ends the receives that the lease has posted with `status`. */
void weft__leased_receives_stop(weft_worker_t *provider, const struct lease *lease,
                                weft_status_t status);
/* How many of them there are. */
size_t weft__leased_receives(const weft_worker_t *provider, const struct lease *lease);

#endif
