/* The actions of resume.fsm, and the events that a peer's counts stand for: plain data only. */
#include "resume.h"

#include <assert.h>

static void resume_invariants(const struct fsm *m) {
    const struct resume *r = (const struct resume *)m;
    assert(r->acked <= r->sent);
    assert(r->trying == (m->state == RESUME_DIALING || m->state == RESUME_HANDSHAKE));
    (void)r;
}

#define FSM_NAME       resume
#define FSM_PREFIX     RESUME
#define FSM_INVARIANTS resume_invariants
#include <fsm/define.h>

static struct resume *of(struct fsm *m) {
    return (struct resume *)m;
}

enum resume_event weft__resume_asked(struct resume *r, uint32_t epoch, uint64_t count) {
    if (epoch <= r->epoch) return RESUME_EV_STALE;
    r->claim = count;
    if (!resume_can_be(r, count)) return RESUME_EV_FALSE;
    r->epoch = epoch;
    return RESUME_EV_RESUME;
}

enum resume_event weft__resume_answered(struct resume *r, uint64_t count) {
    r->claim = count;
    return resume_can_be(r, count) ? RESUME_EV_RESUMED : RESUME_EV_FALSE;
}

enum resume_event weft__resume_closed(const struct resume *r) {
    return r->untried && r->delivered == r->brought ? RESUME_EV_LOST : RESUME_EV_GIVE_UP;
}

enum resume_event weft__resume_acked(struct resume *r, uint64_t count) {
    r->claim = count;
    r->untried = false;
    return resume_can_be(r, count) ? RESUME_EV_ACK : RESUME_EV_FALSE;
}

static void resume_act_send(struct fsm *m) {
    of(m)->out = of(m)->sent;
    resume_count_sent(of(m));
    fsm_effect(m, RESUME_FX_TRANSMIT);
    of(m)->out = 0;
}
static void resume_act_deliver(struct fsm *m) {
    resume_count_delivered(of(m));
}
static void resume_act_release(struct fsm *m) {
    of(m)->acked = of(m)->claim;
    of(m)->claim = 0;
    fsm_effect(m, RESUME_FX_RELEASE);
}

static void resume_act_drift(struct fsm *m) {
    fsm_effect(m, RESUME_FX_DROP_LANE);
    fsm_effect(m, RESUME_FX_ARM);
    fsm_effect(m, RESUME_FX_AGAIN);
}
static void resume_act_dial(struct fsm *m) {
    of(m)->epoch++;
    of(m)->trying = true;
    fsm_effect(m, RESUME_FX_DIAL);
}
static void resume_act_handshake(struct fsm *m) {
    fsm_effect(m, RESUME_FX_SEND_RESUME);
}
static void drop_try(struct fsm *m) {
    of(m)->trying = false;
    fsm_effect(m, RESUME_FX_DROP_TRY);
}
static void resume_act_miss(struct fsm *m) {
    drop_try(m);
    fsm_effect(m, RESUME_FX_AGAIN);
}

/* What the peer has is forgotten first; then all the rest goes again, before anything new. */
static void go_on(struct fsm *m) {
    struct resume *r = of(m);
    fsm_effect(m, RESUME_FX_DISARM);
    resume_act_release(m);
    for (uint64_t n = r->acked; n != r->sent; n++) {
        r->out = n;
        fsm_effect(m, RESUME_FX_RESEND);
    }
    r->out = 0;
}
static void take_resume_machine(struct fsm *m) {
    of(m)->trying = true;
    fsm_effect(m, RESUME_FX_TAKE);
}
static void adopt_resume_machine(struct fsm *m, bool untried) {
    of(m)->trying = false;
    of(m)->untried = untried;
    of(m)->brought = untried ? of(m)->delivered : 0;
    fsm_effect(m, RESUME_FX_ADOPT);
}
static void resume_act_welcome(struct fsm *m) {
    take_resume_machine(m);
    adopt_resume_machine(m, true);
    fsm_effect(m, RESUME_FX_SEND_RESUMED);
    go_on(m);
}
static void resume_act_replace(struct fsm *m) {
    fsm_effect(m, RESUME_FX_DROP_LANE);
    resume_act_welcome(m);
}
static void resume_act_adopt(struct fsm *m) {
    adopt_resume_machine(m, false);
    fsm_effect(m, RESUME_FX_CONFIRM);
    go_on(m);
}

static void resume_act_end(struct fsm *m) {
    fsm_effect(m, RESUME_FX_DISARM);
    fsm_effect(m, RESUME_FX_FAIL);
}
static void resume_act_part(struct fsm *m) {
    drop_try(m);
    resume_act_end(m);
}
