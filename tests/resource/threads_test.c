/* Provider and consumer on threads of their own: each is notified on its own worker. */
#include "shared.h"

#include <ev.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct consumer {
    pthread_t thread;
    weft_resource_t *resource;
    atomic_int ready, lost, stop;
    pthread_t lost_on;
};

static unsigned no_progress(void *arg) {
    return 0;
}

static void on_lost(void *object, weft_status_t status, void *arg) {
    struct consumer *c = arg;
    c->lost_on = pthread_self();
    atomic_store(&c->lost, status == WEFT_ERR_RESOURCE_LOST ? 1 : 2);
}

static void *consume(void *arg) {
    struct consumer *c = arg;
    weft_context_t *context;
    weft_worker_t *worker;
    if (weft_context_create(NULL, &context) ||
        weft_worker_create(context, &(weft_worker_params_t){.transports = "self"}, &worker))
        return arg;
    weft_associate_params_t params = {.resource = c->resource, .on_lost = on_lost, .arg = c};
    if (weft_associate_resources(context, WEFT_OBJECT_WORKER, &params, worker)) return arg;
    atomic_store(&c->ready, 1);
    while (!atomic_load(&c->stop)) weft_worker_wait(worker, 1);
    weft_worker_destroy(worker);
    weft_context_destroy(context);
    return NULL;
}

static atomic_int returned, withdrawn;
static pthread_t returned_on, withdrawn_on;
static void notify(weft_resource_t *resource, weft_resource_event_t event, void *arg) {
    if (event != WEFT_RESOURCE_RETURNED) return;
    returned_on = pthread_self();
    atomic_fetch_add(&returned, 1);
}
static void on_withdrawn(weft_status_t status, void *arg) {
    withdrawn_on = pthread_self();
    atomic_fetch_add(&withdrawn, 1);
}

/* A descriptor that a consumer on another thread watches. */
static void up(struct two *t, struct consumer *c, int *fd_p) {
    weft_resource_value_t value;
    weft_events_t events = {.progress = no_progress};
    memset(c, 0, sizeof *c);
    atomic_store(&returned, 0);
    atomic_store(&withdrawn, 0);
    two_workers(t, "self", NULL, 0);
    events.fd = *fd_p = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    value = VALUE(WEFT_RES_WORKER_EVENTS, events);
    weft_resource_params_t params = {.kind = WEFT_RESOURCE_EVENTS,
                                     .values = &value,
                                     .n_values = 1,
                                     .thread_mode = WEFT_THREAD_MULTIPLE,
                                     .provider = {.notify = notify, .worker = t->a}};
    CHECK_EQ(weft_resource_describe(&params, &c->resource), 0);
    CHECK_EQ(pthread_create(&c->thread, NULL, consume, c), 0);
    UNTIL(t, atomic_load(&c->ready));
}

static void down(struct two *t, struct consumer *c, int fd) {
    void *failed;
    atomic_store(&c->stop, 1);
    pthread_join(c->thread, &failed);
    CHECK(!failed);
    for (int i = 0; i < 10; i++) two_turn(t);
    CHECK_EQ(weft_resource_release(c->resource), 0);
    close(fd);
    two_down(t);
}

TEST(a_withdrawal_is_completed_on_the_providers_thread) {
    struct two t;
    struct consumer c;
    int fd;
    up(&t, &c, &fd);
    CHECK_EQ(weft_resource_withdraw(c.resource, &(weft_op_t){.done = on_withdrawn}),
             WEFT_IN_PROGRESS);
    UNTIL(&t, atomic_load(&withdrawn) && atomic_load(&returned));
    CHECK(pthread_equal(withdrawn_on, pthread_self()));
    CHECK(pthread_equal(returned_on, pthread_self()));
    CHECK_EQ(atomic_load(&c.lost), 0);
    down(&t, &c, fd);
}

TEST(a_loss_is_notified_on_the_consumers_thread) {
    struct two t;
    struct consumer c;
    int fd;
    up(&t, &c, &fd);
    weft_resource_lose(c.resource);
    UNTIL(&t, atomic_load(&c.lost));
    CHECK_EQ(atomic_load(&c.lost), 1);
    CHECK(pthread_equal(c.lost_on, c.thread));
    down(&t, &c, fd);
}

