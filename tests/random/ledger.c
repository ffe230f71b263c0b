/* The ledger: each operation completes once, never within its call, and does not fail without a
 * cause. */
#include <stdlib.h>
#include <string.h>

#include "world.h"

static const char *const kind_name[] = {"am",          "am recv", "tag",       "tag recv", "stream",
                                        "stream recv", "put",     "get",       "post",     "fetch",
                                        "flush",       "close",   "collective"};

struct asked *ask(enum asked_kind kind, struct node *node, struct end *end) {
    struct asked *a = calloc(1, sizeof *a);
    if (!a) abort();
    a->n = world->n_asked++;
    a->kind = kind;
    a->node = node;
    a->end = end;
    a->message = MESSAGES;
    a->status = WEFT_IN_PROGRESS;
    a->next = world->asked;
    world->asked = a;
    return a;
}

/* ---- why it may fail ------------------------------------------------------------------------- */

static bool has_deadline(const struct asked *a) {
    return a->op_p && a->op.deadline_ms && a->op.deadline_ms != UINT32_MAX;
}

bool ask_is_safe(const struct asked *a) {
    return !a->cancelled && !has_deadline(a) && !a->shape.refused && !a->wrong &&
           !(a->end && !end_is_safe(a->end)) && !a->node->closing &&
           !(a->grip && a->grip->field->harmed);
}

static bool has_cause(const struct asked *a, weft_status_t status) {
    if (a->member) return turn_may_end(a, status);
    switch (status) {
    case WEFT_ERR_INTERNAL:
    case WEFT_ERR_PROTOCOL:
    case WEFT_ERR_VERSION:
    case WEFT_ERR_FORKED:
    case WEFT_ERR_WRONG_THREAD: return false;
    case WEFT_ERR_CANCELLED:
        /* Of what is offered also its receiver's. */
        if (a->cancelled || (a->message < MESSAGES && world->may & MAY_CANCEL)) return true;
        break;
    case WEFT_ERR_TIMED_OUT:
        if (has_deadline(a)) return true;
        break;
    case WEFT_ERR_REJECTED:
        return a->kind == ASKED_AM && a->message < MESSAGES && world->message[a->message].declined;
    case WEFT_ERR_TRUNCATED: return a->kind == ASKED_TAG_RECV || a->kind == ASKED_AM_RECV;
    /* What ended early is answered all the same, and its answer takes a place. */
    case WEFT_ERR_QUOTA:
        if (world->may & MAY_CANCEL) return true;
        break;
    /* What only the target could refuse. */
    case WEFT_ERR_REVOKED:
        if (a->kind == ASKED_FLUSH && world->may & MAY_REVOKE) return true;
        break;
    default: break;
    }
    /* A message may be taken back, or its endpoint may end, before all of it came. */
    if (a->kind == ASKED_TAG_RECV && world->may & (MAY_CANCEL | MAY_REFUSE | MAY_CLOSE | MAY_KILL))
        return true;
    if (a->shape.refused && status == SHAPE_REFUSES) return true;
    if (a->message < MESSAGES && !ask_is_safe(world->message[a->message].sender))
        return true; /* it was taken back */
    return !ask_is_safe(a) || world->ending;
}

/* ---- completions ----------------------------------------------------------------------------- */

static void ended(struct asked *a, weft_status_t status, bool justly) {
    trace("%s %u ends: %s", kind_name[a->kind], a->n, weft_status_name(status));
    a->status = status;
    a->request = NULL;
    a->posting = false;
    if (status > 0) wrong("%s %u ended as %d", kind_name[a->kind], a->n, status);
    if (status < 0 && !justly && !has_cause(a, status))
        wrong("%s %u failed, and this program did nothing to it: %s", kind_name[a->kind], a->n,
              failure(status));
    if (a->shape.starts != a->shape.ends)
        wrong("%s %u: a type's state was begun %d times and ended %d times", kind_name[a->kind],
              a->n, a->shape.starts, a->shape.ends);
    if (a->then) a->then(a);
    if (!a->keeps) shape_end(&a->shape);
    free(a->expected);
    a->expected = NULL;
    world->n_done++;
}

static void notified(struct asked *a, weft_status_t status, bool justly) {
    if (a->notified++) wrong("%s %u was reported twice", kind_name[a->kind], a->n);
    if (a->posting && pthread_equal(a->poster, pthread_self()))
        wrong("%s %u was reported within its call", kind_name[a->kind], a->n);
    if (!a->posting && !a->accepted)
        wrong("%s %u was reported although it was over", kind_name[a->kind], a->n);
    if (a->end && a->end->state == END_CLOSED && !a->group)
        wrong("%s %u was reported after its endpoint's close", kind_name[a->kind], a->n);
    ended(a, status, justly);
}

static void done(weft_status_t status, void *arg) {
    struct asked *a = arg;
    CALLED((uint64_t)a->n << 8 | 1);
    notified(a, status, false);
    act_within();
    RETURNS;
}

/* Which of them failed is unknown. */
static void group_done(weft_status_t status, void *arg) {
    struct group *g = arg;
    CALLED((uint64_t)g->asked[0]->n << 8 | 2);
    bool justly = status == WEFT_OK;
    if (g->held) wrong("a completion is reported, and the program holds it");
    for (uint32_t i = 0; i < g->n; i++) justly |= has_cause(g->asked[i], status);
    if (!justly)
        wrong("one of %u operations failed, and this program did nothing to them: %s", g->n,
              failure(status));
    for (uint32_t i = 0; i < g->n; i++) notified(g->asked[i], status, true);
    g->n = 0;
    RETURNS;
}

