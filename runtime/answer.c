/* Answers of the exchange's server, and the sockets that they wait for. */
#include "answer.h"
#include <base/alloc.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <talloc.h>

/* One answer in the box of one rank. */
struct note {
    struct list in_box;
    struct run_answer *answer;
};

struct run_answer *weft__run_answer_new(const void *parent, size_t payload) {
    struct run_answer *answer =
        weft__alloc(parent, sizeof *answer + RUN_HEADER + payload, "struct run_answer");
    if (!answer) return NULL;
    answer->n_users = 1;
    answer->len = RUN_HEADER + payload;
    return answer;
}

/* Where there is no memory for a smaller block, the larger one stays. */
struct run_answer *weft__run_answer_finish(struct run_answer *answer, enum run_type type,
                                           uint32_t round, size_t payload) {
    size_t len = RUN_HEADER + payload;
    if (len < answer->len) {
        struct run_answer *smaller =
            talloc_realloc_size(talloc_parent(answer), answer, sizeof *answer + len);
        if (smaller) answer = smaller;
    }
    answer->len = len;
    weft__run_encode(&(struct run_frame){type, round, (uint32_t)payload}, answer->bytes);
    return answer;
}

void weft__run_answer_release(struct run_answer *answer) {
    if (--answer->n_users == 0) talloc_free(answer);
}

void weft__run_outbox_init(struct run_outbox *box) {
    list_init(&box->answers);
    box->at = 0;
}

weft_status_t weft__run_outbox_add(struct run_outbox *box, const void *parent,
                                   struct run_answer *answer) {
    struct note *note = weft__new(parent, struct note);
    if (!note) return WEFT_ERR_NO_MEMORY;
    note->answer = answer;
    answer->n_users++;
    list_append(&box->answers, &note->in_box);
    return WEFT_OK;
}

static void drop_first(struct run_outbox *box) {
    struct note *note = list_of(list_pop(&box->answers), struct note, in_box);
    weft__run_answer_release(note->answer);
    talloc_free(note);
    box->at = 0;
}

/* As much of the first as the socket takes. */
static weft_status_t write_first(struct run_outbox *box, int fd) {
    const struct run_answer *answer = list_of(box->answers.next, struct note, in_box)->answer;
    while (box->at < answer->len) {
        ssize_t n =
            send(fd, answer->bytes + box->at, answer->len - box->at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0)
            box->at += (size_t)n;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return WEFT_IN_PROGRESS;
        else if (errno != EINTR)
            return WEFT_ERR_IO;
    }
    return WEFT_OK;
}

weft_status_t weft__run_outbox_write(struct run_outbox *box, int fd) {
    while (!list_empty(&box->answers)) {
        weft_status_t st = write_first(box, fd);
        if (st != WEFT_OK) return st;
        drop_first(box);
    }
    return WEFT_OK;
}

void weft__run_outbox_clear(struct run_outbox *box) {
    while (!list_empty(&box->answers)) drop_first(box);
}
