/*
 * Large messages into lent memory. Out of lent memory both sides copy: the receiver reads from the beginning, and asks the sender (HELP)
 * to write the end of the message where it belongs; they meet where they meet (lane_ops.bulk_joint). A sender that has no time need not
 * help; one whose last piece the receiver waits for says when it is there (HELPED).
 *
 * Out of memory that the receiver cannot read by any means, the sender writes all (rendezvous put, lane_ops.bulk_put), and says HELPED when that is done
 * or GONE when it will not be; then the receiver asks for the message. Either side may end it between two pieces.
 */
#ifndef WEFT_ENDPOINTS_JOINT_H
#define WEFT_ENDPOINTS_JOINT_H

#include "ep.h"

/* For a receive into one piece, as lane_ops.bulk_get: IN_PROGRESS, or an error where that must be asked. */
weft_status_t weft__joint_get(struct weft_request *req, struct lane *lane, const weft_iov_t *to);
/* For one that neither reads: IN_PROGRESS, and the request waits, as one of weft__written_kind; or an error. */
weft_status_t weft__joint_put(struct weft_request *req, struct lane *lane, const weft_iov_t *to);
/* `withdraw` of that kind: the sender writes no more of it. */
void weft__put_stop(struct weft_request *req);
/* The sender says so; false: by that id, of nothing. */
bool weft__put_gone(struct link *link, uint32_t id);

/* Nothing more of this message is written for its reader. */
void weft__help_end(const struct weft_request *req);

void weft__on_help(struct lane *lane, const void *data, size_t len);
void weft__on_helped(struct lane *lane, const void *data, size_t len);

#endif
