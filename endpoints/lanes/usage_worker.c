/* Drives the usage tracker of a worker: the timer of its ticks, reports of lanes, and its hooks. */
#include "usage_worker.h"

#include <endpoints/core/link.h>
#include <endpoints/core/worker.h>

/* ---- ticks: only while they may change a decision, so that an idle worker sleeps */

/* If the timer cannot start, the next touch tries again. */
static void expect_tick(struct tracking *t) {
    if (weft__timer_running(&t->tick)) return;
    (void)weft__timer_start(t->worker->reactor, &t->tick, weft__usage_due(t->usage));
}

static uint32_t advance_usage(uint32_t *seen, uint64_t now) {
    uint32_t by = (uint32_t)now - *seen;
    *seen = (uint32_t)now;
    return by;
}

/* Lanes report rarely, and do not report what they receive: read the counters of the links. */
static void look_at_all(struct tracking *t) {
    struct link *link;
    for (uint32_t at = 0; (link = weft__usage_next(t->usage, &at)) != NULL;) {
        uint64_t messages = advance_usage(&link->used_sent, link->sent);
        messages += advance_usage(&link->used_received, link->received);
        if (messages) weft__usage_touch(t->usage, link, messages, 0);
    }
}

static void tick(struct timer *timer) {
    struct tracking *t = list_of(timer, struct tracking, tick);
    if (!worker_is_open(&t->worker->core.fsm)) return;
    look_at_all(t);
    if (weft__usage_tick(t->usage, weft__now(t->worker->reactor))) expect_tick(t);
    t->worker->features->scores_changed(t->worker);
}

/* A job, because the report comes from within a send. */
static void early(struct job *job) {
    struct tracking *t = list_of(job, struct tracking, early);
    if (worker_is_open(&t->worker->core.fsm)) weft__usage_early(t->usage);
}

/* ---- touches */

/* Earlier receptions of a link that was not noted do not count. */
static void worked(struct lane *lane, uint64_t bytes) {
    struct link *link = weft__lane_link(lane);
    if (!link) return;
    if (link->more->main) link = link->more->main; /* a rail */
    struct tracking *t = link->worker->tracking;
    if (!weft__usage_noted(t->usage, link)) link->used_received = (uint32_t)link->received;
    uint64_t messages = advance_usage(&link->used_sent, link->sent);
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

/* ---- hooks: links that are not up take no part */

static bool eligible_usage(void *key, void *arg) {
    const struct tracking *t = arg;
    const struct link *link = key;
    if (!link_is_up(&link->core.fsm)) return false;
    return !t->hooks.eligible || t->hooks.eligible(key, t->hooks.arg);
}

static bool promote_usage(void *key, uint64_t score, void *arg) {
    const struct tracking *t = arg;
    return t->hooks.promote && t->hooks.promote(key, score, t->hooks.arg);
}

static void demote_usage(void *key, uint64_t score, void *arg) {
    const struct tracking *t = arg;
    const struct link *link = key;
    if (t->hooks.demote && link_is_up(&link->core.fsm)) t->hooks.demote(key, score, t->hooks.arg);
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

/* The slots: from the setting, else the scarce lanes of all transports, else 64. */
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
        .floor = weft__setting_u64(context, SETTING_LANES_MIN_RATE),
    };
    struct usage_hooks hooks = {
        .eligible = eligible_usage, .promote = promote_usage, .demote = demote_usage, .arg = t};
    t->usage = weft__usage_new(t, &params, &hooks, weft__now(worker->reactor));
    return t->usage ? WEFT_OK : WEFT_ERR_NO_MEMORY;
}

void weft__tracking_end(struct weft_worker *worker) {
    struct tracking *t = worker->tracking;
    if (!t) return;
    weft__timer_stop(worker->reactor, &t->tick);
    weft__job_drop(worker->reactor, &t->early);
}
