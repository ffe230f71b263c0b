/* Why a connection or an endpoint failed, as text. All endpoints of one lost link share one
 * text. */
#ifndef WEFT_ENDPOINTS_CORE_CAUSE_H
#define WEFT_ENDPOINTS_CORE_CAUSE_H

#include <reactor/reactor.h>

struct link;
struct weft_ep;

struct cause {
    uint32_t users;
    int32_t status;       /* a weft_status_t, that this is the cause of */
    struct cause *before; /* the failure of the try before this one, or NULL */
    size_t own;           /* where in `text` this failure begins, behind those before */
    char text[];
};

enum { CAUSE_ROOM = 320, PEER_ROOM = 192 };

/* A cause with one user, below `worker`. NULL when memory runs out: the failure is then
 * described without it. */
struct cause *weft__cause_new(const void *worker, weft_status_t status, const char *text);
/* The same, behind the failure of a try before; `before` may be NULL. Its text has both. */
struct cause *weft__cause_join(const void *worker, struct cause *before, weft_status_t status,
                               const char *text);
struct cause *weft__cause_hold(struct cause *cause); /* one user more; NULL is nothing */
void weft__cause_drop(struct cause *cause);

/* Sets the thread's causes to this one if it is of `status`, and otherwise to none. Each try that
 * failed is a cause of its own. Call it before a callback. */
void weft__cause_note(weft_status_t status, const struct cause *cause);

/* "worker 0123456789abcdef at 127.0.0.1:7000 (tcp)", for log lines and causes. */
void weft__peer_text(const struct link *link, char buf[PEER_ROOM]);

/* Why a connection failed, where its transport did not note it. */
const char *weft__usual_cause(weft_status_t status);

/* The cause of a link's loss: what the thread's causes say of link->status, or a sentence for
 * that status. */
struct cause *weft__cause_of_link(const struct link *link);
/* Gives the endpoint a cause of its own, of `status`, if it has none yet: "worker … at …: what",
 * behind the tries before that failed (tries.h). */
void weft__ep_cause(struct weft_ep *ep, weft_status_t status, const char *what);

#endif
