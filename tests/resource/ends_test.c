/* Resources that end while notices, losses and drains are under way. */
#include "shared.h"
#include <ev.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <tests/support/ending_team.h>
#include <tests/support/ending_worker.h>

/* ---- notices for a provider that has released the resource ----------------------------------- */

static void note_event(weft_resource_t *resource, weft_resource_event_t event, void *arg) {
    weft_resource_info_t info;
    CHECK_EQ(weft_resource_info(resource, &info), 0);
    ++*(int *)arg;
}

TEST(a_notice_that_is_posted_outlives_no_release) {
    struct sharing s;
    int n = 0;
    share_up(&s, "self");
    weft_worker_t *provider = s.two.a, *library = stub_worker(s.context);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_HANDLE, provider);
    weft_resource_params_t params = {
        .kind = WEFT_RESOURCE_WORKER,
        .values = &value,
        .n_values = 1,
        .provider = {.worker = two_b(&s.two), .notify = note_event, .arg = &n}};
    weft_resource_t *resource;
    CHECK_EQ(weft_resource_describe(&params, &resource), 0);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_WORKER, resource, library), 0);
    CHECK_EQ(weft_disassociate_resources_wait(resource, library), 0);
    CHECK_EQ(n, 0); /* both are posted to the other worker */
    CHECK_EQ(weft_resource_release(resource), 0);
    while (weft_worker_progress(two_b(&s.two), 0) > 0) continue;
    CHECK_EQ(n, 0);
    weft_worker_destroy(library);
    share_down(&s);
}

/* ---- waiting for an end that has begun ------------------------------------------------------- */

struct on_loop {
    weft_context_t *context;
    struct ev_loop *loop;
    weft_resource_t *resource;
    weft_worker_t *worker;
    weft_status_t within; /* of a wait within on_lost */
    int n_lost;
};

static void note_loss(void *object, weft_status_t status, void *arg) {
    struct on_loop *l = arg;
    l->n_lost++;
    l->within = weft_disassociate_resources_wait(l->resource, object);
}

static void loop_up(struct on_loop *l) {
    *l = (struct on_loop){.context = associated_context(), .loop = ev_loop_new(0)};
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_LOOP, l->loop);
    l->resource = describe(WEFT_RESOURCE_LOOP, &value, 1);
    l->worker = stub_worker(l->context);
    weft_associate_params_t params = {.resource = l->resource, .on_lost = note_loss, .arg = l};
    CHECK_EQ(weft_associate_resources(l->context, WEFT_OBJECT_WORKER, &params, l->worker), 0);
}

static const char *state_of(const struct on_loop *l) {
    return weft_association_state(l->context, WEFT_OBJECT_WORKER, l->worker);
}

static void loop_until(const struct on_loop *l, const char *state) {
    for (int i = 0; i < 10000 && strcmp(state_of(l), state) != 0; i++)
        ev_run(l->loop, EVRUN_NOWAIT);
    CHECK_EQ(strcmp(state_of(l), state), 0);
}

static void loop_down(struct on_loop *l) {
    weft_resource_info_t info;
    CHECK_EQ(weft_resource_info(l->resource, &info), 0);
    CHECK_EQ(info.n_users, 0);
    weft_worker_destroy(l->worker);
    CHECK_EQ(weft_resource_release(l->resource), 0);
    CHECK_EQ(weft_context_destroy(l->context), 0);
    ev_loop_destroy(l->loop);
}

TEST(a_wait_for_a_worker_that_lost_its_loop_returns_when_it_has_ended) {
    struct on_loop l;
    loop_up(&l);
    weft_resource_lose(l.resource);
    loop_until(&l, "LOST");
    CHECK_EQ(l.n_lost, 1);
    CHECK_EQ(l.within, WEFT_ERR_BUSY);
    CHECK_EQ(weft_disassociate_resources_wait(l.resource, l.worker), WEFT_ERR_RESOURCE_LOST);
    loop_down(&l);
}

TEST(a_wait_for_all_users_of_a_lost_loop_returns_when_they_have_ended) {
    struct on_loop l;
    loop_up(&l);
    weft_resource_lose(l.resource);
    loop_until(&l, "LOST");
    CHECK_EQ(weft_disassociate_resources_wait(l.resource, NULL), WEFT_OK);
    loop_down(&l);
}

