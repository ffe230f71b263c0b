/*
 * Two workers whose link gets a second lane, and moves its traffic there and back, to exhaustion:
 * the shipped table and actions, between lanes that are queues. The port below does what
 * endpoints/lanes/switch.c does. Messages of both sides are numbered; what must hold is that they
 * are delivered in order, once, and all, unless the link is lost at both sides. The base lane may
 * be one that survives its connections: then it is the shipped machine of that, too, and
 * connections are what dies.
 *
 * Every move takes something away (a message on its way, one to be sent, a request, a fault), so
 * the graph has no circle, and "everything comes to an agreed rest" is that each state without a
 * move is one.
 */
#include "tests/harness.h"

#include "shipped.h"

#include <endpoints/failover/resume.h>
#include <endpoints/lanes/switch_core.h>
#include <fsm/explore/explorer.h>
#include <stdbool.h>

enum { QUEUE = 12, HELD = 10 };
enum word { DATA = 1, END, DRAINED, HELLO, BYE, RESET, RESUME, RESUMED };
/* BYE: closed in good order; RESET: dead; RESUME, RESUMED: by a new connection under lane 0,
 * where that survives them */
#define WORD(kind, value) ((uint8_t)((kind) << 4 | (value)))

struct queue {
    uint8_t n, at[QUEUE];
};
struct side {
    struct switch_core core;
    struct queue held;
    uint8_t sent, seen; /* data */
    uint8_t quiet;      /* 1: operations of the lane are under way; 2: they have ended */
    uint8_t full;       /* 1: END waits for room */
    uint8_t mute[2];    /* of a lane: this side has closed it, or learned of its end */
    uint8_t over;       /* the link is lost, or violated, here */
    uint8_t taking;
    struct resume link; /* where lane 0 survives: its machine, all that was said by it, … */
    struct queue log;
    uint8_t cut, due; /* … a connection that is lost, and who has not noticed; the next try */
};
struct world {
    struct side side[2];
    struct queue way[2][2]; /* towards a side, by a lane */
    uint8_t moves, faults, closes, lies;
    uint8_t flushed; /* side 0 has closed the link behind all that it sent */
};
static bool is_hostile; /* side 1 says anything, and is not run */
static bool words_die;  /* with their connection, as they must not */
static bool survives;   /* lane 0 outlives its connections (retain.h); a fault is the loss of one */
static struct budget { uint8_t data, moves, faults, closes, lies; } budget;

/* ---- one state's successors */

static struct world now;
static uint32_t todo[2];
static bool bug;
static const char *broken;

static unsigned side_of(const struct fsm *m) {
    return m == &now.side[1].core.fsm;
}
static void on_effect(struct fsm *m, unsigned effect) {
    todo[side_of(m)] |= UINT32_C(1) << effect;
}
static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    if (why == FSM_BUG) bug = true;
    if (why == FSM_VIOL && !is_hostile) broken = "an honest peer violates";
    todo[side_of(m)] |= UINT32_C(1) << SWITCH_FX_LOSE;
}
static const struct fsm_port port = {&weft__switch_machine, on_effect, on_fail};

static void push(struct queue *q, uint8_t word) {
    if (q->n == QUEUE)
        broken = "the model's queue is too short";
    else
        q->at[q->n++] = word;
}
static uint8_t pop(struct queue *q) {
    uint8_t word = q->at[0];
    memmove(q->at, q->at + 1, --q->n);
    q->at[q->n] = 0;
    return word;
}

/* ---- lane 0, where it survives: the shipped machine of that (resume.fsm) between connections
 * that are queues */

static unsigned side_of_link(const struct fsm *m) {
    return m == &now.side[1].link.fsm;
}
static void by_connection(unsigned from, uint8_t word) {
    if (!now.side[from].cut) push(&now.way[!from][0], word);
}
static void on_link_effect(struct fsm *m, unsigned effect) {
    unsigned i = side_of_link(m);
    struct side *s = &now.side[i];
    switch (effect) {
    case RESUME_FX_TRANSMIT:
    case RESUME_FX_RESEND: by_connection(i, s->log.at[s->link.out]); break;
    case RESUME_FX_AGAIN: s->due = i == 0; break;
    case RESUME_FX_SEND_RESUME: by_connection(i, WORD(RESUME, s->link.delivered)); break;
    case RESUME_FX_SEND_RESUMED: by_connection(i, WORD(RESUMED, s->link.delivered)); break;
    default: break;
    }
}
static void on_link_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    broken = why == FSM_BUG ? "a BUG cell of the link that survives"
                            : "an honest peer violates what survives";
}
static const struct fsm_port link_port = {&weft__resume_machine, on_link_effect, on_link_fail};

