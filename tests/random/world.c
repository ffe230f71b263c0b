/* A run: it begins, a program does what comes to its mind, all comes to rest, is looked at, and
 * ends with nothing left. */
#include "world.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <talloc.h>
#include <tests/network.h>
#include <tests/support/descriptors.h>

struct world *world;
bool world_traces;
_Thread_local uint64_t chance_state;

void wrong(const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("  seed %llu, a program that may 0x%x over %s: ", (unsigned long long)world->seed,
           world->may, world->transports);
    vprintf(format, args);
    printf("\n");
    fflush(stdout);
    abort();
}

void trace(const char *format, ...) {
    va_list args;
    if (!world_traces) return;
    va_start(args, format);
    fprintf(stderr, "%u %*s", here, depth * 2, "");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
}

const char *failure(weft_status_t status) {
    static char text[1024];
    weft_status_describe(status, text, sizeof text);
    return text;
}

/* ---- the lock -------------------------------------------------------------------------------- */

static pthread_mutex_t everything;
static __attribute__((constructor)) void lock_begin(void) {
    pthread_mutexattr_t again;
    pthread_mutexattr_init(&again);
    pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&everything, &again);
    pthread_mutexattr_destroy(&again);
}
void lock(void) {
    pthread_mutex_lock(&everything);
}
void unlock(void) {
    pthread_mutex_unlock(&everything);
}

/* ---- its steps ------------------------------------------------------------------------------- */

static void drive(struct node *node) {
    unlock();
    if (percent(95))
        weft_worker_progress(node->worker, percent(80) ? 0 : 1 + below(4));
    else
        (void)weft_worker_wait(node->worker, (int)below(2));
    lock();
}

static void drive_all(void) {
    for (struct node *node = world->node; node < world->node + NODES; node++)
        if (node->worker && node->drive != DRIVE_THREAD) drive(node);
}

/* Members of a team are driven by this thread, and need a way to each other. */
static bool draws_teams(void) {
    return !(world->may & MAY_THREAD) && strcmp(world->transports, "self") && percent(35);
}

static void steps(uint32_t n) {
    bool busy = percent(50);
    for (uint32_t i = 0; i < n; i++) {
        chance_of(world->seed, (uint64_t)i << 8 | 0xff);
        act();
        teams_exchange();
        libraries_step();
        if (percent(busy ? 30 : 80)) {
            struct node *node = &world->node[below(NODES)];
            if (node->worker && node->drive != DRIVE_THREAD) drive(node);
        }
        if (percent(busy ? 2 : 15)) drive_all();
    }
}

static void *unverified(void *arg) {
    uint32_t n = *(uint32_t *)arg;
    here = UNVERIFIED;
    for (uint32_t i = 0; i < n; i++) {
        lock();
        chance_of(world->seed, (uint64_t)i << 8 | 0xfe);
        act();
        unlock();
        if (i % 8 == 0) sched_yield();
    }
    return NULL;
}

static void stop_threads(void) {
    for (struct node *node = world->node; node < world->node + NODES; node++) {
        if (node->drive != DRIVE_MAIN) {
            unlock();
            weft_status_t st = weft_worker_stop_thread(node->worker);
            lock();
            if (st < 0) wrong("a thread does not stop: %s", weft_status_name(st));
        }
        node->drive = DRIVE_MAIN;
        node->owner = MAIN;
    }
    for (uint32_t i = 0; i < world->n_ends; i++) world->end[i].author = MAIN;
}

/* What others handed over, an entry a turn, goes before what we ask from now on. */
static void take_over(void) {
    for (int quiet = 0, turns = 0; quiet < 3 && turns < 100000; quiet++, turns++) {
        unlock();
        for (struct node *node = world->node; node < world->node + NODES; node++)
            if (node->worker && weft_worker_progress(node->worker, 0) > 0) quiet = 0;
        lock();
    }
}

static void chaos(void) {
    uint32_t n = 60 + below(500);
    pthread_t thread;
    bool threads = world->may & MAY_THREAD;
    if (threads && pthread_create(&thread, NULL, unverified, &n) != 0) abort();
    steps(n);
    unlock();
    if (threads) pthread_join(thread, NULL);
    lock();
    world->settling = true;
    stop_threads();
    take_over();
}

/* ---- rest ------------------------------------------------------------------------------------ */

/* Receives may wait for what never comes. */
static const struct asked *under_way(void) {
    for (const struct asked *a = world->asked; a; a = a->next)
        if (a->op_p && a->accepted && !a->notified && a->kind != ASKED_TAG_RECV &&
            a->kind != ASKED_STREAM_RECV)
            return a;
    return NULL;
}

