/* Allocates unexpected messages, and keeps some short ones for the next. */
#include "message_memory.h"

#include "match.h"
#include <base/poison.h>

enum {
    SHORT_ROOM = 64, /* bytes of payload of a block that is kept */
    SHORT_SIZE = sizeof(struct weft_tag_message) + SHORT_ROOM,
    MOST_SPARE = 64
};

/* The first word of a block that is not in use. The rest of it is poisoned. */
struct spare_message {
    struct spare_message *next;
};

static struct weft_tag_message *take_spare(struct match *m) {
    struct spare_message *spare = m->spare;
    m->spare = spare->next;
    m->n_spare--;
    unpoison(spare, SHORT_SIZE);
    return (struct weft_tag_message *)spare;
}

static void put_spare(struct match *m, struct weft_tag_message *message) {
    struct spare_message *spare = (struct spare_message *)message;
    spare->next = m->spare;
    poison(spare + 1, SHORT_SIZE - sizeof *spare);
    m->spare = spare;
    m->n_spare++;
}

struct weft_tag_message *weft__message_new(struct weft_worker *worker, size_t room) {
    if (room <= SHORT_ROOM) {
        if (worker->match.spare) return take_spare(&worker->match);
        room = SHORT_ROOM;
    }
    return weft__realloc(worker, NULL, sizeof(struct weft_tag_message) + room,
                         "unexpected message");
}

void weft__message_free(struct weft_tag_message *message) {
    struct match *m = &message->worker->match;
    if (m->n_spare < MOST_SPARE && talloc_get_size(message) == SHORT_SIZE)
        put_spare(m, message);
    else
        talloc_free(message);
}