static bool is_beside(uint8_t word) {
    return words_die && (word >> 4 == END || word >> 4 == DRAINED);
}
/* What is said while there is no connection goes by the next one. */
static void keep(unsigned from, uint8_t word) {
    struct resume *r = &now.side[from].link;
    if (is_beside(word)) {
        if (r->fsm.state == RESUME_STEADY) by_connection(from, word);
        return;
    }
    push(&now.side[from].log, word);
    if (r->fsm.state == RESUME_STEADY)
        weft__fsm_step(&r->fsm, RESUME_EV_SEND);
    else
        resume_count_sent(r);
}

/* False: it was no message of the link. */
static bool by_link(unsigned i, uint8_t word) {
    struct resume *r = &now.side[i].link;
    unsigned event = RESUME_EV_MESSAGE;
    if (is_beside(word)) return true;
    if (word >> 4 == RESUME) {
        now.side[i].cut = 0; /* the connection before is dropped */
        event = weft__resume_asked(r, now.side[!i].link.epoch, word & 15);
    }
    if (word >> 4 == RESUMED) event = weft__resume_answered(r, word & 15);
    weft__fsm_step(&r->fsm, event);
    return event == RESUME_EV_MESSAGE;
}

static bool cut(void) {
    if (!survives || now.faults == budget.faults) return false;
    now.faults++;
    for (unsigned i = 0; i < 2; i++) {
        memset(&now.way[i][0], 0, sizeof now.way[i][0]);
        now.side[i].cut = now.side[i].link.fsm.state != RESUME_ADRIFT;
    }
    return true;
}
static bool notice(unsigned i) {
    struct side *s = &now.side[i];
    if (!s->cut) return false;
    s->cut = 0;
    weft__fsm_step(&s->link.fsm,
                   s->link.fsm.state == RESUME_STEADY ? RESUME_EV_LOST : RESUME_EV_MISSED);
    return true;
}
static bool dial_again(void) {
    struct side *s = &now.side[0];
    unsigned state = s->link.fsm.state;
    if (state == RESUME_ADRIFT && s->due) {
        s->due = 0;
        /* what comes by the one before is dropped */
        memset(&now.way[0][0], 0, sizeof now.way[0][0]);
        memset(&now.way[1][0], 0, sizeof now.way[1][0]);
        weft__fsm_step(&s->link.fsm, RESUME_EV_DUE);
        return true;
    }
    if (state != RESUME_DIALING || s->cut) return false;
    weft__fsm_step(&s->link.fsm, RESUME_EV_LANE_UP);
    return true;
}

/* A liar receives nothing: it sends anything at any time. */
static void send_msg(unsigned from, unsigned lane, uint8_t word) {
    if (now.side[from].mute[lane] || is_hostile) return;
    if (survives && lane == 0)
        keep(from, word);
    else
        push(&now.way[!from][lane], word);
}

static void run(unsigned i);
static void step(unsigned i, unsigned event) {
    if (now.side[i].over) return;
    weft__switch_step(&now.side[i].core, event);
    run(i);
}

/* All lanes of a side that it knows of. */
static void leave(unsigned i, enum word last) {
    struct side *s = &now.side[i];
    if (s->over) return;
    weft__switch_step(&s->core, SWITCH_EV_CLOSE);
    for (unsigned lane = 0; lane < 2; lane++) {
        send_msg(i, lane, WORD(last, 0));
        s->mute[lane] = 1;
    }
    memset(&s->held, 0, sizeof s->held);
    s->over = 1;
    s->quiet = s->full = 0;
    todo[i] = 0;
}

static void received(unsigned i, unsigned lane, uint8_t word) {
    struct side *s = &now.side[i];
    unsigned value = word & 15;
    if (s->over) return;
    if (word >> 4 == DATA) {
        if (value != s->seen++) broken = "out of order";
    } else if (word >> 4 == END) {
        step(i, s->taking ? SWITCH_EV_END_WRONG
                          : weft__switch_end_event(&s->core, (uint8_t)lane, value));
    } else {
        step(i, weft__switch_drained_event(&s->core, value));
    }
}

