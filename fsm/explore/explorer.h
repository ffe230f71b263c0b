/*
 * The explorer joins copies of shipped machines through a channel and visits every state that they
 * have together, breadth first.
 *
 * A peer is the plain struct of one machine. A move is a local event (the user, a timer), the
 * delivery of a message, its loss or its repetition, or, from a hostile peer, any message at all. A
 * move runs the shipped weft__fsm_step with a port of the explorer's, which writes effects down: a
 * message enters the channel, a timer is armed, the user is notified. What must hold: no BUG cell
 * and no dead cell is hit, by held events neither; no VIOL cell, unless a peer is hostile; the
 * invariant in every state; and from every state one that is `agreed` stays reachable. The shortest
 * way to a fault is reported.
 *
 *     static const struct explore_effect effects[FOO_N_EFFECTS] = {
 *         [FOO_FX_SEND_HELLO] = {EXPLORE_SEND, FOO_EV_HELLO},   the peer gets HELLO, sooner, later,
 * twice or never
 *         [FOO_FX_ARM_TIMER] = {EXPLORE_ARM, FOO_EV_TIMEOUT},   from now on TIMEOUT may happen
 * here, once
 *         [FOO_FX_NOTIFY_UP] = {EXPLORE_NOTIFY, 0},                 counted: explore_notified()
 *     };
 *     static const struct explore_local locals[] = {
 *         {.event = FOO_EV_OPEN, .budget = 1},                           the user opens at most
 * once
 *         {.event = FOO_EV_TIMEOUT, .armed = true},
 *     };
 *     static const struct explore_role peer = {.machine = &weft__foo_machine, .size = sizeof(struct
 * foo),
 *         .start = FOO_IDLE, EXPLORE_LOCALS_OF(locals), .effects = effects};
 *     static const char *invariant(const struct explore_world *w) {
 *         return explore_notified(w, 0, FOO_FX_NOTIFY_UP) > 1 ? "notified up once" : NULL;
 *     }
 *     static const struct explore_model model = {
 *         .name = "foo", .role = {&peer, &peer}, .n_peers = 2, .equal_peers = true,
 *         .channel = {.soup = true}, .invariant = invariant, .agreed = agreed};
 *     struct explore_result result;
 *     if (!explore(&model, &result)) explore_print(&result, stdout);
 */
#ifndef WEFT_FSM_EXPLORE_EXPLORER_H
#define WEFT_FSM_EXPLORE_EXPLORER_H

#include <fsm/fsm.h>
#include <stddef.h>
#include <stdio.h>

#define EXPLORE_PEERS        6
#define EXPLORE_STRUCT       256 /* bytes of a plain struct, at most */
#define EXPLORE_PAYLOAD      16
#define EXPLORE_MESSAGES     32 /* in flight, at most */
#define EXPLORE_LOCALS       24
#define EXPLORE_LIST(a)      a, sizeof(a) / sizeof *(a) /* by place, where fields are not named */
#define EXPLORE_LOCALS_OF(a) .locals = a, .n_locals = sizeof(a) / sizeof *(a)

struct explore_message {
    uint8_t from, to, event;
    uint8_t payload[EXPLORE_PAYLOAD];
};

/* The state of all peers and the channel, as the model's callbacks see it. */
struct explore_world {
    unsigned n_peers;
    uint8_t hostile; /* bits: the model's */
    /* bits: peers that ended by a violation; nothing reaches them */
    uint8_t out;
    struct fsm *peer[EXPLORE_PEERS]; /* the plain structs; a hostile peer's is never stepped */
    unsigned n_messages;
    struct explore_message message[EXPLORE_MESSAGES];
    uint8_t notified[EXPLORE_PEERS][64]; /* by effect; 2 means: more than once */
};

static inline unsigned explore_notified(const struct explore_world *w, unsigned peer,
                                        unsigned effect) {
    return w->notified[peer][effect];
}
/* Takes every message to (or, with `from`, also from) this peer out of the channel: its lane is
 * cut. */
void explore_drop(struct explore_world *w, unsigned peer, bool from);
/* Within `receive`, `before` and `after`: a message that no effect of the machine's says, or
 * another state's. */
void explore_send(const struct explore_message *msg);
struct explore_world *explore_now(void);

enum explore_kind {
    EXPLORE_NOTHING,
    EXPLORE_SEND,   /* `event` for each other peer that `say` does not refuse */
    EXPLORE_ARM,    /* local `event` may happen from now on, once */
    EXPLORE_DISARM, /* no more */
    EXPLORE_NOTIFY  /* counted */
};
struct explore_effect {
    uint8_t kind, event;
};

