/*
 * Answers of the exchange's server: frames that several ranks are sent. Their bytes are built once,
 * and each rank's socket is written from them.
 */
#ifndef WEFT_RUNTIME_ANSWER_H
#define WEFT_RUNTIME_ANSWER_H

#include "wire.h"
#include <base/list.h>

/* Counted: it is freed when its last user has released it. */
struct run_answer {
    uint32_t n_users;
    size_t len; /* of the frame, header and payload */
    uint8_t bytes[];
};

/* Room for a frame with that payload. A talloc child of `parent`, and the caller is its user. NULL:
 * no memory. */
struct run_answer *weft__run_answer_new(const void *parent, size_t payload);
static inline uint8_t *weft__run_answer_payload(struct run_answer *answer) {
    return answer->bytes + RUN_HEADER;
}
/* Writes the header, before it is sent. `payload` is at most what there is room for; `answer` may
 * move, and the room beyond is given back. */
struct run_answer *weft__run_answer_finish(struct run_answer *answer, enum run_type type,
                                           uint32_t round, size_t payload);
void weft__run_answer_release(struct run_answer *answer);

/* What the socket of one rank has not taken yet, in order. */
struct run_outbox {
    struct list answers;
    size_t at; /* bytes of the first one that the socket has taken */
};

void weft__run_outbox_init(struct run_outbox *box);
/* It is a user of the answer until that is written. `parent` is that of its notes. Errors:
 * NO_MEMORY. */
weft_status_t weft__run_outbox_add(struct run_outbox *box, const void *parent,
                                   struct run_answer *answer);
/* Writes what the socket takes now. OK: all. IN_PROGRESS: the rest waits for room. Errors: IO, the
 * socket is broken. */
weft_status_t weft__run_outbox_write(struct run_outbox *box, int fd);
/* Drops all. */
void weft__run_outbox_clear(struct run_outbox *box);

#endif
