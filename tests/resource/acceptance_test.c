/* What lazy association promises, a test each; numbers 7, 17 and 18 have files of their own. */
#include "shared.h"

#include <pthread.h>

/* ---- a provider that counts ------------------------------------------------------------------ */

struct provider {
    int acquired, released, taken, returned, lost;
    int returned_before; /* the loss */
    int fail_at;         /* the call of acquire that fails; 0: none */
    char order[64];
    weft_resource_t *resource;
};

static weft_status_t acquire(weft_resource_t *resource, const weft_resource_value_t *value,
                             void *arg) {
    struct provider *p = arg;
    if (p->acquired - p->released + 1 == p->fail_at) return WEFT_ERR_QUOTA;
    p->acquired++;
    return WEFT_OK;
}
static void release(weft_resource_t *resource, const weft_resource_value_t *value, void *arg) {
    struct provider *p = arg;
    p->released++;
    strncat(p->order, value->key, 1);
}
static void notify(weft_resource_t *resource, weft_resource_event_t event, void *arg) {
    struct provider *p = arg;
    p->taken += event == WEFT_RESOURCE_TAKEN;
    p->returned += event == WEFT_RESOURCE_RETURNED;
    p->lost += event == WEFT_RESOURCE_LOST;
    if (event == WEFT_RESOURCE_LOST) p->returned_before = p->returned;
}

static void provide(struct provider *p, weft_worker_t *worker, weft_worker_t *notified) {
    weft_resource_value_t values[] = {
        {"A", "1", 2}, VALUE(WEFT_RES_WORKER_HANDLE, worker), {"C", "3", 2}, {"D", "4", 2}};
    weft_resource_params_t params = {.kind = WEFT_RESOURCE_WORKER,
                                     .values = values,
                                     .n_values = 4,
                                     .share = WEFT_SHARE_PART,
                                     .build_id = "one",
                                     .provider = {acquire, release, notify, notified, p}};
    CHECK_EQ(weft_resource_describe(&params, &p->resource), 0);
}

struct scene {
    struct two two;
    struct provider provider;
    weft_context_t *context;
    weft_worker_t *worker; /* the library's */
    int lost;
    weft_status_t lost_status;
};

static void on_lost(void *object, weft_status_t status, void *arg) {
    struct scene *s = arg;
    s->lost++;
    s->lost_status = status;
}

static void scene_up(struct scene *s, const char *transports) {
    memset(s, 0, sizeof *s);
    two_workers(&s->two, transports, NULL, 0);
    provide(&s->provider, s->two.a, s->two.a);
    s->context = associated_context();
    s->worker = stub_worker(s->context);
}

static weft_status_t scene_associate(struct scene *s) {
    weft_associate_params_t params = {
        .resource = s->provider.resource, .on_lost = on_lost, .arg = s};
    return weft_associate_resources(s->context, WEFT_OBJECT_WORKER, &params, s->worker);
}

static void scene_down(struct scene *s) {
    if (s->worker) weft_worker_destroy(s->worker);
    if (s->two.a)
        for (int i = 0; i < 8; i++) two_turn(&s->two);
    if (s->provider.resource) CHECK_EQ(weft_resource_release(s->provider.resource), 0);
    CHECK_EQ(weft_context_destroy(s->context), 0);
    two_down(&s->two);
}

static bool causes_name(weft_status_t status, const char *text) {
    char why[512];
    weft_status_describe(status, why, sizeof why);
    if (!strstr(why, text)) printf("  %s\n", why);
    return strstr(why, text) != NULL;
}

/* ---- 1 … 6 ----------------------------------------------------------------------------------- */

TEST(use_before_ready_is_not_associated) {
    struct scene s;
    struct weft_ep *ep;
    weft_mem_t *mem;
    weft_team_t *team;
    scene_up(&s, "self");
    CHECK_EQ(weft_worker_flush(s.worker, NULL), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(scene_associate(&s), 0);
    CHECK_EQ(weft_connect(s.worker, NULL, &(weft_ep_params_t){.associated = 1}, &ep), 0);
    CHECK_EQ(weft_mem_register(s.worker, NULL, 0,
                               &(weft_mem_params_t){.rights = WEFT_MEM_ALL, .associated = 1}, &mem),
             0);
    CHECK_EQ(weft_team_create(s.worker, &(weft_team_params_t){.associated = 1}, &team), 0);
    weft_ep_info_t info;
    weft_mem_info_t about;
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    CHECK_EQ(weft_am_send(ep, 1, NULL, 0, NULL, 0, NULL), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_tag_send(ep, 1, NULL, 0, NULL), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_ep_flush(ep, NULL), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_ep_describe(ep, &info), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_mem_pack(mem, key, &len), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_mem_describe(mem, &about), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_barrier(team, NULL), WEFT_ERR_NOT_ASSOCIATED);
    CHECK(weft_team_ep(team, 0) == NULL);
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, NULL), 0);
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    CHECK_EQ(weft_team_close(team, NULL), 0);
    scene_down(&s);
}

