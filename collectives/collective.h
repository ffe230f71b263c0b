/* A collective in progress: a plan that is run over messages, or turns at the team's shared slots. */
#ifndef WEFT_COLLECTIVES_COLLECTIVE_H
#define WEFT_COLLECTIVES_COLLECTIVE_H

#include "reductions.h"
#include "team.h"

/* What the user called. */
struct coll_call {
    enum coll_kind kind;
    const void *src;
    void *dst;
    uint64_t count;
    uint32_t width, root;
    reduce_fn reduce; /* allreduce */
    bool fixed_order;
    unsigned algorithm; /* chosen */
};

static inline uint64_t coll_bytes(const struct coll_call *call) {
    return call->count * call->width;
}

struct collective;

/* A way to carry one out. */
struct coll_engine {
    weft_status_t (*prepare)(struct collective *c);
    bool (*advance)(struct collective *c); /* as far as it goes; is it over? */
    bool (*needs)(const struct collective *c, uint32_t rank);
    bool (*may_move)(const struct collective *c); /* looks only; NULL: messages drive it */
};
extern const struct coll_engine weft__steps, weft__slots, weft__oneshot;

enum step_state { STEP_WAITS, STEP_POSTED, STEP_ASKED, STEP_LENT, STEP_DONE };

/* A message that came before its step was ready; `data` is kept. */
struct early {
    struct list of;
    uint32_t id, seq, tag, from;
    const void *data;
    size_t len;
};

struct step_run {
    struct collective *collective;
    struct early *early;
    weft_request_t *request;
    uint32_t waits;
    enum step_state state;
};

struct collective {
    struct collective_core core;
    weft_team_t *team;
    struct list of_team;
    struct coll_call call;
    const struct coll_engine *engine;
    struct weft_request *request;               /* the user's; NULL: nobody waits, or it is the team's own */
    void (*over)(weft_team_t *, weft_status_t); /* the team's own */
    weft_status_t status;
    uint32_t n_lent; /* sends and receives in flight */
    struct job tell, returned;

    /* Over messages. */
    uint32_t seq, n_left;
    struct plan *plan;
    struct step_run *step;
    uint32_t *ready, n_ready; /* a stack */
    uint8_t *buffer[N_COLL_BUFFERS];
    uint64_t scratch_bytes;

    /* Through the segment: parts of at most a slot, each one use of it. */
    uint64_t first_use;
    uint32_t n_parts, entered, left;
};

/* Begins it: WEFT_OK when it is done already, WEFT_IN_PROGRESS, or an error and nothing has happened. */
weft_status_t weft__collective_start(weft_team_t *team, const struct coll_call *call, const weft_op_t *op,
                                     void (*over)(weft_team_t *, weft_status_t));
/* The team has failed: it ends with the team's status. */
void weft__collective_stop(struct collective *c);
/* A member left in good order: collectives that still need it end. */
void weft__collectives_without(weft_team_t *team, uint32_t rank);
/* A message of the team; takes over `am`'s payload if need be. */
void weft__collective_message(weft_team_t *team, unsigned id, const struct coll_wire *wire, weft_am_t *am);
/* The same for one that waited in the room. */
void weft__collective_early(weft_team_t *team, struct early *early);
/* What came too early, kept: small messages only, since what is larger was not asked for yet. */
weft_status_t weft__early_new(weft_team_t *team, unsigned id, const struct coll_wire *wire, weft_am_t *am,
                              struct early **early_p);
void weft__early_drop(weft_worker_t *worker, struct early *early);

/* ---- steps.c: over messages */

void weft__steps_recall(struct collective *c);
void weft__steps_data(struct collective *c, const struct coll_wire *wire, weft_am_t *am);
void weft__steps_go(struct collective *c, const struct coll_wire *wire);
void weft__steps_release(struct collective *c);
/* One message to a member, its payload borrowed until `op` says so. */
weft_status_t weft__coll_send(weft_team_t *team, unsigned id, uint32_t rank, uint32_t seq, uint32_t tag,
                              const void *data, size_t len, const weft_op_t *op);

/* All engines, when the last step is done. */
void weft__collective_finish(struct collective *c);

/* ---- slots.c, oneshot.c: through the team's segment */

bool weft__slots_can_take(const weft_team_t *team, const struct coll_call *call);
bool weft__oneshot_can_take(const weft_team_t *team, const struct coll_call *call);

/* ---- shared.c: both of these */

bool weft__shared_over(const struct collective *c);
void weft__shared_watch(weft_team_t *team);
void weft__shared_unwatch(weft_team_t *team);
/* Whoever sleeps hears that something was published. */
void weft__shared_wake(weft_team_t *team);
/* The same where a fence has followed that already. */
void weft__shared_wake_seen(weft_team_t *team);

#endif