TEST(a_wait_for_a_worker_whose_loop_is_withdrawn_returns_when_it_has_ended) {
    struct on_loop l;
    loop_up(&l);
    CHECK_EQ(weft_resource_withdraw(l.resource, NULL), WEFT_IN_PROGRESS);
    loop_until(&l, "DRAINING");
    CHECK_EQ(weft_disassociate_resources_wait(l.resource, l.worker), WEFT_OK);
    CHECK_EQ(strcmp(state_of(&l), "DISASSOCIATED"), 0);
    loop_down(&l);
}

TEST(a_worker_whose_loop_is_withdrawn_can_be_destroyed) {
    struct on_loop l;
    loop_up(&l);
    CHECK_EQ(weft_resource_withdraw(l.resource, NULL), WEFT_IN_PROGRESS);
    loop_until(&l, "DRAINING");
    weft_worker_destroy(l.worker);
    CHECK_EQ(weft_resource_release(l.resource), 0);
    CHECK_EQ(weft_context_destroy(l.context), 0);
    ev_loop_destroy(l.loop);
}

/* ---- ends without memory --------------------------------------------------------------------- */

static uint32_t n_users(weft_resource_t *resource) {
    weft_resource_info_t info;
    CHECK_EQ(weft_resource_info(resource, &info), 0);
    return info.n_users;
}

static void without_memory(bool lost) {
    struct sharing s;
    struct tally done = {0};
    share_up(&s, "self");
    weft__alloc_fail_run(1, 1000);
    if (lost)
        weft_resource_lose(s.resource[0]);
    else
        CHECK_EQ(weft_resource_withdraw(s.resource[0], OP(&done)), WEFT_IN_PROGRESS);
    weft__alloc_fail_at(0);
    UNTIL(&s.two, !n_users(s.resource[0]));
    UNTIL(&s.two, lost || done.calls == 1);
    share_down(&s);
}

static void count_events(weft_resource_t *resource, weft_resource_event_t event, void *arg) {
    ++((int *)arg)[event];
}

TEST(a_provider_is_notified_without_memory_of_a_loss_and_of_what_returns) {
    int n[3] = {0};
    weft_resource_value_t value = {"MY_POOL", "it", 3};
    weft_resource_params_t params = {
        .values = &value, .n_values = 1, .provider = {.notify = count_events, .arg = n}};
    weft_context_t *context = associated_context();
    weft_resource_t *resource;
    CHECK_EQ(weft_resource_describe(&params, &resource), 0);
    CHECK_EQ(associate(context, WEFT_OBJECT_CONTEXT, resource, context), 0);
    CHECK_EQ(n[WEFT_RESOURCE_TAKEN], 1);
    weft__alloc_fail_run(1, 1000);
    weft_resource_lose(resource);
    weft__alloc_fail_at(0);
    CHECK_EQ(n[WEFT_RESOURCE_LOST], 1);
    CHECK_EQ(n[WEFT_RESOURCE_RETURNED], 1);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_context_destroy(context), 0);
}

TEST(a_withdrawal_without_memory_reaches_each_user) {
    without_memory(false);
}
TEST(a_loss_without_memory_reaches_each_user) {
    without_memory(true);
}

/* ---- the time for a drain -------------------------------------------------------------------- */

/* A large message waits at its sender for longer than close.timeout. */
static void drain_beyond_close_timeout(bool of_endpoint) {
    static char big[1 << 20], got[1 << 20];
    struct sharing s;
    struct tally sent = {0}, received = {0}, done = {0};
    CHECK_EQ(setenv("WEFT_CLOSE_TIMEOUT", "50ms", 1), 0);
    share_up(&s, "shm");
    CHECK_EQ(unsetenv("WEFT_CLOSE_TIMEOUT"), 0);
    share_dial(&s);
    weft_ep_t *ep = s.ep, *set[1] = {s.ep};
    weft_resource_t *resource = s.resource[0];
    void *object = s.library[0];
    if (of_endpoint) {
        weft_resource_value_t value = VALUE(WEFT_RES_ENDPOINT_SET, set);
        resource = describe(WEFT_RESOURCE_ENDPOINTS, &value, 1);
        CHECK_EQ(weft_connect(s.library[0], NULL, &(weft_ep_params_t){.associated = 1}, &ep), 0);
        CHECK_EQ(associate(s.context, WEFT_OBJECT_ENDPOINT, resource, ep), 0);
        object = ep;
    }
    weft_op_t send = {.done = tally, .arg = &sent, .flags = WEFT_AM_RENDEZVOUS};
    CHECK_EQ(weft_tag_send(ep, 3, &(weft_iov_t){big, sizeof big}, 1, &send), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_disassociate_resources(resource, object, CLOSE_OP(&done)), WEFT_IN_PROGRESS);
    for (double end = test_now() + 0.3; test_now() < end;) two_turn(&s.two);
    CHECK_EQ(sent.calls, 0);
    weft_iov_t to = {got, sizeof got};
    CHECK(weft_tag_recv(s.library[1], 3, ~0ull, &to, 1, NULL, OP(&received)) >= 0);
    UNTIL(&s.two, sent.calls && received.calls && done.calls);
    CHECK_EQ(sent.status, WEFT_OK);
    CHECK_EQ(received.status, WEFT_OK);
    CHECK_EQ(done.status, WEFT_OK);
    if (of_endpoint) {
        CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, NULL), 0);
        CHECK_EQ(weft_resource_release(resource), 0);
    }
    share_down(&s);
}