static void take(unsigned i) {
    struct side *s = &now.side[i];
    s->taking = 1;
    while (s->held.n && !s->over) received(i, s->core.in, pop(&s->held));
    s->taking = 0;
    if (!s->over) send_msg(i, s->core.out, WORD(DRAINED, s->core.epoch_in));
}

static void part(unsigned i) {
    unsigned left = now.side[i].core.out ^ 1;
    if (!now.side[i].mute[left]) send_msg(i, left, WORD(BYE, 0));
    now.side[i].mute[left] = 1;
}

static void run(unsigned i) {
    struct side *s = &now.side[i];
    while (todo[i] && !s->over && !s->taking) {
        unsigned effect = (unsigned)__builtin_ctz(todo[i]);
        todo[i] &= todo[i] - 1;
        switch (effect) {
        case SWITCH_FX_TAKE: take(i); break;
        case SWITCH_FX_QUIESCE: s->quiet = 1; break;
        case SWITCH_FX_MARK: s->full = 1; break;
        case SWITCH_FX_RESUME: s->quiet = s->full = 0; break;
        case SWITCH_FX_MUTE: s->full = 0; break;
        case SWITCH_FX_PART: part(i); break;
        case SWITCH_FX_HANG_UP: /* the accepted link learns of it by its lane's death */
            send_msg(i, s->core.out ^ 1, WORD(RESET, 0));
            s->mute[s->core.out ^ 1] = 1;
            break;
        case SWITCH_FX_LOSE: leave(i, RESET); break;
        default: break;
        }
    }
}

static bool is_there(unsigned i, unsigned lane) {
    return !now.side[i].mute[lane];
}

/* ---- what may happen */

static unsigned state_of(unsigned i) {
    return now.side[i].core.fsm.state;
}

static void join(unsigned i) {
    struct side *s = &now.side[i];
    s->core.base = s->core.out;
    step(i, SWITCH_EV_JOINED);
}

/* A lane's end is received behind what it brought. */
static void lane_ends(unsigned i, unsigned lane, bool parted) {
    struct side *s = &now.side[i];
    if (s->mute[lane]) return;
    s->mute[lane] = 1;
    if (state_of(i) == SWITCH_DIALING && lane != s->core.out) {
        step(i, SWITCH_EV_FAILED);
        return;
    }
    if (state_of(i) == SWITCH_EXPECTING &&
        lane != s->core.out) { /* the accepted link came, or the negotiation gives up */
        step(i, parted ? SWITCH_EV_CANCEL : SWITCH_EV_FAILED);
        return;
    }
    step(i, weft__switch_loss_event(&s->core, (uint8_t)lane, parted));
}

static void comes(unsigned i, unsigned lane, uint8_t word) {
    struct side *s = &now.side[i];
    if (survives && lane == 0 && !by_link(i, word)) return;
    /* it does not listen there (any more) */
    if (s->mute[lane] || s->over || (is_hostile && i == 1)) return;
    if (word >> 4 == BYE || word >> 4 == RESET) {
        lane_ends(i, lane, word >> 4 == BYE);
    } else if (word >> 4 == HELLO) {
        if (state_of(i) == SWITCH_EXPECTING) send_msg(i, lane, WORD(HELLO, 0));
        if (state_of(i) == SWITCH_EXPECTING || state_of(i) == SWITCH_DIALING) join(i);
    } else if (lane != s->core.in || s->taking) {
        if (s->held.n == HELD)
            broken = "more is held than there can be";
        else
            s->held.at[s->held.n++] = word;
    } else {
        received(i, lane, word);
    }
}

/* Move number `move`: true when there is one, made from `now`. */
enum {
    DELIVER = 0,
    SEND = 4,
    QUIET = 6,
    ROOM = 8,
    PROMOTE = 10,
    BACK = 12,
    FAIL = 14,
    CANCEL = 16,
    CLOSE = 17, /* and 18: with goodbyes */
    LINK = 19,  /* that survives: 0 and 1 notice, 0 dials */
    LIE = 22,
    LIES = 14,
    MOVES = LIE + LIES
};

static bool can_move(unsigned i) {
    return !now.side[i].over && !(is_hostile && i == 1);
}

static bool is_alone(unsigned i) {
    return (is_hostile && i == 1) || (!now.side[i].over && state_of(i) == SWITCH_ALONE);
}