TEST(a_consumer_that_ends_first_returns_what_it_uses) {
    struct two t;
    struct consumer c;
    int fd;
    up(&t, &c, &fd);
    down(&t, &c, fd);
    CHECK_EQ(atomic_load(&returned), 1);
}

/* Both ends at once, from both sides: whichever is first, the other one finds it ended. */
static void ends_meet(bool lost) {
    for (int round = 0; round < 100; round++) {
        struct two t;
        struct consumer c;
        int fd;
        up(&t, &c, &fd);
        atomic_store(&c.stop, 1);
        usleep((useconds_t)round * 20);
        if (lost)
            weft_resource_lose(c.resource);
        else
            (void)weft_resource_withdraw(c.resource, &(weft_op_t){.done = on_withdrawn});
        down(&t, &c, fd);
        CHECK_EQ(atomic_load(&returned), 1);
    }
}
TEST(a_withdrawal_meets_the_end_of_its_consumer) {
    ends_meet(false);
}
TEST(a_loss_meets_the_end_of_its_consumer) {
    ends_meet(true);
}

/* ---- a state that another thread asks for ---------------------------------------------------- */

struct onlooker {
    pthread_t thread;
    weft_context_t *context;
    const void *object;
    atomic_int stop, wrong;
    atomic_uint asked;
};

static void *look_on(void *arg) {
    static const char *const states[] = {"STUB",     "PARTIAL",       "READY",
                                         "DRAINING", "DISASSOCIATED", "LOST"};
    struct onlooker *o = arg;
    while (!atomic_load(&o->stop)) {
        const char *state = weft_association_state(o->context, WEFT_OBJECT_MEMORY, o->object);
        bool known = false;
        for (size_t i = 0; i < sizeof states / sizeof *states; i++)
            known |= strcmp(state, states[i]) == 0;
        if (!known) atomic_store(&o->wrong, 1);
        atomic_fetch_add(&o->asked, 1);
    }
    return NULL;
}

/* The association comes and goes on another thread at the same time. */
TEST(a_state_may_be_asked_for_by_any_thread) {
    static char memory[4096];
    enum { ROUNDS = 300 };
    struct two t;
    two_workers(&t, "self", NULL, 0);
    weft_context_t *context = associated_context();
    weft_worker_t *library = stub_worker(context);
    weft_resource_t *worker = worker_resource(t.a);
    CHECK_EQ(associate(context, WEFT_OBJECT_WORKER, worker, library), 0);
    weft_mem_t *mem;
    weft_mem_params_t params = {.associated = 1};
    CHECK_EQ(weft_mem_register(library, NULL, 0, &params, &mem), 0);
    char *base = memory;
    uint64_t length = sizeof memory;
    weft_resource_value_t values[] = {VALUE(WEFT_RES_MEMORY_BASE, base),
                                      VALUE(WEFT_RES_MEMORY_LENGTH, length)};
    weft_resource_t *resource = describe(WEFT_RESOURCE_MEMORY, values, 2);
    struct onlooker o = {.context = context, .object = mem};
    CHECK_EQ(pthread_create(&o.thread, NULL, look_on, &o), 0);
    while (!atomic_load(&o.asked)) usleep(10);
    for (int i = 0; i < ROUNDS; i++) {
        struct tally done = {0};
        CHECK_EQ(associate(context, WEFT_OBJECT_MEMORY, resource, mem), 0);
        weft_status_t st = weft_disassociate_resources(resource, mem, OP(&done));
        UNTIL(&t, st == WEFT_OK || done.calls);
    }
    atomic_store(&o.stop, 1);
    pthread_join(o.thread, NULL);
    CHECK_EQ(atomic_load(&o.wrong), 0);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    weft_worker_destroy(library);
    CHECK_EQ(weft_resource_release(worker), 0);
    CHECK_EQ(weft_context_destroy(context), 0);
    two_down(&t);
}

/* ---- a worker on a loop of the consumer's thread --------------------------------------------- */

struct looped {
    pthread_t thread;
    weft_resource_t *resource;
    struct ev_loop *loop;
    atomic_int ready, stop;
    weft_status_t ended;
};

