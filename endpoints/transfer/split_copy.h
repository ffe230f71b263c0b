/*
 * Large messages to or from exposed memory.
 *
 * If the sender's memory is exposed, both sides copy. The receiver reads from the beginning. It
 * asks the sender (PUT_REQ) to write the end of the message into the receiver's memory. They stop
 * where they meet (lane_ops.bulk_split). The sender may ignore the request. If the receiver waits
 * for the sender's last piece, the sender reports it with PUT_DONE.
 *
 * If the receiver cannot read the sender's memory, the sender writes the whole message (rendezvous
 * put, lane_ops.bulk_put). It reports PUT_DONE when all is written, or GONE if it stops early; the
 * receiver then asks for the message. Either side may stop between two pieces.
 */
#ifndef WEFT_ENDPOINTS_TRANSFER_SPLIT_COPY_H
#define WEFT_ENDPOINTS_TRANSFER_SPLIT_COPY_H

#include <endpoints/core/endpoint.h>

struct wire_put_req;

/* Starts a split copy into one piece. IN_PROGRESS, or an error: use lane_ops.bulk_get instead. */
weft_status_t weft__split_get(struct weft_request *req, struct lane *lane, const weft_iov_t *to);
/* Asks the sender to write the message. IN_PROGRESS: the request waits with weft__written_kind. */
weft_status_t weft__split_put(struct weft_request *req, struct lane *lane, const weft_iov_t *to);
/* `withdraw` of weft__written_kind: the sender stops writing. */
void weft__put_stop(struct weft_request *req);
/* Handles GONE for a written receive. False: `id` names no written receive. */
bool weft__put_gone(struct link *link, uint32_t id);

/* Stops writing this message into its receiver's memory. */
void weft__put_req_end(const struct weft_request *req);

void weft__on_put_req(struct link *link, struct lane *lane, const struct wire_put_req *asked);
struct wire_empty;
void weft__on_put_done(struct link *link, struct lane *lane, const struct wire_empty *done);

#endif