static bool promote(unsigned dialer) {
    unsigned accepted = !dialer, other = now.side[0].core.out ^ 1;
    if (now.moves == budget.moves || !is_alone(0) || !is_alone(1)) return false;
    if (!is_hostile && (now.side[1].core.out ^ 1) != other) return false;
    now.moves++;
    for (unsigned i = 0; i < 2; i++) /* what is left of the lane before is dropped */
        memset(&now.way[i][other], 0, sizeof now.way[i][other]);
    now.side[0].mute[other] = now.side[1].mute[other] = 0;
    if (!(is_hostile && accepted == 1)) step(accepted, SWITCH_EV_EXPECT);
    if (!(is_hostile && dialer == 1)) step(dialer, SWITCH_EV_DIAL);
    send_msg(dialer, other, WORD(HELLO, 0));
    return true;
}

static bool go_back(unsigned i) {
    const struct switch_core *c = &now.side[i].core;
    if (!can_move(i) || now.moves == budget.moves || state_of(i) != SWITCH_BESIDE ||
        c->out == c->base)
        return false;
    now.moves++;
    step(i, SWITCH_EV_MOVE);
    return true;
}

/* What it had on its way is gone; both learn of it. */
static bool fail(unsigned lane) {
    if (survives) return lane == 0 && cut();
    bool there = is_there(0, lane) || (!is_hostile && is_there(1, lane));
    if (now.faults == budget.faults || !there) return false;
    now.faults++;
    for (unsigned i = 0; i < 2; i++) {
        memset(&now.way[i][lane], 0, sizeof now.way[i][lane]);
        if (!is_hostile || i == 0) push(&now.way[i][lane], WORD(RESET, 0));
    }
    return true;
}

/* The negotiation may change its mind at any time; too late it has no effect. */
static bool cancel(void) {
    unsigned state = state_of(0), other = now.side[0].core.out ^ 1;
    bool late = state != SWITCH_EXPECTING && state != SWITCH_DIALING;
    if (!can_move(0) || (!late && now.faults == budget.faults)) return false;
    step(0, SWITCH_EV_CANCEL);
    if (late) return false;
    now.faults++;
    if (!now.side[0].mute[other]) send_msg(0, other, WORD(RESET, 0));
    now.side[0].mute[other] = 1;
    return true;
}

static bool lie(unsigned n) {
    const struct switch_core *c = &now.side[0].core;
    const uint8_t sent[LIES / 2] = {WORD(END, c->epoch_in + 1),
                                    WORD(END, c->epoch_in + 2),
                                    WORD(DRAINED, c->epoch_out),
                                    WORD(DRAINED, c->epoch_out + 1),
                                    WORD(HELLO, 0),
                                    WORD(BYE, 0),
                                    WORD(RESET, 0)};
    unsigned lane = n % 2;
    if (!is_hostile || now.lies == budget.lies || now.side[0].over || !is_there(0, lane))
        return false;
    now.lies++;
    comes(0, lane, sent[n / 2]);
    return true;
}

static bool move(unsigned n) {
    unsigned i = n % 2;
    struct side *s = &now.side[i];
    if (n < SEND) {
        if (now.way[n / 2][i].n == 0) return false;
        comes(n / 2, i, pop(&now.way[n / 2][i]));
    } else if (n < QUIET) {
        if (!can_move(i) || s->sent == budget.data || s->full || state_of(i) == SWITCH_LEFT)
            return false;
        send_msg(i, s->core.out, WORD(DATA, s->sent++));
    } else if (n < ROOM) {
        if (!can_move(i) || s->quiet != 1) return false;
        s->quiet = 0;
        step(i, SWITCH_EV_QUIET);
    } else if (n < PROMOTE) {
        if (!can_move(i) || !s->full) return false;
        s->full = 0;
        send_msg(i, s->core.out, WORD(END, s->core.epoch_out + 1));
        step(i, SWITCH_EV_MARKED);
    } else if (n < BACK) {
        return promote(i);
    } else if (n < FAIL) {
        return go_back(i);
    } else if (n < CANCEL) {
        return fail(i);
    } else if (n == CANCEL) {
        return cancel();
    } else if (n >= LINK && n < LIE) {
        return survives && (n == LINK + 2 ? dial_again() : notice(n - LINK));
    } else if (n < LIE) {
        if (!can_move(0) || now.closes == budget.closes) return false;
        now.closes++;
        now.flushed = n != CLOSE;
        leave(0, n == CLOSE ? RESET : BYE);
    } else {
        return lie(n - LIE);
    }
    return true;
}

/* ---- what must hold at rest */