TEST(a_parent_that_is_not_in_associated_mode_is_refused_and_named) {
    struct two t;
    weft_worker_t *worker;
    weft_ep_t *ep;
    weft_mem_t *mem;
    weft_team_t *team;
    two_workers(&t, "self", NULL, 0);
    weft_status_t st =
        weft_worker_create(t.context, &(weft_worker_params_t){.associated = 1}, &worker);
    CHECK_EQ(st, WEFT_ERR_INVALID_PARAM);
    CHECK(causes_name(st, "context: the parent"));
    st = weft_connect(t.a, NULL, &(weft_ep_params_t){.associated = 1}, &ep);
    CHECK_EQ(st, WEFT_ERR_INVALID_PARAM);
    CHECK(causes_name(st, "worker: the parent"));
    st = weft_mem_register(t.a, &t, 8, &(weft_mem_params_t){.associated = 1}, &mem);
    CHECK_EQ(st, WEFT_ERR_INVALID_PARAM);
    CHECK(causes_name(st, "worker: the parent"));
    st = weft_team_create(t.a, &(weft_team_params_t){.associated = 1}, &team);
    CHECK_EQ(st, WEFT_ERR_INVALID_PARAM);
    CHECK(causes_name(st, "worker: the parent"));
    two_down(&t);
}

TEST(a_missing_mandatory_value_is_named) {
    struct scene s;
    scene_up(&s, "self");
    weft_resource_t *empty = describe(WEFT_RESOURCE_WORKER, NULL, 0);
    weft_status_t st = associate(s.context, WEFT_OBJECT_WORKER, empty, s.worker);
    CHECK_EQ(st, WEFT_ERR_INVALID_PARAM);
    CHECK(causes_name(st, WEFT_RES_WORKER_HANDLE));
    CHECK_EQ(weft_worker_progress(s.worker, 0), WEFT_ERR_NOT_ASSOCIATED);
    /* The consumer's own value completes it. */
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_HANDLE, s.two.a);
    weft_associate_params_t params = {.resource = empty, .values = &value, .n_values = 1};
    CHECK_EQ(weft_associate_resources(s.context, WEFT_OBJECT_WORKER, &params, s.worker), 0);
    CHECK_EQ(weft_disassociate_resources_wait(empty, s.worker), 0);
    CHECK_EQ(weft_resource_release(empty), 0);

    const char *mandatory[] = {"MY_OWN"};
    weft_resource_t *own;
    CHECK_EQ(weft_resource_describe(
                 &(weft_resource_params_t){.mandatory = mandatory, .n_mandatory = 1}, &own),
             0);
    st = associate(s.context, WEFT_OBJECT_CONTEXT, own, s.context);
    CHECK(causes_name(st, "MY_OWN"));
    CHECK_EQ(weft_resource_release(own), 0);
    scene_down(&s);
}

