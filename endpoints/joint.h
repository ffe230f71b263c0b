/*
 * Large messages out of lent memory into lent memory: both sides copy. The receiver reads from the beginning, and asks the sender (HELP)
 * to write the end of the message where it belongs; they meet where they meet (lane_ops.bulk_joint). A sender that has no time need not
 * help; one whose last piece the receiver waits for says when it is there (HELPED).
 */
#ifndef WEFT_ENDPOINTS_JOINT_H
#define WEFT_ENDPOINTS_JOINT_H

#include "ep.h"

/* For a receive into one piece, as lane_ops.bulk_get: IN_PROGRESS, or UNSUPPORTED where that must be asked. */
weft_status_t weft__joint_get(struct weft_request *req, struct lane *lane, const weft_iov_t *to);

/* Nothing more of this message is written for its reader. */
void weft__help_end(const struct weft_request *req);

void weft__on_help(struct lane *lane, const void *data, size_t len);
void weft__on_helped(struct lane *lane, const void *data, size_t len);

#endif
