/*
 * The memory of unexpected messages. A worker keeps some blocks of short ones for the next: two
 * calls of the allocator for each were a fifth of the instructions of such a message.
 */
#ifndef WEFT_ENDPOINTS_MESSAGES_MESSAGE_MEMORY_H
#define WEFT_ENDPOINTS_MESSAGES_MESSAGE_MEMORY_H

#include <endpoints/core/worker.h>

/* With `room` bytes of payload, or more. Not zeroed: what an unread byte costs must not depend on
 * what the peer announces. NULL: no memory. */
struct weft_tag_message *weft__message_new(struct weft_worker *worker, size_t room);
void weft__message_free(struct weft_tag_message *message);

#endif