TEST(values_may_be_freed_after_the_call) {
    char *key = strdup("MY_KEY"), *text = strdup("my value");
    weft_resource_value_t *value = malloc(sizeof *value);
    *value = (weft_resource_value_t){key, text, 9};
    weft_resource_t *resource = describe(WEFT_RESOURCE_USER, value, 1);
    memset(key, 'x', 6), memset(text, 'x', 8);
    free(key), free(text), free(value);
    const void *copy;
    size_t len;
    CHECK_EQ(weft_resource_value(resource, "MY_KEY", &copy, &len), 0);
    CHECK(len == 9 && strcmp(copy, "my value") == 0);
    CHECK_EQ(weft_resource_value(resource, "OTHER", &copy, &len), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(weft_resource_release(resource), 0);
}

TEST(a_failure_at_the_kth_value_leaves_nothing_attached) {
    struct scene s;
    scene_up(&s, "self");
    for (int k = 1; k <= 4; k++) {
        struct provider *p = &s.provider;
        p->acquired = p->released = 0;
        p->fail_at = k;
        *p->order = 0;
        weft_status_t st = scene_associate(&s);
        CHECK_EQ(st, WEFT_ERR_QUOTA);
        CHECK_EQ(p->acquired, k - 1);
        CHECK_EQ(p->released, k - 1);
        CHECK_EQ(strcmp(p->order, k == 4 ? "CWA" : k == 3 ? "WA" : k == 2 ? "A" : ""), 0);
        CHECK_EQ(p->taken, 0);
        CHECK_EQ(weft_worker_progress(s.worker, 0), WEFT_ERR_NOT_ASSOCIATED);
        weft_resource_info_t info;
        CHECK_EQ(weft_resource_info(p->resource, &info), 0);
        CHECK_EQ(info.n_users, 0);
    }
    s.provider.fail_at = 0;
    CHECK_EQ(scene_associate(&s), 0);
    scene_down(&s);
    CHECK_EQ(s.provider.acquired, s.provider.released);
    CHECK_EQ(s.provider.taken, 1);
    CHECK_EQ(s.provider.returned, 1);
}

/* Every allocation of an association fails in turn. */
TEST(a_failed_allocation_leaves_nothing_attached) {
    struct scene s;
    scene_up(&s, "self");
    weft_status_t st = WEFT_ERR_NO_MEMORY;
    for (uint64_t k = 1; st != WEFT_OK; k++) {
        weft__alloc_fail_at(k);
        st = scene_associate(&s);
        weft__alloc_fail_at(0);
        CHECK(st == WEFT_OK || st == WEFT_ERR_NO_MEMORY);
        CHECK_EQ(s.provider.acquired - s.provider.released, st == WEFT_OK ? 4 : 0);
        CHECK(k < 100);
    }
    scene_down(&s);
}

TEST(another_version_is_refused_before_any_callback) {
    struct scene s;
    weft_resource_t *resource;
    scene_up(&s, "self");
    CHECK_EQ(weft_resource_describe(&(weft_resource_params_t){.abi_version = 99}, &resource),
             WEFT_ERR_VERSION_MISMATCH);
    weft_associate_params_t params = {.resource = s.provider.resource, .abi_version = 99};
    CHECK_EQ(weft_associate_resources(s.context, WEFT_OBJECT_WORKER, &params, s.worker),
             WEFT_ERR_VERSION_MISMATCH);
    params = (weft_associate_params_t){.resource = s.provider.resource, .build_id = "two"};
    weft_status_t st = weft_associate_resources(s.context, WEFT_OBJECT_WORKER, &params, s.worker);
    CHECK_EQ(st, WEFT_ERR_VERSION_MISMATCH);
    CHECK(causes_name(st, "build one"));
    CHECK_EQ(s.provider.acquired, 0);
    params.build_id = "one";
    CHECK_EQ(weft_associate_resources(s.context, WEFT_OBJECT_WORKER, &params, s.worker), 0);
    scene_down(&s);
}

/* ---- 8 --------------------------------------------------------------------------------------- */

static void *associate_elsewhere(void *arg) {
    struct scene *s = arg;
    return (void *)(intptr_t)scene_associate(s);
}

TEST(a_single_threaded_resource_is_refused_to_another_thread) {
    struct scene s;
    pthread_t thread;
    void *result;
    scene_up(&s, "self");
    pthread_create(&thread, NULL, associate_elsewhere, &s);
    pthread_join(thread, &result);
    CHECK_EQ((intptr_t)result, WEFT_ERR_NOT_SHAREABLE);
    CHECK_EQ(s.provider.acquired, s.provider.released);
    CHECK_EQ(scene_associate(&s), 0);
    scene_down(&s);
}

TEST(a_resource_that_is_shared_as_a_whole_has_one_user) {
    struct two t;
    two_workers(&t, "self", NULL, 0);
    weft_context_t *context = associated_context();
    weft_worker_t *one = stub_worker(context), *other = stub_worker(context);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_HANDLE, t.a);
    weft_resource_t *resource;
    CHECK_EQ(weft_resource_describe(&(weft_resource_params_t){.kind = WEFT_RESOURCE_WORKER,
                                                              .values = &value,
                                                              .n_values = 1},
                                    &resource),
             0);
    CHECK_EQ(associate(context, WEFT_OBJECT_WORKER, resource, one), 0);
    CHECK_EQ(associate(context, WEFT_OBJECT_WORKER, resource, other), WEFT_ERR_NOT_SHAREABLE);
    CHECK_EQ(associate(context, WEFT_OBJECT_WORKER, resource, one), WEFT_ERR_ALREADY_ASSOCIATED);
    CHECK_EQ(weft_resource_release(resource), WEFT_ERR_BUSY);
    CHECK_EQ(weft_disassociate_resources_wait(resource, one), 0);
    CHECK_EQ(associate(context, WEFT_OBJECT_WORKER, resource, other), 0);
    weft_worker_destroy(one);
    weft_worker_destroy(other);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_context_destroy(context), 0);
    two_down(&t);
}