TEST(a_worker_drains_until_its_deadline_where_close_timeout_is_shorter) {
    drain_beyond_close_timeout(false);
}

TEST(an_endpoint_drains_until_its_deadline_where_close_timeout_is_shorter) {
    drain_beyond_close_timeout(true);
}

TEST(a_worker_on_a_loop_takes_no_deadline_for_its_end) {
    struct on_loop l;
    struct tally done = {0};
    loop_up(&l);
    CHECK_EQ(weft_disassociate_resources(l.resource, l.worker, CLOSE_OP(&done)),
             WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(strcmp(state_of(&l), "READY"), 0);
    CHECK_EQ(weft_disassociate_resources_wait(l.resource, l.worker), WEFT_OK);
    CHECK_EQ(done.calls, 0);
    loop_down(&l);
}

/* ---- what calls return while an association ends --------------------------------------------- */

/* An endpoint to itself, and a region. */
struct busy {
    struct on_loop l;
    weft_ep_t *ep;
    weft_mem_t *mem;
};
static struct ending ending;

static void busy_up(struct busy *b) {
    char address[256];
    size_t len = sizeof address;
    *b = (struct busy){0};
    loop_up(&b->l);
    weft_worker_t *worker = b->l.worker;
    CHECK_EQ(weft_worker_address(worker, address, &len), 0);
    CHECK_EQ(weft_connect_address(worker, address, len, NULL, &b->ep), 0);
    CHECK_EQ(weft_mem_alloc(worker, 4096, NULL, &b->mem), 0);
    for (int i = 0; i < 100; i++) ev_run(b->l.loop, EVRUN_NOWAIT);
    ending_begin(&ending, worker, b->ep);
    for (int i = 0; i < 100; i++) ev_run(b->l.loop, EVRUN_NOWAIT);
}

static void busy_down(struct busy *b, weft_status_t status, const char *state) {
    loop_until(&b->l, state);
    CHECK_EQ(weft_disassociate_resources_wait(b->l.resource, b->l.worker),
             status == WEFT_ERR_RESOURCE_LOST ? status : WEFT_OK);
    ending_ended(&ending, status);
    CHECK_EQ(weft_worker_progress(b->l.worker, 0), status);
    loop_down(&b->l);
}

TEST(a_worker_that_returns_its_loop_is_disassociated_for_each_call_and_operation) {
    struct busy b;
    struct tally done = {0};
    busy_up(&b);
    CHECK_EQ(weft_disassociate_resources(b.l.resource, b.l.worker, OP(&done)), WEFT_IN_PROGRESS);
    ending_calls_return(&ending, WEFT_ERR_DISASSOCIATED);
    busy_down(&b, WEFT_ERR_DISASSOCIATED, "DRAINING");
    CHECK_EQ(done.calls, 1);
    CHECK_EQ(done.status, WEFT_OK);
}

/* A call that posts itself until it is refused, in the last turn of its worker. */
struct posting {
    weft_worker_t *worker;
    weft_status_t status;
    char described[512];
};
static void post_again(void *arg) {
    struct posting *p = arg;
    p->status = weft_worker_post(p->worker, post_again, p);
    weft_status_describe(p->status, p->described, sizeof p->described);
}

TEST(a_call_that_is_posted_in_the_last_turn_is_refused_as_others_are) {
    for (int by_loss = 0; by_loss < 2; by_loss++) {
        weft_status_t status = by_loss ? WEFT_ERR_RESOURCE_LOST : WEFT_ERR_DISASSOCIATED;
        struct on_loop l;
        struct tally done = {0};
        loop_up(&l);
        struct posting p = {.worker = l.worker};
        CHECK_EQ(weft_worker_post(l.worker, post_again, &p), WEFT_OK);
        for (int i = 0; i < 10; i++) ev_run(l.loop, EVRUN_NOWAIT);
        CHECK_EQ(p.status, WEFT_OK);
        if (by_loss)
            weft_resource_lose(l.resource);
        else
            CHECK_EQ(weft_disassociate_resources(l.resource, l.worker, OP(&done)),
                     WEFT_IN_PROGRESS);
        loop_until(&l, by_loss ? "LOST" : "DRAINING");
        CHECK_EQ(weft_disassociate_resources_wait(l.resource, l.worker),
                 by_loss ? status : WEFT_OK);
        CHECK_EQ(p.status, status);
        CHECK(strstr(p.described, "the worker was created in associated mode"));
        CHECK_EQ(weft_worker_post(l.worker, post_again, &p), status);
        loop_down(&l);
    }
}

TEST(a_worker_whose_loop_is_withdrawn_is_disassociated_for_its_calls) {
    struct busy b;
    busy_up(&b);
    CHECK_EQ(weft_resource_withdraw(b.l.resource, NULL), WEFT_IN_PROGRESS);
    loop_until(&b.l, "DRAINING");
    CHECK_EQ(weft_connect(b.l.worker, "tcp://127.0.0.1:1", NULL, &b.ep), WEFT_ERR_DISASSOCIATED);
    CHECK_EQ(weft_disassociate_resources_wait(b.l.resource, b.l.worker), WEFT_OK);
    CHECK_EQ(ending.sent.status, WEFT_ERR_DISASSOCIATED);
    loop_down(&b.l);
}

TEST(a_worker_that_lost_its_loop_has_lost_it_for_each_operation) {
    struct busy b;
    busy_up(&b);
    weft_resource_lose(b.l.resource);
    loop_until(&b.l, "LOST");
    weft_ep_t *ep;
    CHECK_EQ(weft_connect(b.l.worker, "tcp://127.0.0.1:1", NULL, &ep), WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(weft_disassociate_resources_wait(b.l.resource, b.l.worker), WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(ending.sent.status, WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(ending.received.status, WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(ending.streamed.status, WEFT_ERR_RESOURCE_LOST);
    loop_down(&b.l);
}

static struct ending_team in_team;
static bool turns_of_both(const struct busy *b, weft_worker_t *other) {
    ev_run(b->l.loop, EVRUN_NOWAIT);
    weft_worker_progress(other, 0);
    return true;
}
#define UNTIL_BOTH(b, other, cond)                                             \
    do {                                                                       \
        double both_end = test_now() + test_timeout(60);                       \
        while (!(cond) && test_now() < both_end) turns_of_both(&(b), (other)); \
        CHECK(cond);                                                           \
    } while (0)

/* The team and the endpoint are the program's, over a worker whose loop ends. */
static void loop_ends_under_a_team(bool by_loss) {
    weft_status_t status = by_loss ? WEFT_ERR_RESOURCE_LOST : WEFT_ERR_DISASSOCIATED;
    struct busy b;
    weft_context_t *context;
    weft_worker_t *other;
    weft_team_info_t info;
    CHECK_EQ(weft_context_create(NULL, &context), 0);
    CHECK_EQ(weft_worker_create(context, &(weft_worker_params_t){.transports = "self,tcp"}, &other),
             0);
    busy_up(&b);
    ending_team_begin(&in_team, b.l.worker, other);
    UNTIL_BOTH(b, other, ending_team_is_ready(&in_team));
    ending_team_waits(&in_team);
    for (int i = 0; i < 100; i++) turns_of_both(&b, other);
    CHECK_EQ(weft_disassociate_resources(b.l.resource, b.l.worker, NULL), WEFT_ERR_BUSY);
    if (by_loss)
        weft_resource_lose(b.l.resource);
    else
        CHECK_EQ(weft_resource_withdraw(b.l.resource, NULL), WEFT_IN_PROGRESS);
    UNTIL_BOTH(b, other, in_team.barrier.calls);
    ending_team_ended(&in_team, status);
    UNTIL_BOTH(b, other, weft_barrier(in_team.team[1], NULL) == WEFT_ERR_PEER_FAILED);
    CHECK_EQ(weft_team_describe(in_team.team[1], &info), 0);
    CHECK_EQ(info.blamed, 0);
    CHECK_EQ(weft_disassociate_resources_wait(b.l.resource, b.l.worker), by_loss ? status : 0);
    ending_ended(&ending, status);
    CHECK_EQ(weft_team_close_wait(in_team.team[1]), 0);
    weft_worker_destroy(other);
    CHECK_EQ(weft_context_destroy(context), 0);
    loop_down(&b.l);
}

TEST(a_collective_ends_with_the_association_of_its_worker_with_a_loop) {
    loop_ends_under_a_team(false);
    loop_ends_under_a_team(true);
}

/* It ends at once, of any kind. */
TEST(a_context_with_a_loop_is_disassociated_within_any_deadline) {
    struct ev_loop *loop = ev_loop_new(0);
    struct tally done = {0};
    weft_context_t *context = associated_context();
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_LOOP, loop);
    weft_resource_t *resource = describe(WEFT_RESOURCE_LOOP, &value, 1);
    CHECK_EQ(associate(context, WEFT_OBJECT_CONTEXT, resource, context), 0);
    CHECK_EQ(weft_disassociate_resources(resource, context, CLOSE_OP(&done)), 0);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_context_destroy(context), 0);
    ev_loop_destroy(loop);
}

/* ---- a child of fork ------------------------------------------------------------------------- */

static unsigned n_asked;
static unsigned be_asked(void *arg) {
    uint64_t n;
    n_asked += read(*(int *)arg, &n, sizeof n) > 0;
    return 0;
}

static weft_status_t end_in_child(int way, weft_resource_t *resource, weft_worker_t *worker) {
    switch (way) {
    case 0: return weft_resource_withdraw(resource, NULL);
    case 1: return weft_disassociate_resources(resource, worker, NULL);
    case 2: return weft_disassociate_resources(resource, NULL, NULL);
    case 3: return weft_disassociate_resources_wait(resource, NULL);
    case 4: return weft_resource_release(resource);
    default: weft_resource_lose(resource); return WEFT_ERR_FORKED;
    }
}

/* The sets of descriptors that the kernel keeps are those of both processes. */
TEST(a_child_that_ends_a_resource_of_its_parent_changes_nothing_there) {
    struct two t;
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    weft_events_t events = {.fd = fd, .progress = be_asked, .arg = &fd};
    two_workers(&t, "self", NULL, 0);
    CHECK(weft_worker_fd(t.a) >= 0);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_EVENTS, events);
    weft_resource_t *resource = describe(WEFT_RESOURCE_EVENTS, &value, 1);
    CHECK_EQ(associate(t.context, WEFT_OBJECT_WORKER, resource, t.a), 0);
    for (int way = 0; way < 6; way++) {
        int status;
        weft_resource_info_t info;
        pid_t pid = fork();
        if (pid == 0) _exit(end_in_child(way, resource, t.a) == WEFT_ERR_FORKED ? 0 : 1 + way);
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        n_asked = 0;
        CHECK_EQ(eventfd_write(fd, 1), 0);
        UNTIL(&t, n_asked);
        CHECK_EQ(WEXITSTATUS(status), 0);
        CHECK_EQ(weft_resource_info(resource, &info), 0);
        CHECK_EQ(info.n_users, 1);
    }
    CHECK_EQ(weft_disassociate_resources(resource, t.a, NULL), 0);
    CHECK_EQ(weft_resource_release(resource), 0);
    close(fd);
    two_down(&t);
}

/* ---- a provider's worker that is gone -------------------------------------------------------- */

/* The worker that the notices were for ends, and its program declares the loss. Users on another
 * worker drain later. */
TEST(a_withdrawal_that_ends_after_its_worker_is_completed_where_the_last_user_ends) {
    struct two t;
    struct tally done = {0};
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    weft_events_t events = {.fd = fd, .progress = be_asked, .arg = &fd};
    two_workers(&t, "shm", NULL, 0);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_EVENTS, events);
    weft_resource_params_t params = {
        .kind = WEFT_RESOURCE_EVENTS, .values = &value, .n_values = 1, .provider = {.worker = t.a}};
    weft_resource_t *resource;
    CHECK_EQ(weft_resource_describe(&params, &resource), 0);
    CHECK_EQ(associate(t.context, WEFT_OBJECT_WORKER, resource, t.b), 0);
    CHECK_EQ(weft_resource_withdraw(resource, OP(&done)), WEFT_IN_PROGRESS);
    weft_resource_lose(resource);
    weft_worker_destroy(t.a);
    t.a = NULL;
    UNTIL(&t, done.calls);
    CHECK_EQ(done.status, 0);
    CHECK_EQ(weft_resource_release(resource), 0);
    close(fd);
    two_down(&t);
}
