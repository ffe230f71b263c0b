/* The table's actions: plain data only. */
#include "exchange.h"
#include <assert.h>
#include <stddef.h>

static void exchange_invariants(const struct fsm *m) {
    const struct exchange *x = (const struct exchange *)m;
    assert((x->fsm.state == EXCHANGE_GATHER) == (x->awaited != 0));
    assert(x->awaited == 0 || x->awaited == x->round);
    assert(x->fsm.state != EXCHANGE_BROKEN || x->status < 0);
    (void)x;
}

#define FSM_NAME       exchange
#define FSM_PREFIX     EXCHANGE
#define FSM_INVARIANTS exchange_invariants
#include <fsm/define.h>

static void exchange_act_begin(struct fsm *m) {
    struct exchange *x = (struct exchange *)m;
    x->awaited = ++x->round;
    x->status = WEFT_ERR_PEER_FAILED; /* what a loss means, unless the port knows better */
    fsm_effect(m, EXCHANGE_FX_SEND);
}

static void exchange_act_busy(struct fsm *m) {
    fsm_effect(m, EXCHANGE_FX_REFUSE);
}

static void exchange_act_refuse(struct fsm *m) {
    fsm_effect(m, EXCHANGE_FX_REFUSE);
}

static void exchange_act_finish(struct fsm *m) {
    struct exchange *x = (struct exchange *)m;
    x->awaited = 0;
    x->status = WEFT_OK;
    fsm_effect(m, EXCHANGE_FX_DETACH);
    fsm_effect(m, EXCHANGE_FX_DONE);
}

/* The port has put the reason into `status`. */
static void exchange_act_deny(struct fsm *m) {
    ((struct exchange *)m)->awaited = 0;
    fsm_effect(m, EXCHANGE_FX_DETACH);
    fsm_effect(m, EXCHANGE_FX_DONE);
}

static void exchange_act_forget(struct fsm *m) {
    ((struct exchange *)m)->awaited = 0;
    fsm_effect(m, EXCHANGE_FX_DETACH);
}

static void exchange_act_lose(struct fsm *m) {
    ((struct exchange *)m)->awaited = 0;
    fsm_effect(m, EXCHANGE_FX_DETACH);
    fsm_effect(m, EXCHANGE_FX_HANG_UP);
    fsm_effect(m, EXCHANGE_FX_DONE);
}

enum exchange_event weft__exchange_classify(const struct exchange *x, uint32_t round, bool denied,
                                            bool right_length) {
    if (round == 0 || round > x->round) return EXCHANGE_EV_STRANGE;
    if (round != x->awaited) return EXCHANGE_EV_LATE;
    if (!right_length) return EXCHANGE_EV_STRANGE;
    return denied ? EXCHANGE_EV_DENIED : EXCHANGE_EV_ANSWER;
}