/* ---- 9 … 13: ends ---------------------------------------------------------------------------- */

/* Operations under way: a send that waits for its receiver, and receives without a message. */
struct under_way {
    struct tally send, recv[2];
    char bytes[1 << 20], got[16];
};

static void put_under_way(struct scene *s, struct under_way *u, weft_ep_t **ep_p) {
    char address[256];
    size_t len = sizeof address;
    memset(u, 0, sizeof *u);
    CHECK_EQ(weft_worker_address(two_b(&s->two), address, &len), 0);
    CHECK_EQ(weft_connect_address(s->worker, address, len, NULL, ep_p), 0);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(weft_tag_recv(s->worker, 5 + (uint64_t)i, ~0ull, &(weft_iov_t){u->got, 16}, 1,
                               NULL, OP(&u->recv[i])),
                 WEFT_IN_PROGRESS);
    weft_op_t op = {.done = tally, .arg = &u->send, .flags = WEFT_AM_RENDEZVOUS};
    CHECK_EQ(weft_tag_send(*ep_p, 3, &(weft_iov_t){u->bytes, sizeof u->bytes}, 1, &op),
             WEFT_IN_PROGRESS);
    for (int i = 0; i < 50; i++) two_turn(&s->two);
    CHECK_EQ(u->send.calls, 0);
}

static void ended_once(const struct under_way *u) {
    CHECK_EQ(u->send.calls, 1);
    CHECK_EQ(u->recv[0].calls, 1);
    CHECK_EQ(u->recv[1].calls, 1);
}

static struct under_way under_way;

