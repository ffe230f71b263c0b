/* What programs do to associations within the callbacks that these make. */
#include "shared.h"

#include <sys/eventfd.h>
#include <sys/wait.h>

/* ---- the end of an object in the callback of its disassociation ------------------------------ */

struct leaver {
    weft_worker_t *worker;
    weft_status_t closed;
    int calls;
    struct sharing *s;
    weft_worker_t *next; /* associated in the same callback */
    weft_status_t associated;
};

static void close_worker(weft_status_t status, void *arg) {
    struct leaver *l = arg;
    l->calls++;
    l->closed = weft_worker_close(l->worker, NULL);
    if (l->next)
        l->associated = associate(l->s->context, WEFT_OBJECT_WORKER, l->s->resource[0], l->next);
}

TEST(a_worker_may_be_closed_in_the_callback_of_its_disassociation) {
    struct sharing s;
    share_up(&s, "self");
    struct leaver l = {.worker = s.library[0], .s = &s};
    weft_ep_t *ep;
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(s.two.a, address, &len), 0);
    CHECK_EQ(weft_connect_address(s.library[0], address, len, NULL, &ep), 0);
    s.library[0] = NULL;
    CHECK_EQ(weft_disassociate_resources(s.resource[0], l.worker,
                                         &(weft_op_t){.done = close_worker, .arg = &l}),
             WEFT_IN_PROGRESS);
    UNTIL(&s.two, l.calls);
    CHECK_EQ(l.closed, 0);
    for (int i = 0; i < 10; i++) two_turn(&s.two);
    CHECK_EQ(l.calls, 1);
    share_down(&s);
}

/* A thread that looks at the provider's users at that time does not meet the one that is gone. */
TEST(another_worker_may_be_associated_where_one_was_closed) {
    struct sharing s;
    share_up(&s, "self");
    struct leaver l = {.worker = s.library[0], .s = &s, .next = stub_worker(s.context)};
    weft_ep_t *ep;
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(s.two.a, address, &len), 0);
    CHECK_EQ(weft_connect_address(s.library[0], address, len, NULL, &ep), 0);
    s.library[0] = l.next;
    CHECK_EQ(weft_disassociate_resources(s.resource[0], l.worker,
                                         &(weft_op_t){.done = close_worker, .arg = &l}),
             WEFT_IN_PROGRESS);
    UNTIL(&s.two, l.calls);
    CHECK_EQ(l.closed, 0);
    CHECK_EQ(l.associated, 0);
    share_down(&s);
}

/* ---- the end of an association in the provider's notice of it -------------------------------- */

struct guard {
    void *object;
    int taken, returned;
    weft_status_t ended;
};

static void send_away(weft_resource_t *resource, weft_resource_event_t event, void *arg) {
    struct guard *g = arg;
    g->taken += event == WEFT_RESOURCE_TAKEN;
    g->returned += event == WEFT_RESOURCE_RETURNED;
    if (event == WEFT_RESOURCE_TAKEN)
        g->ended = weft_disassociate_resources(resource, g->object, NULL);
}

static weft_resource_t *guarded(weft_resource_kind_t kind, weft_worker_t *provider,
                                struct guard *g) {
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_HANDLE, provider);
    weft_resource_params_t params = {
        .kind = kind, .values = &value, .n_values = 1, .provider = {.notify = send_away, .arg = g}};
    weft_resource_t *resource;
    CHECK_EQ(weft_resource_describe(&params, &resource), 0);
    return resource;
}

TEST(a_provider_that_is_notified_of_a_user_may_end_it) {
    struct sharing s;
    weft_resource_info_t info;
    share_up(&s, "self");
    weft_worker_t *worker = stub_worker(s.context);
    struct guard of_worker = {.object = worker}, of_context = {.object = s.context};
    weft_resource_t *resource[] = {guarded(WEFT_RESOURCE_WORKER, s.two.a, &of_worker),
                                   guarded(WEFT_RESOURCE_USER, s.two.a, &of_context)};
    CHECK_EQ(associate(s.context, WEFT_OBJECT_WORKER, resource[0], worker), 0);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_CONTEXT, resource[1], s.context), 0);
    CHECK_EQ(of_context.ended, WEFT_IN_PROGRESS); /* as the call that associates returns */
    for (int i = 0; i < 2; i++)
        UNTIL(&s.two, weft_resource_info(resource[i], &info) == 0 && info.n_users == 0);
    CHECK_EQ(of_worker.taken + of_context.taken, 2);
    CHECK_EQ(of_worker.returned + of_context.returned, 2);
    CHECK_EQ(weft_worker_flush(worker, NULL), WEFT_ERR_DISASSOCIATED);
    for (int i = 0; i < 2; i++) CHECK_EQ(weft_resource_release(resource[i]), 0);
    weft_worker_destroy(worker);
    share_down(&s);
}

