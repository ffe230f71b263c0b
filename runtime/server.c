/* The server of the exchange: reads frames of each rank, gathers rounds, and answers them. */
#include "server.h"
#include "answer.h"
#include "round.h"
#include <reactor/reactor.h>
#include <string.h>
#include <sys/types.h>

/* Who cancels a round may run ahead of the others, but not for ever. */
enum { MAX_OPEN = 16, REFUSAL = 4 };

struct rank {
    uint32_t next; /* the round that it joins next */
    bool gone;
    /* The frame that is coming in. */
    uint8_t header[RUN_HEADER];
    size_t have; /* of header and payload together */
    struct run_frame frame;
    uint8_t *payload;
};

/* A round with what was contributed so far. */
struct gather {
    struct round round;
    struct gather *next; /* by number */
    struct run_server *server;
    uint32_t number, len;
    struct run_answer *all; /* its payload: size × len */
    uint32_t joiner;        /* whose contribution is being delivered */
};

struct run_server {
    uint32_t size, n_gone;
    unsigned n_open;
    run_send_fn send;
    void *arg;
    struct gather *rounds;
    struct rank ranks[];
};

/* ---- answers --------------------------------------------------------------------------------- */

static bool has_joined(const struct gather *g, uint32_t rank) {
    return g->server->ranks[rank].next > g->number;
}

static void send_answer(struct gather *g, uint32_t rank, struct run_answer *answer) {
    struct run_server *s = g->server;
    if (!s->ranks[rank].gone) s->send(s->arg, rank, answer);
}

static void answer_all(struct gather *g) {
    g->all = weft__run_answer_finish(g->all, RUN_ALL, g->number, (size_t)g->len * g->server->size);
    for (uint32_t i = 0; i < g->server->size; i++) send_answer(g, i, g->all);
}

/* In place of what has come, which is not sent any more. */
static void make_refusal(struct gather *g) {
    uint32_t why = (uint32_t)g->round.why;
    g->all = weft__run_answer_finish(g->all, RUN_DENIED, g->number, REFUSAL);
    for (int i = 0; i < REFUSAL; i++) weft__run_answer_payload(g->all)[i] = (uint8_t)(why >> 8 * i);
}

static void on_effect(struct fsm *m, unsigned what) {
    struct gather *g = (struct gather *)m;
    struct run_server *s = g->server;
    switch (what) {
    case ROUND_FX_KEEP:
        memcpy(weft__run_answer_payload(g->all) + (size_t)g->joiner * g->len,
               s->ranks[g->joiner].payload, g->len);
        break;
    case ROUND_FX_ANSWER: answer_all(g); break;
    case ROUND_FX_REFUSE_ALL:
        make_refusal(g);
        for (uint32_t i = 0; i < s->size; i++)
            if (has_joined(g, i)) send_answer(g, i, g->all);
        break;
    case ROUND_FX_REFUSE_ONE: send_answer(g, g->joiner, g->all); break;
    default: break;
    }
}

/* Only an answered round would say so, and it is forgotten at once. */
static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    (void)event;
    (void)why;
    ((struct gather *)m)->round.why = WEFT_ERR_INTERNAL;
}

static const struct fsm_port port = {&weft__round_machine, on_effect, on_fail};

/* ---- rounds ---------------------------------------------------------------------------------- */

static bool is_over(const struct gather *g) {
    if (round_is_answered(&g->round.fsm)) return true;
    if (round_is_collecting(&g->round.fsm)) return false;
    for (uint32_t i = 0; i < g->server->size; i++)
        if (!has_joined(g, i) && !g->server->ranks[i].gone) return false;
    return true;
}

static void forget_those_over(struct run_server *s) {
    for (struct gather **at = &s->rounds; *at;) {
        struct gather *g = *at;
        if (!is_over(g)) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        s->n_open--;
        weft__run_answer_release(g->all);
        talloc_free(g);
    }
}

static bool someone_is_missing_for_good(const struct gather *g) {
    for (uint32_t i = 0; i < g->server->size; i++)
        if (g->server->ranks[i].gone && !has_joined(g, i)) return true;
    return false;
}

static struct gather *find_round(struct run_server *s, uint32_t number) {
    struct gather *g = s->rounds;
    while (g && g->number != number) g = g->next;
    return g;
}

/* Of its answer, or its refusal. */
static size_t room_of(uint32_t len, uint32_t size) {
    size_t all = (size_t)len * size;
    return all > REFUSAL ? all : REFUSAL;
}