static void *live_on_loop(void *arg) {
    struct looped *l = arg;
    struct tally done = {0};
    weft_context_t *context = associated_context();
    weft_worker_t *worker = stub_worker(context);
    CHECK_EQ(associate(context, WEFT_OBJECT_WORKER, l->resource, worker), 0);
    atomic_store(&l->ready, 1);
    while (!atomic_load(&l->stop)) ev_run(l->loop, EVRUN_NOWAIT);
    l->ended = weft_disassociate_resources(l->resource, worker, OP(&done));
    while (strcmp(weft_association_state(context, WEFT_OBJECT_WORKER, worker), "DISASSOCIATED") &&
           strcmp(weft_association_state(context, WEFT_OBJECT_WORKER, worker), "LOST"))
        ev_run(l->loop, EVRUN_NOWAIT);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(context), 0);
    return NULL;
}

static void loop_ends_meet(bool lost) {
    for (int round = 0; round < 100; round++) {
        struct looped l = {.loop = ev_loop_new(0)};
        weft_resource_value_t value = VALUE(WEFT_RES_WORKER_LOOP, l.loop);
        weft_resource_params_t params = {.kind = WEFT_RESOURCE_LOOP,
                                         .values = &value,
                                         .n_values = 1,
                                         .thread_mode = WEFT_THREAD_MULTIPLE};
        CHECK_EQ(weft_resource_describe(&params, &l.resource), 0);
        CHECK_EQ(pthread_create(&l.thread, NULL, live_on_loop, &l), 0);
        while (!atomic_load(&l.ready)) usleep(10);
        atomic_store(&l.stop, 1);
        usleep((useconds_t)round);
        if (lost)
            weft_resource_lose(l.resource);
        else
            (void)weft_resource_withdraw(l.resource, NULL);
        pthread_join(l.thread, NULL);
        CHECK_EQ(weft_resource_release(l.resource), 0);
        ev_loop_destroy(l.loop);
    }
}
TEST(a_withdrawal_meets_the_end_of_a_worker_on_a_loop) {
    loop_ends_meet(false);
}
TEST(a_loss_meets_the_end_of_a_worker_on_a_loop) {
    loop_ends_meet(true);
}

/* ---- at once --------------------------------------------------------------------------------- */

struct racer {
    pthread_t thread;
    pthread_barrier_t *start;
    weft_context_t *context;
    weft_worker_t *worker;
    weft_resource_t *resource;
    struct ev_loop *loop;
    weft_status_t status, ended;
};

/* The one that wins owns the worker, and ends it. */
static void *race(void *arg) {
    struct racer *r = arg;
    struct tally done = {0};
    pthread_barrier_wait(r->start);
    r->status = associate(r->context, WEFT_OBJECT_WORKER, r->resource, r->worker);
    pthread_barrier_wait(r->start); /* both know */
    if (r->status != WEFT_OK) return NULL;
    r->ended = weft_disassociate_resources(r->resource, r->worker, OP(&done));
    while (r->ended == WEFT_IN_PROGRESS && !done.calls) ev_run(r->loop, EVRUN_ONCE);
    return NULL;
}

/* Each thread has a loop for the one worker; the loop of the other one stays as it was. */
TEST(of_two_threads_that_associate_a_worker_at_once_one_wins) {
    struct ev_loop *loop[2] = {ev_loop_new(0), ev_loop_new(0)};
    for (int round = 0; round < 20; round++) {
        weft_context_t *context = associated_context();
        weft_worker_t *worker = stub_worker(context);
        pthread_barrier_t start;
        struct racer racer[2];
        pthread_barrier_init(&start, NULL, 2);
        for (int i = 0; i < 2; i++) {
            weft_resource_value_t value = VALUE(WEFT_RES_WORKER_LOOP, loop[i]);
            weft_resource_params_t params = {.kind = WEFT_RESOURCE_LOOP,
                                             .values = &value,
                                             .n_values = 1,
                                             .thread_mode = WEFT_THREAD_MULTIPLE};
            racer[i] = (struct racer){
                .start = &start, .context = context, .worker = worker, .loop = loop[i]};
            CHECK_EQ(weft_resource_describe(&params, &racer[i].resource), 0);
        }
        for (int i = 0; i < 2; i++) pthread_create(&racer[i].thread, NULL, race, &racer[i]);
        for (int i = 0; i < 2; i++) pthread_join(racer[i].thread, NULL);
        int winner = racer[0].status == WEFT_OK ? 0 : 1;
        CHECK_EQ(racer[winner].status, 0);
        CHECK_EQ(racer[!winner].status, WEFT_ERR_ALREADY_ASSOCIATED);
        CHECK_EQ(racer[winner].ended, WEFT_IN_PROGRESS);
        for (int i = 0; i < 2; i++) CHECK_EQ(weft_resource_release(racer[i].resource), 0);
        weft_worker_destroy(worker);
        CHECK_EQ(weft_context_destroy(context), 0);
        pthread_barrier_destroy(&start);
    }
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(ev_run(loop[i], EVRUN_NOWAIT), 0); /* nothing is watched */
        ev_loop_destroy(loop[i]);
    }
}