/* The same of a worker that ends with its loop. */
TEST(a_provider_that_is_notified_of_a_worker_on_its_loop_may_end_it) {
    weft_context_t *context = associated_context();
    weft_worker_t *worker = stub_worker(context);
    struct ev_loop *none = NULL;
    struct guard g = {.object = worker};
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_LOOP, none);
    weft_resource_params_t params = {.kind = WEFT_RESOURCE_LOOP,
                                     .values = &value,
                                     .n_values = 1,
                                     .provider = {.notify = send_away, .arg = &g}};
    weft_resource_t *resource;
    CHECK_EQ(weft_resource_describe(&params, &resource), 0);
    CHECK_EQ(associate(context, WEFT_OBJECT_WORKER, resource, worker), 0);
    CHECK_EQ(g.ended, WEFT_IN_PROGRESS);
    for (double end = test_now() + test_timeout(60); !g.returned && test_now() < end;)
        (void)weft_worker_wait(worker, 1);
    CHECK_EQ(g.returned, 1);
    CHECK_EQ(weft_worker_flush(worker, NULL), WEFT_ERR_DISASSOCIATED);
    CHECK_EQ(weft_resource_release(resource), 0);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(context), 0);
}

/* ---- a library that leaves the worker in its progress, while a notice is on its way ---------- */

struct quitter {
    int fd, calls;
    weft_resource_t *resource;
    weft_worker_t *worker;
};

static unsigned quit(void *arg) {
    struct quitter *q = arg;
    if (q->calls++) return 1;
    (void)weft_resource_withdraw(q->resource, NULL); /* its notice is posted */
    CHECK_EQ(weft_disassociate_resources(q->resource, q->worker, NULL), 0);
    return 1;
}

TEST(a_library_that_has_left_the_worker_is_not_asked_again) {
    struct two t;
    struct quitter q = {.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    weft_events_t events = {.fd = q.fd, .progress = quit, .arg = &q};
    two_workers(&t, "self", NULL, 0);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_EVENTS, events);
    q.resource = describe(WEFT_RESOURCE_EVENTS, &value, 1);
    q.worker = t.a;
    CHECK_EQ(associate(t.context, WEFT_OBJECT_WORKER, q.resource, t.a), 0);
    UNTIL(&t, q.calls);
    CHECK_EQ(q.calls, 1);
    for (int i = 0; i < 10; i++) two_turn(&t);
    CHECK_EQ(q.calls, 1);
    CHECK_EQ(weft_resource_release(q.resource), 0);
    close(q.fd);
    two_down(&t);
}

/* ---- a child that returns from one of the program's functions -------------------------------- */

enum where { IN_ACQUIRE, IN_NOTIFY, IN_PROGRESS, IN_LOSS, IN_RELEASE, N_WHERE };

struct forker {
    enum where where;
    bool due, is_child;
    int fd, status;
};

static void fork_in(struct forker *f, enum where here) {
    if (!f->due || f->where != here) return;
    f->due = false;
    pid_t pid = fork();
    if (pid == 0) {
        f->is_child = true;
        alarm((unsigned)test_timeout(60));
        close(STDERR_FILENO);
        return;
    }
    CHECK_EQ(waitpid(pid, &f->status, 0), pid);
}

static weft_status_t acquire_fork(weft_resource_t *resource, const weft_resource_value_t *value,
                                  void *arg) {
    fork_in(arg, IN_ACQUIRE);
    return WEFT_OK;
}
static void release_fork(weft_resource_t *resource, const weft_resource_value_t *value, void *arg) {
    fork_in(arg, IN_RELEASE);
}
static void notify_fork(weft_resource_t *resource, weft_resource_event_t event, void *arg) {
    fork_in(arg, IN_NOTIFY);
}
static void lost_fork(void *object, weft_status_t status, void *arg) {
    fork_in(arg, IN_LOSS);
}
static unsigned progress_fork(void *arg) {
    struct forker *f = arg;
    uint64_t n;
    fork_in(f, IN_PROGRESS);
    return read(f->fd, &n, sizeof n) > 0;
}

TEST(a_child_that_returns_from_a_function_of_a_resource_is_ended) {
    for (enum where where = 0; where < N_WHERE; where++) {
        struct forker f = {
            .where = where, .due = true, .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
        struct two t;
        weft_events_t events = {.fd = f.fd, .progress = progress_fork, .arg = &f};
        two_workers(&t, "self", NULL, 0);
        weft_resource_value_t value = VALUE(WEFT_RES_WORKER_EVENTS, events);
        weft_resource_params_t params = {.kind = WEFT_RESOURCE_EVENTS,
                                         .values = &value,
                                         .n_values = 1,
                                         .provider = {.acquire = acquire_fork,
                                                      .release = release_fork,
                                                      .notify = notify_fork,
                                                      .arg = &f}};
        weft_resource_t *resource;
        CHECK_EQ(weft_resource_describe(&params, &resource), 0);
        weft_associate_params_t user = {.resource = resource, .on_lost = lost_fork, .arg = &f};
        CHECK_EQ(weft_associate_resources(t.context, WEFT_OBJECT_WORKER, &user, t.a), 0);
        if (f.is_child) _exit(7);
        CHECK_EQ(eventfd_write(f.fd, 1), 0);
        for (int i = 0; i < 10; i++) two_turn(&t);
        if (f.is_child) _exit(7);
        weft_resource_lose(resource);
        for (int i = 0; i < 10; i++) two_turn(&t);
        if (f.is_child) _exit(7);
        CHECK(!f.due);
        CHECK(WIFEXITED(f.status));
        CHECK_EQ(WEXITSTATUS(f.status), 1);
        CHECK_EQ(weft_resource_release(resource), 0);
        close(f.fd);
        two_down(&t);
    }
}
