/* The table's actions: plain data only. */
#include "round.h"
#include <assert.h>

static void round_invariants(const struct fsm *m) {
    const struct round *r = (const struct round *)m;
    assert((r->fsm.state == ROUND_REFUSED) == (r->why < 0));
    assert(r->fsm.state != ROUND_ANSWERED || r->n_joined > 0);
    (void)r;
}

#define FSM_NAME       round
#define FSM_PREFIX     ROUND
#define FSM_INVARIANTS round_invariants
#include <fsm/define.h>

static void round_act_keep(struct fsm *m) {
    ((struct round *)m)->n_joined++;
    fsm_effect(m, ROUND_FX_KEEP);
}

static void round_act_answer(struct fsm *m) {
    ((struct round *)m)->n_joined++;
    fsm_effect(m, ROUND_FX_KEEP);
    fsm_effect(m, ROUND_FX_ANSWER);
}

/* Those who joined are notified; a later joiner is notified then. */
static void round_act_odd(struct fsm *m) {
    ((struct round *)m)->why = WEFT_ERR_INVALID_PARAM;
    fsm_effect(m, ROUND_FX_REFUSE_ALL);
    fsm_effect(m, ROUND_FX_REFUSE_ONE);
}

static void round_act_gone(struct fsm *m) {
    ((struct round *)m)->why = WEFT_ERR_PEER_FAILED;
    fsm_effect(m, ROUND_FX_REFUSE_ALL);
}

static void round_act_too_late(struct fsm *m) {
    fsm_effect(m, ROUND_FX_REFUSE_ONE);
}