TEST(disassociation_ends_each_operation_once_and_then_notifies) {
    struct scene s;
    struct tally done = {0};
    weft_ep_t *ep;
    static char big[1 << 20];
    scene_up(&s, "shm");
    CHECK_EQ(scene_associate(&s), 0);
    put_under_way(&s, &under_way, &ep);
    CHECK_EQ(weft_disassociate_resources(s.provider.resource, s.worker, OP(&done)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(strcmp(weft_association_state(s.context, WEFT_OBJECT_WORKER, s.worker), "DRAINING"),
             0);
    CHECK_EQ(weft_worker_flush(s.worker, NULL), WEFT_ERR_DISASSOCIATED);
    for (int i = 0; i < 20; i++) two_turn(&s.two);
    CHECK_EQ(done.calls, 0); /* the send is under way */
    CHECK_EQ(s.provider.returned, 0);
    /* its receiver comes: it ends well */
    struct tally received = {0};
    weft_lease_t lease = {.tag_first = 1ull << 63};
    CHECK_EQ(weft_tag_recv(two_b(&s.two), lease.tag_first | 3, ~0ull,
                           &(weft_iov_t){big, sizeof big}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    UNTIL(&s.two, done.calls && s.provider.returned);
    ended_once(&under_way);
    CHECK_EQ(under_way.send.status, 0);
    CHECK_EQ(under_way.recv[0].status, WEFT_ERR_DISASSOCIATED);
    CHECK_EQ(done.status, 0);
    CHECK_EQ(s.provider.returned, 1);
    CHECK_EQ(s.provider.acquired, s.provider.released);
    scene_down(&s);
}

TEST(a_drain_that_takes_too_long_ends_as_lost) {
    struct scene s;
    struct tally done = {0};
    weft_ep_t *ep;
    scene_up(&s, "shm");
    CHECK_EQ(scene_associate(&s), 0);
    put_under_way(&s, &under_way, &ep);
    weft_op_t op = {.done = tally, .arg = &done, .deadline_ms = 30};
    CHECK_EQ(weft_disassociate_resources(s.provider.resource, s.worker, &op), WEFT_IN_PROGRESS);
    UNTIL(&s.two, done.calls);
    ended_once(&under_way);
    CHECK_EQ(done.status, WEFT_ERR_RESOURCE_LOST);
    CHECK(under_way.send.status < 0);
    CHECK_EQ(s.lost, 1);
    scene_down(&s);
}

TEST(users_that_the_deadline_of_a_withdrawal_cuts_off_are_notified) {
    struct scene s;
    struct tally done = {0};
    weft_ep_t *ep;
    scene_up(&s, "shm");
    CHECK_EQ(scene_associate(&s), 0);
    put_under_way(&s, &under_way, &ep);
    weft_op_t op = {.done = tally, .arg = &done, .deadline_ms = 30};
    CHECK_EQ(weft_resource_withdraw(s.provider.resource, &op), WEFT_IN_PROGRESS);
    CHECK_EQ(s.lost, 0);
    UNTIL(&s.two, done.calls);
    ended_once(&under_way);
    CHECK_EQ(s.lost, 1);
    CHECK_EQ(s.lost_status, WEFT_ERR_RESOURCE_LOST);
    scene_down(&s);
}

TEST(a_second_disassociation_is_harmless) {
    struct scene s;
    struct tally done = {0}, again = {0};
    weft_ep_t *ep;
    scene_up(&s, "shm");
    CHECK_EQ(scene_associate(&s), 0);
    put_under_way(&s, &under_way, &ep);
    weft_op_t op = {.done = tally, .arg = &done, .deadline_ms = 30};
    CHECK_EQ(weft_disassociate_resources(s.provider.resource, s.worker, &op), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_disassociate_resources(s.provider.resource, s.worker, OP(&again)), 0);
    UNTIL(&s.two, done.calls);
    CHECK_EQ(weft_disassociate_resources(s.provider.resource, s.worker, OP(&again)), 0);
    for (int i = 0; i < 10; i++) two_turn(&s.two);
    CHECK_EQ(done.calls, 1);
    CHECK_EQ(again.calls, 0);
    scene_down(&s);
}

TEST(a_disassociation_refuses_what_it_cannot_do) {
    struct scene s;
    weft_completion_t completion = {.count = 0};
    const weft_layout_t layout = {.kind = WEFT_LAYOUT_STRIDED};
    scene_up(&s, "shm");
    CHECK_EQ(scene_associate(&s), 0);
    weft_resource_t *resource = s.provider.resource;
    void *const objects[] = {s.worker, NULL}; /* NULL: all of the resource */
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(weft_disassociate_resources(resource, objects[i],
                                             &(weft_op_t){.completion = &completion}),
                 WEFT_ERR_UNSUPPORTED);
        CHECK_EQ(weft_disassociate_resources(resource, objects[i], &(weft_op_t){.layout = &layout}),
                 WEFT_ERR_UNSUPPORTED);
    }
    CHECK_EQ(weft_resource_withdraw(resource, &(weft_op_t){.layout = &layout}),
             WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(completion.count, 0);
    CHECK_EQ(strcmp(weft_association_state(s.context, WEFT_OBJECT_WORKER, s.worker), "READY"), 0);
    scene_down(&s);
}

TEST(a_provider_that_is_destroyed_first_is_lost) {
    struct scene s;
    weft_ep_t *ep;
    scene_up(&s, "shm");
    CHECK_EQ(scene_associate(&s), 0);
    put_under_way(&s, &under_way, &ep);
    CHECK_EQ(weft_worker_close(s.two.a, &(weft_op_t){.done = two_gone, .arg = &s.two.a}),
             WEFT_IN_PROGRESS);
    UNTIL(&s.two, !s.two.a);
    CHECK_EQ(s.lost, 1);
    CHECK_EQ(s.provider.lost, 1);
    CHECK_EQ(s.lost_status, WEFT_ERR_RESOURCE_LOST);
    ended_once(&under_way);
    CHECK_EQ(under_way.recv[0].status, WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(under_way.send.status, WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(weft_worker_flush(s.worker, NULL), WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(strcmp(weft_association_state(s.context, WEFT_OBJECT_WORKER, s.worker), "LOST"), 0);
    scene_down(&s);
}

TEST(a_fatal_error_reaches_all_users) {
    struct scene s;
    weft_worker_t *more[3];
    scene_up(&s, "self");
    CHECK_EQ(scene_associate(&s), 0);
    for (int i = 0; i < 3; i++) {
        more[i] = stub_worker(s.context);
        weft_associate_params_t params = {
            .resource = s.provider.resource, .on_lost = on_lost, .arg = &s};
        CHECK_EQ(weft_associate_resources(s.context, WEFT_OBJECT_WORKER, &params, more[i]), 0);
    }
    weft_resource_lose(s.provider.resource);
    UNTIL(&s.two, s.lost == 4);
    weft_resource_info_t info = {.n_users = 1};
    UNTIL(&s.two, weft_resource_info(s.provider.resource, &info) == 0 && info.n_users == 0);
    CHECK_EQ(info.status, WEFT_ERR_RESOURCE_LOST);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_worker_flush(more[i], NULL), WEFT_ERR_RESOURCE_LOST);
        weft_worker_destroy(more[i]);
    }
    CHECK_EQ(scene_associate(&s), WEFT_ERR_NOT_SHAREABLE);
    scene_down(&s);
}

TEST(a_loss_that_a_user_declares_reaches_the_provider_and_the_other_users) {
    struct scene s;
    weft_resource_info_t info = {.n_users = 1};
    scene_up(&s, "self");
    weft_worker_t *other = stub_worker(s.context);
    CHECK_EQ(scene_associate(&s), 0);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_WORKER, s.provider.resource, other), 0);
    weft_resource_lose(s.provider.resource); /* the user finds that it does not work */
    CHECK_EQ(s.provider.lost, 1);            /* within the call */
    weft_resource_lose(s.provider.resource);
    UNTIL(&s.two, weft_resource_info(s.provider.resource, &info) == 0 && info.n_users == 0);
    UNTIL(&s.two, s.provider.returned == 2);
    CHECK_EQ(weft_resource_withdraw(s.provider.resource, NULL), WEFT_OK); /* it stays lost */
    CHECK_EQ(weft_resource_info(s.provider.resource, &info), 0);
    CHECK_EQ(info.status, WEFT_ERR_RESOURCE_LOST);
    weft_resource_lose(s.provider.resource);
    CHECK_EQ(s.provider.lost, 1);
    CHECK_EQ(s.provider.returned_before, 0);
    CHECK_EQ(s.lost, 1);
    CHECK_EQ(weft_worker_flush(other, NULL), WEFT_ERR_RESOURCE_LOST);
    weft_worker_destroy(other);
    scene_down(&s);
}

static void release_when_lost(weft_resource_t *resource, weft_resource_event_t event, void *arg) {
    *(weft_status_t *)arg = weft_resource_release(resource);
}

/* The provider finds out in `acquire`: the association is made, and lost at once. */
static weft_status_t acquire_and_lose(weft_resource_t *resource, const weft_resource_value_t *value,
                                      void *arg) {
    weft_resource_lose(resource);
    return WEFT_OK;
}

TEST(a_resource_that_is_lost_while_it_is_acquired_is_lost_to_its_user) {
    for (int of_context = 0; of_context < 2; of_context++) {
        struct scene s;
        scene_up(&s, "self");
        weft_resource_value_t values[] = {{"A", "1", 2}, VALUE(WEFT_RES_WORKER_HANDLE, s.two.a)};
        weft_resource_params_t params = {.kind = WEFT_RESOURCE_WORKER,
                                         .values = values,
                                         .n_values = 2,
                                         .provider = {.acquire = acquire_and_lose}};
        weft_resource_t *resource;
        CHECK_EQ(weft_resource_describe(&params, &resource), 0);
        weft_associate_params_t lost = {.resource = resource, .on_lost = on_lost, .arg = &s};
        CHECK_EQ(of_context
                     ? weft_associate_resources(s.context, WEFT_OBJECT_CONTEXT, &lost, s.context)
                     : weft_associate_resources(s.context, WEFT_OBJECT_WORKER, &lost, s.worker),
                 0);
        UNTIL(&s.two, s.lost == 1);
        CHECK_EQ(s.lost_status, WEFT_ERR_RESOURCE_LOST);
        weft_resource_info_t info = {.n_users = 1};
        UNTIL(&s.two, weft_resource_info(resource, &info) == WEFT_OK && !info.n_users);
        CHECK_EQ(weft_resource_release(resource), 0);
        scene_down(&s);
    }
}

TEST(a_provider_that_is_notified_of_a_loss_may_release_the_resource) {
    weft_status_t released = WEFT_ERR_INTERNAL;
    weft_resource_t *resource;
    weft_resource_params_t params = {.provider = {.notify = release_when_lost, .arg = &released}};
    CHECK_EQ(weft_resource_describe(&params, &resource), 0);
    weft__alloc_fail_run(1, 1000); /* it needs no memory */
    weft_resource_lose(resource);
    weft__alloc_fail_at(0);
    CHECK_EQ(released, 0);
}

TEST(a_withdrawal_lets_all_users_drain) {
    struct scene s;
    struct tally done = {0};
    scene_up(&s, "self");
    weft_worker_t *other = stub_worker(s.context);
    CHECK_EQ(scene_associate(&s), 0);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_WORKER, s.provider.resource, other), 0);
    CHECK_EQ(weft_resource_withdraw(s.provider.resource, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&s.two, done.calls);
    CHECK_EQ(weft_worker_flush(other, NULL), WEFT_ERR_DISASSOCIATED);
    CHECK_EQ(weft_worker_flush(s.worker, NULL), WEFT_ERR_DISASSOCIATED);
    CHECK_EQ(scene_associate(&s), WEFT_ERR_NOT_SHAREABLE);
    CHECK_EQ(weft_resource_withdraw(s.provider.resource, OP(&done)), 0);
    weft_worker_destroy(other);
    scene_down(&s);
}

TEST(a_withdrawal_that_takes_too_long_loses_the_users_that_are_left) {
    struct scene s;
    struct tally done = {0};
    weft_ep_t *ep;
    scene_up(&s, "shm");
    CHECK_EQ(scene_associate(&s), 0);
    put_under_way(&s, &under_way, &ep);
    weft_op_t op = {.done = tally, .arg = &done, .deadline_ms = 30};
    CHECK_EQ(weft_resource_withdraw(s.provider.resource, &op), WEFT_IN_PROGRESS);
    UNTIL(&s.two, done.calls && s.provider.returned);
    ended_once(&under_way);
    CHECK_EQ(under_way.send.status, WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(strcmp(weft_association_state(s.context, WEFT_OBJECT_WORKER, s.worker), "LOST"), 0);
    CHECK_EQ(weft_worker_flush(s.worker, NULL), WEFT_ERR_RESOURCE_LOST);
    scene_down(&s);
}

static int handled;
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    handled++;
}

TEST(another_resource_resumes) {
    struct scene s;
    weft_ep_t *ep;
    char address[256];
    handled = 0;
    scene_up(&s, "shm");
    CHECK_EQ(weft_am_handler_set(s.worker, 3, on_message, NULL), 0);
    weft_resource_t *second = worker_resource(s.two.b);
    for (int i = 0; i < 4; i++) {
        size_t len = sizeof address;
        weft_resource_t *resource = i & 1 ? second : s.provider.resource;
        CHECK_EQ(associate(s.context, WEFT_OBJECT_WORKER, resource, s.worker), 0);
        CHECK_EQ(weft_worker_address(s.worker, address, &len), 0);
        CHECK_EQ(weft_connect_address(s.worker, address, len, NULL, &ep), 0);
        CHECK(weft_am_send(ep, 3, NULL, 0, &(weft_iov_t){"x", 1}, 1, NULL) >= 0);
        UNTIL(&s.two, handled == i + 1);
        struct tally done = {0};
        CHECK_EQ(weft_disassociate_resources(resource, s.worker, OP(&done)), WEFT_IN_PROGRESS);
        UNTIL(&s.two, done.calls);
        CHECK_EQ(done.status, 0);
        CHECK_EQ(weft_worker_flush(s.worker, NULL), WEFT_ERR_DISASSOCIATED);
    }
    CHECK_EQ(weft_resource_release(second), 0);
    scene_down(&s);
}

/* ---- 14 … 16 --------------------------------------------------------------------------------- */

TEST(an_exhausted_lease_is_reported_and_recycled) {
    struct two t;
    enum { MOST = 8 };
    weft_worker_t *worker[MOST + 1];
    two_workers(&t, "self", NULL, 0);
    weft_context_t *context = associated_context();
    weft_resource_t *resource = worker_resource(t.a);
    weft_associate_params_t params = {.resource = resource, .lease = {.tag_bits = 60}};
    for (int i = 0; i <= MOST; i++) worker[i] = stub_worker(context);
    for (int i = 0; i < MOST; i++)
        CHECK_EQ(weft_associate_resources(context, WEFT_OBJECT_WORKER, &params, worker[i]), 0);
    CHECK_EQ(weft_associate_resources(context, WEFT_OBJECT_WORKER, &params, worker[MOST]),
             WEFT_ERR_LEASE_EXHAUSTED);
    params.lease = (weft_lease_t){.am_first = 512, .am_count = 1, .tag_bits = 1};
    CHECK_EQ(weft_associate_resources(context, WEFT_OBJECT_WORKER, &params, worker[MOST]),
             WEFT_ERR_LEASE_EXHAUSTED); /* taken by the first */
    CHECK_EQ(weft_worker_flush(worker[MOST], NULL), WEFT_ERR_NOT_ASSOCIATED);
    weft_lease_t before, after;
    CHECK_EQ(weft_worker_lease(worker[3], &before), 0);
    CHECK_EQ(weft_disassociate_resources_wait(resource, worker[3]), 0);
    params.lease = (weft_lease_t){.tag_bits = 60};
    CHECK_EQ(weft_associate_resources(context, WEFT_OBJECT_WORKER, &params, worker[MOST]), 0);
    CHECK_EQ(weft_worker_lease(worker[MOST], &after), 0);
    CHECK(before.am_first == after.am_first && before.tag_first == after.tag_first);
    for (int i = 0; i <= MOST; i++) weft_worker_destroy(worker[i]);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_context_destroy(context), 0);
    two_down(&t);
}

TEST(parents_outlive_their_children) {
    struct scene s;
    weft_worker_t *worker;
    scene_up(&s, "self");
    CHECK_EQ(weft_context_destroy(s.context), WEFT_ERR_BUSY);
    CHECK_EQ(scene_associate(&s), 0);
    CHECK_EQ(weft_worker_close(s.worker, NULL), WEFT_ERR_BUSY);
    CHECK_EQ(weft_resource_release(s.provider.resource), WEFT_ERR_BUSY);
    /* a context without a resource has no ordinary workers */
    CHECK_EQ(weft_worker_create(s.context, NULL, &worker), WEFT_ERR_NOT_ASSOCIATED);
    weft_resource_t *own = describe(WEFT_RESOURCE_USER, NULL, 0);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_CONTEXT, own, s.context), 0);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_CONTEXT, own, s.context),
             WEFT_ERR_ALREADY_ASSOCIATED);
    CHECK_EQ(weft_worker_create(s.context, NULL, &worker), 0);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_disassociate_resources(own, s.context, NULL), 0);
    CHECK_EQ(weft_worker_create(s.context, NULL, &worker), WEFT_ERR_DISASSOCIATED);
    CHECK_EQ(weft_resource_release(own), 0);
    scene_down(&s);
}

