#include "usage_worker.h"

#include "link.h"
#include "live.h"
#include "worker.h"

/* ---- ticks: only while they may change anything, so that an idle worker sleeps on */

/* Without memory for it there is another try with the next touch. */
static void expect_tick(struct tracking *t) {
    if (weft__timer_running(&t->tick)) return;
    (void)weft__timer_start(t->worker->reactor, &t->tick, weft__usage_due(t->usage));
}

static uint32_t advance(uint32_t *seen, uint64_t now) {
    uint32_t by = (uint32_t)now - *seen;
    *seen = (uint32_t)now;
    return by;
}

/* A lane may work on without telling for long; and what comes in is told by nobody. */
static void look_at_all(struct tracking *t) {
    struct link *link;
    for (uint32_t at = 0; (link = weft__usage_next(t->usage, &at)) != NULL;) {
        uint64_t messages = advance(&link->used_sent, link->sent);
        messages += advance(&link->used_received, link->received);
        if (messages) weft__usage_touch(t->usage, link, messages, 0);
    }
}

static void tick(struct timer *timer) {
    struct tracking *t = list_of(timer, struct tracking, tick);
    if (t->worker->core.fsm.state != WORKER_OPEN) return;
    look_at_all(t);
    if (weft__usage_tick(t->usage, weft__now(t->worker->reactor))) expect_tick(t);
    weft__live_scores(t->worker);
}

/* Not within the send that told of it. */
static void early(struct job *job) {
    struct tracking *t = list_of(job, struct tracking, early);
    if (t->worker->core.fsm.state == WORKER_OPEN) weft__usage_early(t->usage);
}

/* ---- touches */

/* Of a link that was not noted, what came in since who knows when does not count. */
static void worked(struct lane *lane, uint64_t bytes) {
    struct link *link = lane->owner;
    if (!link) return;
    if (link->more->main) link = link->more->main; /* a rail */
    struct tracking *t = link->worker->tracking;
    if (!weft__usage_noted(t->usage, link)) link->used_received = (uint32_t)link->received;
    uint64_t messages = advance(&link->used_sent, link->sent);
    enum usage_need need = weft__usage_touch(t->usage, link, messages, bytes);
    if (need != USAGE_NOTHING) expect_tick(t);
    if (need == USAGE_EARLY) weft__job_post(t->worker->reactor, &t->early);
}

void weft__tracking_wake(struct weft_worker *worker) {
    if (worker->tracking) expect_tick(worker->tracking);
}

void weft__tracking_forget(struct link *link) {
    struct tracking *t = link->worker->tracking;
    if (t) weft__usage_forget(t->usage, link);
}

/* ---- hooks: a link that is not up is nobody's matter */

static bool eligible(void *key, void *arg) {
    const struct tracking *t = arg;
    const struct link *link = key;
    if (link->core.fsm.state != LINK_UP) return false;
    return !t->hooks.eligible || t->hooks.eligible(key, t->hooks.arg);
}

static bool promote(void *key, uint64_t score, void *arg) {
    const struct tracking *t = arg;
    return t->hooks.promote && t->hooks.promote(key, score, t->hooks.arg);
}

static void demote(void *key, uint64_t score, void *arg) {
    const struct tracking *t = arg;
    const struct link *link = key;
    if (t->hooks.demote && link->core.fsm.state == LINK_UP) t->hooks.demote(key, score, t->hooks.arg);
}

void weft__tracking_hook(struct weft_worker *worker, const struct usage_hooks *hooks) {
    if (worker->tracking) worker->tracking->hooks = *hooks;
}

/* ---- life */

weft_status_t weft__tracking_open(struct weft_worker *worker, const struct iface_up *up) {
    if (!weft__setting_u64(worker->context, SETTING_LANES_SWITCH)) return WEFT_OK;
    struct tracking *t = worker->tracking = weft__new(worker, struct tracking);
    if (!t) return WEFT_ERR_NO_MEMORY;
    t->worker = worker;
    t->tick.fire = tick;
    t->early.run = early;
    t->up = *up;
    t->up.worked = worked;
    return WEFT_OK;
}

static uint32_t small(uint64_t value) {
    return value < UINT32_MAX ? (uint32_t)value : UINT32_MAX;
}

/* Of a worker whose transports have no scarce lanes, so many as if they had. */
static uint32_t capacity(const struct weft_worker *worker) {
    uint64_t set = weft__setting_u64(worker->context, SETTING_LANES_CAPACITY), scarce = 0;
    if (set != SETTING_AUTO) return small(set);
    for (uint32_t i = 0; i < worker->n_ifaces; i++) scarce += worker->iface[i]->attr.scarce;
    return scarce ? small(scarce) : 64;
}

weft_status_t weft__tracking_start(struct weft_worker *worker) {
    struct tracking *t = worker->tracking;
    const weft_context_t *context = worker->context;
    if (!t) return WEFT_OK;
    struct usage_params params = {
        .tick = weft__setting_u64(context, SETTING_LANES_TICK) * NS_PER_MS,
        .decay = weft__setting_u32(context, SETTING_LANES_DECAY, UINT32_MAX),
        .factor = weft__setting_u32(context, SETTING_LANES_FACTOR, UINT32_MAX),
        .recent = weft__setting_u32(context, SETTING_LANES_RECENT, UINT32_MAX),
        .capacity = capacity(worker),
        .message = weft__setting_u64(context, SETTING_LANES_MESSAGE),
        .floor = weft__setting_u64(context, SETTING_LANES_FLOOR),
    };
    struct usage_hooks hooks = {.eligible = eligible, .promote = promote, .demote = demote, .arg = t};
    t->usage = weft__usage_new(t, &params, &hooks, weft__now(worker->reactor));
    return t->usage ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

void weft__tracking_end(struct weft_worker *worker) {
    struct tracking *t = worker->tracking;
    if (!t) return;
    weft__timer_stop(worker->reactor, &t->tick);
    weft__job_drop(worker->reactor, &t->early);
}