/* ---- a context, which belongs to no thread --------------------------------------------------- */

struct ender {
    pthread_t thread;
    pthread_barrier_t *start;
    weft_context_t *context;
    weft_resource_t *resource;
    int way;
    weft_status_t ended;
    struct tally done;
};

static void *end_context(void *arg) {
    struct ender *e = arg;
    pthread_barrier_wait(e->start);
    if (e->way == 0)
        e->ended = weft_disassociate_resources(e->resource, e->context, NULL);
    else if (e->way == 1)
        e->ended = weft_resource_withdraw(e->resource, NULL);
    else
        weft_resource_lose(e->resource);
    return NULL;
}

TEST(the_association_of_a_context_ends_once_whichever_threads_end_it) {
    enum { ROUNDS = 600 };
    weft_context_t *context = associated_context();
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, 2);
    for (int round = 0; round < ROUNDS; round++) {
        struct ender ender[2];
        weft_resource_info_t info;
        int value = 1;
        weft_resource_value_t values = VALUE("VALUE", value);
        weft_resource_params_t params = {.values = &values,
                                         .n_values = 1,
                                         .thread_mode = WEFT_THREAD_MULTIPLE,
                                         .provider = {.notify = notify}};
        weft_resource_t *resource;
        atomic_store(&returned, 0);
        CHECK_EQ(weft_resource_describe(&params, &resource), 0);
        CHECK_EQ(associate(context, WEFT_OBJECT_CONTEXT, resource, context), 0);
        for (int i = 0; i < 2; i++) {
            ender[i] = (struct ender){.start = &start,
                                      .context = context,
                                      .resource = resource,
                                      .way = i ? round % 3 : 0};
            CHECK_EQ(pthread_create(&ender[i].thread, NULL, end_context, &ender[i]), 0);
        }
        for (int i = 0; i < 2; i++) pthread_join(ender[i].thread, NULL);
        CHECK_EQ(weft_resource_info(resource, &info), 0);
        CHECK_EQ(info.n_users, 0);
        CHECK_EQ(atomic_load(&returned), 1);
        CHECK_EQ(weft_resource_release(resource), 0);
    }
    pthread_barrier_destroy(&start);
    CHECK_EQ(weft_context_destroy(context), 0);
}

/* ---- a wait for objects of another thread ---------------------------------------------------- */

static void *drive_until(void *arg) {
    struct consumer *c = arg;
    weft_context_t *context;
    weft_worker_t *worker;
    if (weft_context_create(NULL, &context) ||
        weft_worker_create(context, &(weft_worker_params_t){.transports = "self"}, &worker) ||
        associate(context, WEFT_OBJECT_WORKER, c->resource, worker))
        return arg;
    atomic_store(&c->ready, 1);
    while (!atomic_load(&c->stop)) weft_worker_wait(worker, 1);
    weft_worker_destroy(worker);
    weft_context_destroy(context);
    return NULL;
}

/* That thread drives its worker, and no other one may. */
TEST(a_thread_does_not_drive_the_worker_of_another_to_end_its_associations) {
    struct consumer c = {0};
    void *failed;
    weft_events_t events = {.progress = no_progress, .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_EVENTS, events);
    weft_resource_params_t params = {.kind = WEFT_RESOURCE_EVENTS,
                                     .values = &value,
                                     .n_values = 1,
                                     .thread_mode = WEFT_THREAD_MULTIPLE};
    CHECK_EQ(weft_resource_describe(&params, &c.resource), 0);
    CHECK_EQ(pthread_create(&c.thread, NULL, drive_until, &c), 0);
    while (!atomic_load(&c.ready)) usleep(100);
    CHECK_EQ(weft_disassociate_resources_wait(c.resource, NULL), WEFT_ERR_WRONG_THREAD);
    atomic_store(&c.stop, 1);
    pthread_join(c.thread, &failed);
    CHECK(!failed);
    CHECK_EQ(weft_resource_release(c.resource), 0);
    close(events.fd);
}