static void drain(void) {
    for (struct node *node = world->node; node < world->node + NODES; node++)
        if (!node->closing) tags_drain(node);
    for (uint32_t i = 0; i < world->n_ends; i++)
        if (end_lives(&world->end[i])) streams_drain(&world->end[i]);
    teams_drain();
    teams_exchange();
    libraries_step();
    groups_release();
}

static const struct message *missing(void) {
    for (uint32_t i = 0; i < world->n_messages; i++) {
        const struct message *m = &world->message[i];
        if (message_is_due(m) && !(m->delivered) &&
            (m->kind == ASKED_AM || !(world->may & ~MAY_THREAD)))
            return m;
    }
    return NULL;
}

static bool streams_rest(void) {
    for (uint32_t i = 0; i < world->n_ends; i++) {
        struct end *end = &world->end[i];
        if (end->other && end_is_safe(end) && end_is_safe(end->other) &&
            end->other->in < end->out && stream_is_known(end))
            return false;
    }
    return true;
}

static void rest(void) {
    double late = test_now() + test_timeout(30);
    bool flushed = false;
    for (int quiet = 0; quiet < 3 && test_now() < late;) {
        drive_all();
        drain();
        quiet = under_way() || missing() || !streams_rest() || !teams_rest() || !libraries_rest() ||
                        world->waiting
                    ? 0
                    : quiet + 1;
        if (quiet != 3 || flushed) continue;
        for (uint32_t i = 0; i < world->n_ends; i++)
            if (end_lives(&world->end[i])) end_flush(&world->end[i], true);
        flushed = true;
        quiet = 0;
    }
    const struct asked *a = under_way();
    if (a) wrong("operation %u, of kind %d, never ends", a->n, a->kind);
    if (!teams_rest()) wrong("a team is never ready");
    if (!libraries_rest()) wrong("a library never ends");
    if (world->waiting) wrong("%d closes or revocations never end", world->waiting);
}

static void check(void) {
    messages_end();
    tags_end();
    streams_end();
    rma_doubt();
    fields_check();
}

static bool all_gone(void) {
    bool gone = true;
    for (struct node *node = world->node; node < world->node + NODES; node++) gone &= node->gone;
    return gone;
}

static void end(void) {
    double late = test_now() + test_timeout(30);
    for (uint32_t i = 0; i < world->n_ends; i++)
        if (percent(30))
            end_close(&world->end[i], percent(50) ? WEFT_CLOSE_FLUSH : WEFT_CLOSE_ABORT, 0);
    for (uint32_t i = below(4); i > 0; i--) drive_all();
    world->ending = true;
    for (struct node *node = world->node; node < world->node + NODES; node++)
        if (!node->closing) node_close(node);
    while (!all_gone() && test_now() < late) drive_all();
    if (!all_gone()) wrong("a worker never ends");
    libraries_end();
    weft_status_t st = weft_context_destroy(world->context);
    if (st < 0) wrong("the context does not end: %s", weft_status_name(st));
}

/* ---- all of it ------------------------------------------------------------------------------- */

static const char *const transports[] = {"self",     "shm",      "tcp",    "self,shm,tcp",
                                         "self,tcp", "self,shm", "shm,tcp"};

void world_run(uint64_t seed, unsigned may, struct verdict *verdict) {
    /* what has no parent is for all threads together */
    if (!(may & MAY_THREAD)) talloc_enable_null_tracking();
    size_t blocks = talloc_total_blocks(NULL);
    int fds = n_descriptors();
    lock();
    world = calloc(1, sizeof *world);
    if (!world) abort();
    chance_of(seed, 0);
    world->seed = seed;
    world->may = may;
    world->transports = transports[below(7)];
    world->has_teams = draws_teams();
    here = MAIN;
    nodes_begin();
    libraries_begin();
    chaos();
    chance_of(seed, 1);
    rest();
    check();
    end();
    ledger_end();
    fields_end();
    *verdict = (struct verdict){.asked = world->n_asked, .checked = world->n_checked};
    if (talloc_total_blocks(NULL) != blocks)
        wrong("%zu blocks of memory are left", talloc_total_blocks(NULL) - blocks);
    if (n_descriptors() != fds) wrong("%d descriptors are left", n_descriptors() - fds);
    free(world);
    world = NULL;
    unlock();
    talloc_disable_null_tracking();
}
