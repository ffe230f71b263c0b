/* Messages between two lanes of one process: a queue that counts those it has not done with. */
#ifndef WEFT_TRANSPORTS_INBOX_H
#define WEFT_TRANSPORTS_INBOX_H

#include <stddef.h>
#include <stdint.h>

/* A transport embeds it as the first member of its own message. */
struct inbox_message {
    struct inbox_message *next;
};

struct inbox {
    struct inbox_message *first, **last; /* first: NULL if none is queued */
    uint32_t depth;                      /* put, and not done */
};

static inline void inbox_init(struct inbox *inbox) {
    *inbox = (struct inbox){.last = &inbox->first};
}

static inline void inbox_put(struct inbox *inbox, struct inbox_message *m) {
    m->next = NULL;
    *inbox->last = m;
    inbox->last = &m->next;
    inbox->depth++;
}

/* Removes the first message; there must be one. It counts until inbox_done. */
static inline struct inbox_message *inbox_take(struct inbox *inbox) {
    struct inbox_message *m = inbox->first;
    inbox->first = m->next;
    if (!inbox->first) inbox->last = &inbox->first;
    return m;
}

static inline void inbox_done(struct inbox *inbox) {
    inbox->depth--;
}

#endif