static weft_status_t open_round(struct run_server *s, uint32_t number, uint32_t len,
                                struct gather **round_p) {
    if (s->n_open == MAX_OPEN) return WEFT_ERR_QUOTA;
    if ((size_t)len * s->size > RUN_MAX_PAYLOAD) return WEFT_ERR_TOO_BIG;
    struct gather *g = weft__new(s, struct gather);
    if (!g) return WEFT_ERR_NO_MEMORY;
    g->all = weft__run_answer_new(s, room_of(len, s->size));
    if (!g->all) {
        talloc_free(g);
        return WEFT_ERR_NO_MEMORY;
    }
    fsm_init(&g->round.fsm, &port, ROUND_COLLECT, number);
    g->server = s;
    g->number = number;
    g->len = len;
    g->next = s->rounds;
    s->rounds = g;
    s->n_open++;
    if (s->n_gone > 0 && someone_is_missing_for_good(g))
        weft__fsm_step(&g->round.fsm, ROUND_EV_GONE);
    *round_p = g;
    return WEFT_OK;
}

/* A whole contribution is here. */
static weft_status_t contribute(struct run_server *s, uint32_t rank) {
    struct rank *from = &s->ranks[rank];
    const struct run_frame *frame = &from->frame;
    if (frame->round != from->next) return WEFT_ERR_PROTOCOL;
    struct gather *g = find_round(s, frame->round);
    weft_status_t st = g ? WEFT_OK : open_round(s, frame->round, frame->len, &g);
    if (st < 0) return st;

    g->joiner = rank;
    bool last = g->round.n_joined + 1 == s->size;
    weft__fsm_step(&g->round.fsm, frame->len != g->len ? ROUND_EV_ODD
                                  : last               ? ROUND_EV_LAST
                                                       : ROUND_EV_JOIN);
    from->next++;
    forget_those_over(s);
    return WEFT_OK;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static weft_status_t took_header(struct run_server *s, struct rank *from) {
    size_t have = from->have < RUN_HEADER ? from->have : RUN_HEADER;
    weft_status_t st = weft__run_decode(from->header, have, &from->frame);
    if (st != WEFT_OK) return st;
    if (from->frame.type != RUN_GATHER) return WEFT_ERR_PROTOCOL;
    from->payload = weft__alloc(s, from->frame.len + 1, "contribution");
    return from->payload ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

/* Takes what belongs to the frame at hand; returns how much that was, or an error. */
static ssize_t take_bytes(struct run_server *s, struct rank *from, const uint8_t *data,
                          size_t len) {
    bool header = from->have < RUN_HEADER;
    size_t end = header ? RUN_HEADER : RUN_HEADER + from->frame.len;
    size_t n = len < end - from->have ? len : end - from->have;
    memcpy(header ? from->header + from->have : from->payload + from->have - RUN_HEADER, data, n);
    from->have += n;
    weft_status_t st = header ? took_header(s, from) : WEFT_OK;
    return st < 0 ? (ssize_t)st : (ssize_t)n;
}

static weft_status_t finish_frame(struct run_server *s, uint32_t rank) {
    struct rank *from = &s->ranks[rank];
    if (from->have < RUN_HEADER || from->have < RUN_HEADER + from->frame.len) return WEFT_OK;
    weft_status_t st = contribute(s, rank);
    talloc_free(from->payload);
    from->payload = NULL;
    from->have = 0;
    return st;
}

weft_status_t weft__run_server_bytes(struct run_server *s, uint32_t rank, const void *data,
                                     size_t len) {
    struct rank *from = &s->ranks[rank];
    const uint8_t *at = data;
    while (len > 0 && !from->gone) {
        ssize_t n = take_bytes(s, from, at, len);
        if (n < 0) return (weft_status_t)n;
        weft_status_t st = finish_frame(s, rank);
        if (st < 0) return st;
        at += n;
        len -= (size_t)n;
    }
    return WEFT_OK;
}

void weft__run_server_gone(struct run_server *s, uint32_t rank) {
    struct rank *who = &s->ranks[rank];
    if (who->gone) return;
    who->gone = true;
    s->n_gone++;
    talloc_free(who->payload);
    who->payload = NULL;
    for (struct gather *g = s->rounds; g; g = g->next)
        if (!has_joined(g, rank)) weft__fsm_step(&g->round.fsm, ROUND_EV_GONE);
    forget_those_over(s);
}

bool weft__run_server_is_gone(const struct run_server *s, uint32_t rank) {
    return s->ranks[rank].gone;
}

unsigned weft__run_server_open(const struct run_server *s) {
    return s->n_open;
}

struct run_server *weft__run_server_create(const void *parent, uint32_t size, run_send_fn send,
                                           void *arg) {
    struct run_server *s =
        weft__alloc(parent, sizeof *s + size * sizeof s->ranks[0], "struct run_server");
    if (!s) return NULL;
    s->size = size;
    s->send = send;
    s->arg = arg;
    for (uint32_t i = 0; i < size; i++) s->ranks[i].next = 1;
    return s;
}
