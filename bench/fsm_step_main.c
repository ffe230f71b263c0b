/*
 * fsm-step: what one step of a machine costs, in ns: the median over rounds of a step whose action
 * counts, with a trace (as a worker keeps it) and without. A dependent chain: each step needs the
 * state that the one before left.
 */
#include "cores.h"
#include <fsm/fsm.h>

#define PING_STATES(S)           S(A) S(B) S(C) S(D)
#define PING_EVENTS(LOCAL, PEER) LOCAL(GO) PEER(BACK)
#define PING_EFFECTS(F)          F(NOTIFY)
#define PING_ACTIONS(X)          X(count)
/* clang-format off */
#define PING_TABLE(COLS, ROW) \
COLS(     A,            B,            C,            D)           \
ROW(GO,   DO(count, B), DO(count, C), DO(count, D), DO(count, A)) \
ROW(BACK, DO(count, D), DO(count, A), DO(count, B), DO(count, C))
/* clang-format on */
#define PING_DEAD(D)
#define FSM_NAME   ping
#define FSM_PREFIX PING
#include <fsm/declare.h>

struct ping {
    struct fsm fsm;
    unsigned long count;
};

#define FSM_NAME   ping
#define FSM_PREFIX PING
#include <fsm/define.h>

static void ping_act_count(struct fsm *m) {
    ((struct ping *)m)->count++;
}
static void on_effect(struct fsm *m, unsigned effect) {}
static void on_fail(struct fsm *m, unsigned event, enum fsm_verb why) {
    abort();
}
static const struct fsm_port port = {&weft__ping_machine, on_effect, on_fail};

enum { ROUNDS = 101, STEPS = 20000 };

static double median_step(void) {
    static double round[ROUNDS];
    static uint8_t event[STEPS];
    struct ping p = {.count = 0};
    fsm_init(&p.fsm, &port, PING_A, 1);
    for (unsigned i = 0; i < STEPS; i++) event[i] = (i * 2654435761u >> 20) & 1;
    for (unsigned r = 0; r < ROUNDS; r++) {
        double before = now_ns();
        for (unsigned i = 0; i < STEPS; i++) weft__fsm_step(&p.fsm, event[i]);
        round[r] = (now_ns() - before) / STEPS;
    }
    if (p.count != (unsigned long)ROUNDS * STEPS) abort();
    sort_figures(round, ROUNDS);
    return round[ROUNDS / 2];
}

int main(void) {
    static struct fsm_trace trace;
    fsm_trace_use(NULL);
    double bare = median_step();
    fsm_trace_use(&trace);
    double traced = median_step();
    printf("{\"test\": \"fsm_step\", \"ns\": %.2f, \"ns_traced\": %.2f}\n", bare, traced);
    return 0;
}
