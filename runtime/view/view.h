/* A view at one process: its engine, its team, its members' identities and its finalizers. */
#ifndef WEFT_RUNTIME_VIEW_VIEW_H
#define WEFT_RUNTIME_VIEW_VIEW_H

#include "engine.h"
#include "finalizers.h"
#include "machines.h"
#include <base/list.h>
#include <weft/memory.h>
#include <weft/rma.h>

/* What each member sends to all others when the team is there. */
struct view_member {
    uint64_t process; /* unique among processes, on all hosts */
    uint64_t host;    /* 0: unknown */
    uint64_t remote;  /* address of its resource set */
    uint32_t key_len;
    uint8_t key[WEFT_RKEY_MAX];
};

struct weft_view {
    struct view_core core;
    uint32_t refs;
    uint32_t n_held;       /* of these, by parts, by splits and by calls that wait */
    uint32_t n_leaving;    /* splits in progress, and parts being released: each holds one */
    struct list of_worker; /* of_worker.c */
    struct view_registry *registry;
    bool ends_with_worker;        /* which closes: the program's references count no more */
    bool closes_team, is_settled; /* the team's close has begun; it is due */
    weft_status_t status;         /* of the creation */
    struct shared_worker *shared; /* of its thread: api.c; NULL: it uses the program's worker */
    weft_worker_t *worker;
    struct reactor *reactor;
    weft_view_t *parent; /* of a part; one reference */
    struct view_session *session;
    weft_team_t *team;
    weft_mem_t *mem; /* holds `mine` */
    weft_resource_set_t *mine;
    struct view_member me, *member;
    weft_resource_set_t **set; /* of each member, or NULL: not fetched yet */
    struct list fetches;       /* in progress: sets.c */
    struct finalizers finalizers;
    struct job settle; /* after the calls of the machine: what it asked for at once */
    void (*on_ready)(weft_view_t *view, weft_status_t status, void *arg);
    void *arg;
    weft_done_fn released;
    void *released_arg;
};

/* view.c: the machine's port. */

/* Begins a view over a session. The view takes the session, and a reference of `parent` if it
 * is not NULL. */
weft_status_t weft__view_begin(weft_view_t *view, uint32_t deadline_ms);
weft_view_t *weft__view_new(weft_worker_t *worker, weft_view_t *parent);
/* Frees a view that has not begun. */
void weft__view_discard(weft_view_t *view);
/* The last reference is gone. */
void weft__view_end(weft_view_t *view, const weft_op_t *op);
/* WEFT_OK, WEFT_ERR_BUSY before it is ready, WEFT_ERR_CLOSED when its worker closes, or why its
 * creation failed. */
weft_status_t weft__view_usable(const weft_view_t *view);

/* The view lives until it is let go, whatever the program releases. */
void weft__view_hold(weft_view_t *view);
void weft__view_let_go(weft_view_t *view);
void weft__view_end_with_worker(weft_view_t *view);

/* of_worker.c */

weft_status_t weft__view_join_worker(weft_view_t *view);
void weft__view_leave_worker(weft_view_t *view);

/* sets.c */

/* Measures this process and exposes the result. */
weft_status_t weft__view_expose(weft_view_t *view);
/* The view ends: what is on its way ends as CLOSED. */
void weft__view_forget_fetches(weft_view_t *view);

#endif