struct explore_local {
    uint8_t event;
    uint8_t budget;  /* times at each peer; 0: whenever possible */
    bool rescue;     /* optional: agreement must stay reachable without it */
    bool armed;      /* only after EXPLORE_ARM, which it uses up */
    uint32_t states; /* a bit for each state where it may happen; 0: all */
    /* a further condition; may be NULL */
    bool (*when)(const struct explore_world *w, unsigned peer);
    /* puts data into the plain struct; may be NULL */
    void (*before)(struct explore_world *w, unsigned peer);
    /* what else it does to the world; may be NULL */
    void (*after)(struct explore_world *w, unsigned peer);
    bool at_start; /* armed when all begins */
};

/* What one peer is. */
struct explore_role {
    const struct fsm_machine *machine;
    size_t size; /* of the plain struct */
    uint8_t start;
    const struct explore_local *locals;
    unsigned n_locals;
    const struct explore_effect *effects;       /* [machine->n_effects] */
    void (*init)(struct fsm *m, unsigned peer); /* the zeroed rest of the struct; may be NULL */
    /* 1 + event with which the owner answers one; 0: it is out */
    uint8_t after_violation;
};

/* Without soup: a queue for each direction, first in first out, that loses and repeats within
 * budgets. */
struct explore_channel {
    /* holds every message ever sent, each deliverable at any time, any number of times, or never */
    bool soup;
    bool reorder; /* any message may be delivered next */
    uint8_t losses, repeats;
    uint8_t capacity; /* of each queue; 0: no bound but `room` */
    uint8_t room;     /* of all together; 0: EXPLORE_MESSAGES. A state is kept in so much memory. */
};

struct explore_model {
    const char *name;
    const struct explore_role *role[EXPLORE_PEERS];
    unsigned n_peers;
    bool equal_peers; /* peers of one role may change places: their structs name no peer */
    /* bits: peers that say anything at any time, and whose machine is not run; what they say comes
     * from the first of them, unless `lie` names another */
    uint8_t hostile;
    struct explore_channel channel;
    /* bytes that messages have; 0: EXPLORE_PAYLOAD. What is fewer takes less memory. Bytes beyond it
     * must be 0: an exploration in which one is not is incomplete. */
    uint8_t payload;
    unsigned max_states; /* 0: a million */

    /* Completes what an effect sends to `msg->to`, from the sender's plain struct. False:
     * nothing is sent there. */
    bool (*send_msg)(const struct fsm *from, unsigned effect, struct explore_message *msg);
    /* Puts a payload into the receiver's plain struct and names the event. False: the decoder
     * drops it. */
    bool (*recv_msg)(struct fsm *to, const struct explore_message *msg, unsigned *event_p);
    /* False: what comes to this peer waits, lies too. NULL: all listen always. */
    bool (*listens)(const struct explore_world *w, unsigned peer);
    /* Payload number `choice` of a lie, of 256 at most; false: there are no more. NULL: `receive` is
     * not asked, the event comes as it is. */
    bool (*lie)(const struct fsm *to, unsigned choice, struct explore_message *msg);

    const char *(*invariant)(const struct explore_world *w); /* what is broken, or NULL */
    /* a stable, agreed state; NULL: not asked */
    bool (*agreed)(const struct explore_world *w);
};

struct explore_result {
    bool ok;
    bool complete; /* every state was visited, by all but `truncated` moves */
    unsigned states, moves, depth;
    /* moves not followed because the channel was full; the cells that they came to are checked */
    unsigned truncated;
    char why[200];    /* what is wrong */
    char trace[2000]; /* "A:OPEN B:OPEN A:HELLO" */
    char steps[8000]; /* the same with states and effects, a line each */
};

/* True when all holds and every state within the bounds was visited. Counts cells: see
 * weft__fsm_coverage. */
bool explore(const struct explore_model *model, struct explore_result *result);
void explore_print(const struct explore_result *result, FILE *out);

/*
 * Cells of `machine` that no exploration has hit since weft__fsm_coverage_reset and have no reason
 * in the DEAD list, as lines "EVENT STATE"; returns how many.
 */
unsigned explore_unreached(const struct fsm_machine *machine, FILE *out);

/*
 * The model as Promela: the same tables, moves and soup, so that spin stores as many states. For
 * two peers without payloads, callbacks, timers that are armed at the start, and channels other
 * than soup. `invariant` is a Promela expression over state[peer] and
 * notified[peer * N_EFFECTS + FX_name]. Returns false when the model is not of that kind.
 */
bool weft__explore_promela(const struct explore_model *model, const char *invariant, FILE *out);

#endif