/* ---- calls of a thread that owns no worker --------------------------------------------------- */

struct elsewhere {
    struct sharing s;
    weft_status_t lease, disassociated[2];
};

static void *call_elsewhere(void *arg) {
    struct elsewhere *st = arg;
    weft_lease_t lease;
    st->lease = weft_worker_lease(st->s.library[1], &lease);
    st->disassociated[0] = weft_disassociate_resources(st->s.resource[0], st->s.library[0], NULL);
    st->disassociated[1] = weft_disassociate_resources(st->s.resource[1], st->s.library[1], NULL);
    return NULL;
}

TEST(a_thread_that_owns_no_worker_ends_no_association_of_one) {
    struct elsewhere st;
    pthread_t thread;
    struct tally done = {0};
    share_up(&st.s, "self");
    share_dial(&st.s); /* so that the end takes a turn */
    CHECK_EQ(weft_disassociate_resources(st.s.resource[0], st.s.library[0], OP(&done)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(pthread_create(&thread, NULL, call_elsewhere, &st), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(st.disassociated[0], WEFT_ERR_WRONG_THREAD);
    CHECK_EQ(st.disassociated[1], WEFT_ERR_WRONG_THREAD);
    CHECK_EQ(st.lease, WEFT_ERR_WRONG_THREAD);
    UNTIL(&st.s.two, done.calls);
    CHECK_EQ(pthread_create(&thread, NULL, call_elsewhere, &st), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(st.disassociated[0], WEFT_OK); /* it has no association any more */
    share_down(&st.s);
}

/* ---- a worker with a thread of its own ------------------------------------------------------- */

/* Its resource is no loop of the program. */
static weft_worker_t *worker_on_own_loop(weft_context_t *context, weft_resource_t **resource_p) {
    struct ev_loop *none = NULL;
    weft_worker_t *worker;
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_LOOP, none);
    weft_worker_params_t params = {.associated = 1, .thread_mode = WEFT_THREAD_MULTIPLE};
    *resource_p = describe(WEFT_RESOURCE_LOOP, &value, 1);
    CHECK_EQ(weft_worker_create(context, &params, &worker), 0);
    CHECK_EQ(associate(context, WEFT_OBJECT_WORKER, *resource_p, worker), 0);
    CHECK_EQ(weft_worker_start_thread(worker, NULL), 0);
    return worker;
}

static void note_atomic(weft_status_t status, void *arg) {
    atomic_store((atomic_int *)arg, 1 - status);
}

TEST(a_resource_of_a_worker_with_a_thread_is_withdrawn_when_the_thread_has_stopped) {
    for (int lost = 0; lost < 2; lost++) {
        weft_resource_t *resource;
        atomic_int done = 0;
        weft_context_t *context = associated_context();
        weft_worker_t *worker = worker_on_own_loop(context, &resource);
        CHECK_EQ(weft_resource_withdraw(resource, &(weft_op_t){.done = note_atomic, .arg = &done}),
                 WEFT_IN_PROGRESS);
        if (lost) weft_resource_lose(resource);
        usleep(20000);
        CHECK_EQ(atomic_load(&done), 0);
        CHECK_EQ(weft_worker_stop_thread(worker), 0);
        for (double end = test_now() + test_timeout(60); !atomic_load(&done) && test_now() < end;)
            (void)weft_worker_wait(worker, 1);
        CHECK_EQ(atomic_load(&done), 1);
        weft_worker_destroy(worker);
        CHECK_EQ(weft_resource_release(resource), 0);
        CHECK_EQ(weft_context_destroy(context), 0);
    }
}

TEST(a_worker_in_associated_mode_is_destroyed_with_its_thread) {
    weft_resource_t *resource;
    weft_context_t *context = associated_context();
    weft_worker_t *worker = worker_on_own_loop(context, &resource);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_context_destroy(context), 0);
}
