/* What a library that is given a worker can ask of it, and capabilities by their names. */
#include <ev.h>
#include <tests/support/worker_pair.h>
#include <weft/resource.h>

static weft_worker_info_t described(weft_worker_t *worker) {
    weft_worker_info_t info;
    CHECK_EQ(weft_worker_describe(worker, &info), 0);
    return info;
}

TEST(a_worker_has_a_name_an_id_and_a_thread_mode) {
    struct two t;
    two_up(&t, "tcp");
    weft_ep_info_t ep;
    CHECK_EQ(weft_ep_describe(t.ep, &ep), 0);
    CHECK_EQ(described(t.b).id, ep.peer_worker);
    CHECK(described(t.a).id != described(t.b).id);
    CHECK_EQ(strcmp(described(t.a).name, ""), 0);
    CHECK_EQ(described(t.a).thread_mode, WEFT_THREAD_SINGLE);
    CHECK(!described(t.a).on_loop && !described(t.a).has_thread && !described(t.a).is_associated);
    two_down(&t);
}

TEST(a_worker_reports_what_drives_it) {
    weft_context_t *context;
    weft_worker_t *worker;
    CHECK_EQ(weft_context_create(NULL, &context), 0);
    weft_worker_params_t params = {
        .transports = "self", .thread_mode = WEFT_THREAD_MULTIPLE, .name = "mine"};
    CHECK_EQ(weft_worker_create(context, &params, &worker), 0);
    CHECK_EQ(strcmp(described(worker).name, "mine"), 0);
    CHECK_EQ(described(worker).thread_mode, WEFT_THREAD_MULTIPLE);
    for (int polled = 0; polled < 2; polled++) {
        weft_thread_params_t thread = {.callbacks = polled ? WEFT_CALLBACKS_POLLED
                                                           : WEFT_CALLBACKS_ON_THREAD};
        CHECK_EQ(weft_worker_start_thread(worker, &thread), 0);
        CHECK(described(worker).has_thread); /* by another thread than the owner's */
        CHECK_EQ(described(worker).callbacks, thread.callbacks);
        CHECK_EQ(weft_worker_stop_thread(worker), 0);
        CHECK(!described(worker).has_thread);
        CHECK_EQ(described(worker).callbacks, WEFT_CALLBACKS_ON_THREAD);
    }
    weft_worker_destroy(worker);

    struct ev_loop *loop = ev_loop_new(0);
    params = (weft_worker_params_t){.transports = "self", .loop = loop};
    CHECK_EQ(weft_worker_create(context, &params, &worker), 0);
    CHECK(described(worker).on_loop);
    weft_worker_destroy(worker);
    ev_loop_destroy(loop);
    CHECK_EQ(weft_context_destroy(context), 0);
}

TEST(a_library_learns_of_the_worker_that_it_works_by) {
    struct two t;
    weft_context_t *context;
    weft_worker_t *library;
    weft_resource_t *resource;
    weft_worker_info_t info;
    two_up(&t, "tcp");
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.associated = 1}, &context), 0);
    weft_worker_params_t params = {.associated = 1, .name = "library"};
    CHECK_EQ(weft_worker_create(context, &params, &library), 0);
    CHECK_EQ(weft_worker_describe(library, &info), WEFT_ERR_NOT_ASSOCIATED);
    weft_resource_params_t part = {.share = WEFT_SHARE_PART};
    CHECK_EQ(weft_resource_export(WEFT_OBJECT_WORKER, t.a, WEFT_RESOURCE_WORKER, &part, &resource),
             0);
    weft_associate_params_t associate = {.resource = resource};
    CHECK_EQ(weft_associate_resources(context, WEFT_OBJECT_WORKER, &associate, library), 0);
    info = described(library);
    CHECK(info.is_associated && info.id == described(t.a).id);
    CHECK_EQ(strcmp(info.name, "library"), 0);
    CHECK_EQ(weft_disassociate_resources_wait(resource, library), 0);
    CHECK_EQ(weft_worker_describe(library, &info), WEFT_ERR_DISASSOCIATED);
    weft_worker_destroy(library);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_context_destroy(context), 0);
    two_down(&t);
}

TEST(a_transport_that_is_not_open_has_a_reason) {
    weft_context_t *context;
    weft_worker_t *worker;
    const char *name = NULL, *why = NULL;
    weft_setting_t absent = {"rdma.device", "no-such-device"};
    weft_context_params_t settings = {.settings = &absent, .n_settings = 1};
    CHECK_EQ(weft_context_create(&settings, &context), 0);
    weft_worker_params_t params = {.transports = "self,rdma_ud"};
    weft_status_t st = weft_worker_create(context, &params, &worker);
    if (st == WEFT_ERR_INVALID_PARAM) {
        CHECK_EQ(weft_context_destroy(context), 0);
        SKIP("built without rdma");
    }
    CHECK_EQ(st, 0);
    CHECK_EQ(weft_worker_unopened(worker, 0, &name, &why), 0);
    CHECK_EQ(strcmp(name, "rdma_ud"), 0);
    CHECK(strlen(why) > 10);
    CHECK_EQ(weft_worker_unopened(worker, 1, &name, &why), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(weft_worker_unopened(NULL, 0, &name, &why), WEFT_ERR_INVALID_PARAM);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(context), 0);
}

TEST(a_worker_without_any_transport_names_the_reason_of_each) {
    weft_context_t *context;
    weft_worker_t *worker;
    char text[1024];
    weft_setting_t absent = {"rdma.device", "no-such-device"};
    weft_context_params_t settings = {.settings = &absent, .n_settings = 1};
    CHECK_EQ(weft_context_create(&settings, &context), 0);
    weft_worker_params_t params = {.transports = "rdma_ud,rdma_rc"};
    weft_status_t st = weft_worker_create(context, &params, &worker);
    weft_status_describe(st, text, sizeof text);
    CHECK_EQ(weft_context_destroy(context), 0);
    if (st == WEFT_ERR_INVALID_PARAM) SKIP("built without rdma");
    CHECK_EQ(st, WEFT_ERR_UNSUPPORTED);
    CHECK(strstr(text, "none of 'rdma_ud,rdma_rc' could be opened"));
    CHECK(strstr(text, "rdma_ud: "));
    CHECK(strstr(text, "rdma_rc: "));
}

TEST(a_capability_is_found_by_its_name) {
    unsigned bit = 0;
    for (const char *name; (name = weft_capability_name(bit)); bit++)
        CHECK_EQ(weft_capability(name), UINT64_C(1) << bit);
    CHECK(bit > 10 && bit < 64);
    CHECK_EQ(weft_capability("teleport"), 0);
    CHECK_EQ(weft_capability(NULL), 0);

    struct two t;
    weft_transport_info_t self, tcp;
    two_workers(&t, "self", NULL, 0);
    CHECK_EQ(weft_worker_transport(t.a, 0, &self), 0);
    CHECK(self.capabilities & weft_capability("put"));
    two_down(&t);
    two_workers(&t, "tcp", NULL, 0);
    for (size_t i = 0; weft_worker_transport(t.a, i, &tcp) == WEFT_OK; i++)
        if (strcmp(tcp.name, "tcp") == 0) CHECK(!(tcp.capabilities & weft_capability("put")));
    two_down(&t);
}