static const char *rest(void) {
    const struct side *a = &now.side[0], *b = &now.side[1];
    if (is_hostile) return NULL;
    if (a->over != b->over) return "one side lost the link, and the other did not";
    if (survives && (a->link.fsm.state != RESUME_STEADY || b->link.fsm.state != RESUME_STEADY))
        return "no connection, and none is dialed";
    if (now.flushed && (!now.faults || survives) && b->seen != a->sent)
        return "what was sent before a close was lost";
    if (a->over) return NULL;
    if (a->core.fsm.state != b->core.fsm.state) return "they rest in different states";
    if (a->core.fsm.state != SWITCH_ALONE && a->core.fsm.state != SWITCH_BESIDE)
        return "a switch never ends";
    if (a->core.epoch_in != a->core.epoch_out || a->core.epoch_in != b->core.epoch_in)
        return "they are not in one epoch";
    if (a->held.n || b->held.n) return "something is held for good";
    if (a->seen != b->sent || b->seen != a->sent) return "something was lost";
    return NULL;
}

/* ---- breadth first: of a state that was visited a fingerprint is kept, of the front all */

enum { MOST = 1 << 24, SLOTS = 2 * MOST };
struct front {
    struct world *at;
    uint32_t n, room;
};
static uint64_t *visited;
static uint32_t *parent;
static uint8_t *by;
static uint32_t n_states;

/* Both halves of the product, so that each bit of either word reaches all of the result. */
static uint64_t mixed(uint64_t h, uint64_t word) {
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)(h ^ UINT64_C(0x9e3779b97f4a7c15)) * (word ^ UINT64_C(0xd6e8feb86659fd93));
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}
/* Two words at a time are mixed with each other, and their sum with what was before: the products
 * of many pairs are under way at once. */
static uint64_t fingerprint(const void *p, size_t len) {
    const char *at = p;
    uint64_t h = len, pair[2];
    for (size_t i = 0; i < len; i += sizeof pair) {
        memcpy(pair, at + i, sizeof pair);
        h = (h << 7 | h >> 57) + mixed(pair[0] + i, pair[1]);
    }
    h = mixed(h, h >> 32);
    return h ? h : 1;
}
_Static_assert(sizeof(struct world) % (2 * sizeof(uint64_t)) == 0, "read by pairs of words");

/* State that is never read again makes no difference. */
static void forget(void) {
    for (unsigned i = 0; i < 2; i++) {
        struct side *s = &now.side[i];
        for (unsigned lane = 0; lane < 2; lane++)
            if (s->mute[lane] && !(survives && lane == 0))
                memset(&now.way[i][lane], 0, sizeof now.way[i][lane]);
        if (!s->over) continue;
        s->core.epoch_out = s->core.epoch_in = 0;
        s->core.out = s->core.in = s->core.base = 0;
        if (!now.flushed) s->seen = s->sent = 0;
        s->core.lost = false;
    }
}

static void add(struct front *next, uint32_t from, unsigned how) {
    forget();
    uint64_t print = fingerprint(&now, sizeof now), at = print % SLOTS;
    while (visited[at] && visited[at] != print) at = (at + 1) % SLOTS;
    if (visited[at] || n_states == MOST) return;
    visited[at] = print;
    parent[n_states] = from;
    by[n_states++] = (uint8_t)how;
    if (next->n == next->room) {
        next->room = next->room ? 2 * next->room : 1024;
        next->at = realloc(next->at, next->room * sizeof *next->at);
    }
    next->at[next->n++] = now;
}

static void print_way(uint32_t at, unsigned last) {
    static const char *const name[] = {
        "a<0",      "a<1",     "b<0",    "b<1",      "a:send",   "b:send",  "a:quiet", "b:quiet",
        "a:room",   "b:room",  "a:dial", "b:dial",   "a:back",   "b:back",  "fail 0",  "fail 1",
        "a:cancel", "a:close", "a:bye",  "a:notice", "b:notice", "a:redial"};
    unsigned way[200], n = 0;
    for (way[n++] = last; at && n < 200; at = parent[at]) way[n++] = by[at];
    printf("  %s:", broken);
    while (n--)
        printf(way[n] < LIE ? " %s" : " lie%.0s%u", way[n] < LIE ? name[way[n]] : "", way[n]);
    printf("\n");
}