struct racer {
    pthread_t thread;
    pthread_barrier_t *start;
    weft_context_t *context;
    weft_resource_t *resource;
    weft_status_t status;
};

static void *race(void *arg) {
    struct racer *r = arg;
    pthread_barrier_wait(r->start);
    r->status = associate(r->context, WEFT_OBJECT_CONTEXT, r->resource, r->context);
    return NULL;
}

TEST(of_two_threads_that_associate_at_once_one_wins) {
    for (int round = 0; round < 100; round++) {
        weft_context_t *context = associated_context();
        pthread_barrier_t start;
        struct racer racer[2];
        weft_resource_params_t params = {.thread_mode = WEFT_THREAD_MULTIPLE,
                                         .share = WEFT_SHARE_PART};
        pthread_barrier_init(&start, NULL, 2);
        for (int i = 0; i < 2; i++) {
            racer[i] = (struct racer){.start = &start, .context = context};
            CHECK_EQ(weft_resource_describe(&params, &racer[i].resource), 0);
        }
        for (int i = 0; i < 2; i++) pthread_create(&racer[i].thread, NULL, race, &racer[i]);
        for (int i = 0; i < 2; i++) pthread_join(racer[i].thread, NULL);
        int winner = racer[0].status == WEFT_OK ? 0 : 1;
        CHECK_EQ(racer[winner].status, 0);
        CHECK_EQ(racer[!winner].status, WEFT_ERR_ALREADY_ASSOCIATED);
        CHECK_EQ(weft_disassociate_resources(racer[winner].resource, context, NULL), 0);
        for (int i = 0; i < 2; i++) CHECK_EQ(weft_resource_release(racer[i].resource), 0);
        CHECK_EQ(weft_context_destroy(context), 0);
        pthread_barrier_destroy(&start);
    }
}