/* ---- asked ----------------------------------------------------------------------------------- */

static struct group *group_now(void) {
    struct group *g = world->group;
    if (g && g->held && g->n < sizeof g->asked / sizeof *g->asked) return g;
    g = calloc(1, sizeof *g);
    if (!g) abort();
    g->completion = (weft_completion_t){.done = group_done, .arg = g, .count = 1};
    g->held = true;
    g->next = world->group;
    return world->group = g;
}

static void group_leave(struct asked *a) {
    struct group *g = a->group;
    for (uint32_t i = 0; g && i < g->n; i++)
        if (g->asked[i] == a) g->asked[i] = g->asked[--g->n];
    a->group = NULL;
}

/* A collective without members notifies none. */
void groups_release(void) {
    if (here != MAIN) return;
    for (struct group *g = world->group; g; g = g->next) {
        if (!g->held) continue;
        g->held = false;
        if (g->n) weft_completion_release(&g->completion);
    }
}

static bool zcopies_only(const struct asked *a) {
    return a->kind == ASKED_AM || a->kind == ASKED_TAG || a->kind == ASKED_STREAM ||
           a->kind == ASKED_PUT;
}

/* No other operation is to wait for it. */
static bool may_wait_for_ever(const struct asked *a) {
    return a->kind == ASKED_TAG_RECV || a->kind == ASKED_STREAM_RECV;
}

const weft_op_t *ask_op(struct asked *a, uint32_t flags) {
    a->op = (weft_op_t){.done = done, .arg = a, .flags = flags};
    a->op_p = &a->op;
    if (a->shape.kind >= SHAPE_STRIDED) a->op.layout = &a->shape.layout;
    if (!a->op.layout && !flags && zcopies_only(a) && percent(5)) return a->op_p = NULL;
    if (percent(80)) a->op.request_p = &a->request;
    if (may(MAY_CANCEL) && percent(10))
        a->op.deadline_ms = percent(50) ? 1 : 1 + below(20);
    else if (percent(5))
        a->op.deadline_ms = UINT32_MAX;
    if (!may_wait_for_ever(a) && here == MAIN && a->node->drive == DRIVE_MAIN && percent(6)) {
        a->group = group_now();
        a->group->asked[a->group->n++] = a;
        a->op.completion = &a->group->completion;
    }
    return a->op_p;
}

void ask_begin(struct asked *a) {
    a->posting = true;
    a->poster = pthread_self();
    if (a->end) a->end->using ++;
    unlock();
}

void ask_answered(struct asked *a, weft_status_t status) {
    lock();
    if (a->end) a->end->using --;
    trace("%s %u of node %u end %d, %zu bytes%s, message %u, serial %llu: %s", kind_name[a->kind],
          a->n, a->node->n, a->end ? (int)a->end->n : -1, a->shape.len,
          a->op_p ? "" : ", not notified", a->message, (unsigned long long)a->serial,
          weft_status_name(status));
    if (status < 0 && world_traces) {
        char why[400];
        weft_status_describe(status, why, sizeof why);
        trace("%s", why);
    }
    if (status > WEFT_IN_PROGRESS || status < WEFT_STATUS_LAST)
        wrong("%s answers %d", kind_name[a->kind], status);
    if (a->notified && status != WEFT_IN_PROGRESS)
        wrong("%s %u is over, and was reported", kind_name[a->kind], a->n);
    if (a->notified) return;
    a->accepted = status == WEFT_IN_PROGRESS;
    a->posting = false;
    if (a->accepted) return;
    group_leave(a);
    ended(a, status, false);
}

/* A handle is valid until its callback begins, which other threads than the owner cannot know; the
 * handles of counted operations are the owner's alone. */
static bool may_cancel(const struct asked *a) {
    return here == a->node->owner || (!a->group && !(world->may & MAY_THREAD));
}

void ask_cancel(void) {
    uint32_t n = below(30);
    struct asked *found = NULL;
    for (struct asked *a = world->asked; a && n; a = a->next)
        if (may_cancel(a) && may_post(a->node) && !a->node->gone && a->accepted && !a->notified &&
            a->request)
            found = a, n--;
    if (!found) return;
    trace("cancel %s %u", kind_name[found->kind], found->n);
    found->cancelled = true;
    if (found->member) found->member->circle->cancelled = true;
    weft_request_cancel(found->request);
    if (found->notified && here == found->node->owner) wrong("a cancel reported its operation");
}

/* ---- the end --------------------------------------------------------------------------------- */

void ledger_end(void) {
    for (struct asked *a = world->asked, *next; a; a = next) {
        next = a->next;
        if (a->accepted && !a->notified && a->op_p)
            wrong("%s %u was never reported", kind_name[a->kind], a->n);
        if (!a->shape.room) shape_end(&a->shape); /* what was exposed went with its worker */
        free(a->expected);
        free(a);
    }
    for (struct group *g = world->group, *next; g; g = next) {
        next = g->next;
        if (g->n) wrong("a completion was never reported");
        free(g);
    }
}