static unsigned rests;
/* All that may follow upon one. */
static void visit(const struct world *world, uint32_t number, struct front *next) {
    unsigned made = 0;
    for (unsigned m = 0; m < MOVES && !broken; m++) {
        now = *world;
        todo[0] = todo[1] = 0;
        if (!move(m)) continue;
        made++;
        if (bug) broken = "a BUG cell";
        if (broken)
            print_way(number, m);
        else
            add(next, number, m);
    }
    now = *world;
    if (made || broken) return;
    rests++;
    broken = rest();
    if (broken) print_way(number, LIE);
}

static bool explored(const char *what, struct budget most) {
    struct front front = {0}, next = {0};
    visited = calloc(SLOTS, sizeof *visited);
    parent = malloc(sizeof *parent * MOST);
    by = malloc(MOST);
    n_states = rests = 0;
    bug = false;
    broken = NULL;
    budget = most;
    memset(&now, 0, sizeof now);
    for (unsigned i = 0; i < 2; i++) {
        weft__switch_init(&now.side[i].core, &port, i);
        fsm_init(&now.side[i].link.fsm, &link_port, RESUME_STEADY, i);
        now.side[i].mute[1] = 1;
    }
    add(&next, 0, 0);
    for (uint32_t number = 0; next.n && !broken;) {
        struct front done = front;
        front = next;
        next = (struct front){.at = done.at, .room = done.room};
        for (uint32_t i = 0; i < front.n && !broken; i++) visit(&front.at[i], number++, &next);
    }
    printf("  %s: %u states, %u of rest%s\n", what, n_states, rests,
           n_states == MOST ? ", not all" : "");
    bool ok = !broken && n_states < MOST;
    free(visited);
    free(parent);
    free(by);
    free(front.at);
    free(next.at);
    return ok;
}

TEST(both_directions_move_there_and_back_and_there) {
    weft__fsm_coverage(true);
    is_hostile = false;
    CHECK(explored("3 messages each way, 3 switches", (struct budget){.data = 3, .moves = 3}));
}

TEST(lanes_die_and_links_close_at_any_moment) {
    weft__fsm_coverage(true);
    is_hostile = false;
    CHECK(explored("3 messages each way, 3 switches, 2 faults, a close",
                   (struct budget){.data = 3, .moves = 3, .faults = 2, .closes = 1}));
}

static bool survived(const char *what, struct budget most) {
    weft__fsm_coverage(true);
    is_hostile = false;
    survives = true;
    bool ok = explored(what, most);
    survives = false;
    return ok;
}
TEST(connections_under_a_lane_that_survives_die_at_any_moment) {
    CHECK(survived("2 messages each way, 2 switches, 2 connections lost",
                   (struct budget){.data = 2, .moves = 2, .faults = 2}));
    CHECK(survived("2 messages each way, 2 switches, a connection lost, a close",
                   (struct budget){.data = 2, .moves = 2, .faults = 1, .closes = 1}));
}
TEST(words_that_die_with_their_connection_are_found) {
    words_die = true;
    bool ok =
        survived("words of their connection", (struct budget){.data = 1, .moves = 1, .faults = 1});
    words_die = false;
    CHECK(!ok);
}

TEST(a_hostile_peer_sends_anything) {
    weft__fsm_coverage(true);
    is_hostile = true;
    CHECK(explored("a hostile peer, 6 lies",
                   (struct budget){.data = 1, .moves = 2, .faults = 1, .closes = 1, .lies = 6}));
}

TEST(nothing_is_done_after_the_end) {
    for (unsigned event = SWITCH_EV_END; event < SWITCH_N_EVENTS; event++) {
        if (event >= SWITCH_EV_DONE_AWAY && event <= SWITCH_EV_OUT_CLOSED) continue;
        weft__switch_init(&now.side[0].core, &port, 0);
        weft__switch_step(&now.side[0].core, SWITCH_EV_CLOSE);
        weft__switch_step(&now.side[0].core, event);
        weft__switch_step(&now.side[0].core, SWITCH_EV_CANCEL);
        CHECK_EQ(now.side[0].core.fsm.state, SWITCH_OVER);
        CHECK_EQ(todo[0], 0);
    }
}

TEST(the_explored_table_is_the_shipped_one) {
    CHECK(links_shipped("switch", "switch_machine.c"));
}

/* After the explorations above. */
TEST(every_other_cell_is_reached_or_has_a_reason) {
    CHECK_EQ(explore_unreached(&weft__switch_machine, stdout), 0);
    CHECK_EQ(explore_unreached(&weft__switch_out_machine, stdout), 0);
    CHECK_EQ(explore_unreached(&weft__switch_in_machine, stdout), 0);
}
