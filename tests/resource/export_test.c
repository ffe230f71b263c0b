/* What Weft made, given to another library and to another process. */
#include "shared.h"

#include <endpoints/inspect/stats_page.h>
#include <ev.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tests/support/scarce_descriptors.h>
#include <unistd.h>

/* The talloc report of the consumer's worker has that text. */
static bool reports(weft_worker_t *worker, const char *text) {
    char *report = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&report, &len);
    talloc_report_full(worker, out);
    fclose(out);
    bool found = strstr(report, text) != NULL;
    free(report);
    return found;
}

static int handled;
static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    handled++;
}

/* A worker on the loop that another one runs on: the program drives both. */
TEST(a_loop_of_a_worker_drives_another_worker) {
    struct ev_loop *loop = ev_loop_new(0);
    weft_context_t *plain, *context = associated_context();
    weft_worker_t *first, *worker = stub_worker(context);
    weft_resource_t *resource;
    weft_ep_t *ep;
    char address[256];
    size_t len = sizeof address;
    handled = 0;
    CHECK_EQ(weft_context_create(NULL, &plain), 0);
    CHECK_EQ(weft_worker_create(plain, &(weft_worker_params_t){.loop = loop}, &first), 0);
    CHECK_EQ(weft_resource_export(WEFT_OBJECT_WORKER, first, WEFT_RESOURCE_LOOP, NULL, &resource),
             0);
    CHECK_EQ(weft_am_handler_set(worker, 3, on_message, NULL), 0);
    CHECK_EQ(associate(context, WEFT_OBJECT_WORKER, resource, worker), 0);
    CHECK_EQ(weft_worker_address(worker, address, &len), 0);
    CHECK_EQ(weft_connect_address(worker, address, len, NULL, &ep), 0);
    CHECK(weft_am_send(ep, 3, NULL, 0, &(weft_iov_t){"x", 1}, 1, NULL) >= 0);
    while (handled == 0) ev_run(loop, EVRUN_ONCE);
    struct tally done = {0};
    CHECK_EQ(weft_disassociate_resources(resource, worker, OP(&done)), WEFT_IN_PROGRESS);
    while (!done.calls) ev_run(loop, EVRUN_ONCE);
    weft_worker_destroy(worker);
    CHECK_EQ(weft_resource_release(resource), 0);
    weft_worker_destroy(first);
    CHECK_EQ(weft_context_destroy(plain), 0);
    CHECK_EQ(weft_context_destroy(context), 0);
    ev_loop_destroy(loop);
}

TEST(a_worker_and_a_region_are_given_out) {
    struct sharing s;
    weft_resource_t *worker, *region, *loop;
    weft_mem_t *mem, *other;
    char mine[WEFT_RKEY_MAX], theirs[WEFT_RKEY_MAX];
    size_t mine_len = sizeof mine, theirs_len = sizeof theirs;
    share_up(&s, "shm");
    weft_resource_params_t part = {.share = WEFT_SHARE_PART};
    CHECK_EQ(
        weft_resource_export(WEFT_OBJECT_WORKER, s.two.a, WEFT_RESOURCE_WORKER, &part, &worker), 0);
    CHECK_EQ(weft_resource_export(WEFT_OBJECT_WORKER, s.two.a, WEFT_RESOURCE_LOOP, &part, &loop),
             WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_resource_export(WEFT_OBJECT_WORKER, s.two.a, WEFT_RESOURCE_TEAM, &part, &loop),
             WEFT_ERR_UNSUPPORTED);
    weft_worker_t *user = stub_worker(s.context);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_WORKER, worker, user), 0);
    CHECK(reports(user, "association with worker"));
    CHECK_EQ(weft_mem_alloc(s.two.a, 8192, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem), 0);
    CHECK_EQ(weft_resource_export(WEFT_OBJECT_MEMORY, mem, WEFT_RESOURCE_MEMORY, &part, &region),
             0);
    CHECK_EQ(weft_mem_register(user, NULL, 0,
                               &(weft_mem_params_t){.rights = WEFT_MEM_ALL, .associated = 1},
                               &other),
             0);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_MEMORY, region, other), 0);
    CHECK_EQ(weft_mem_pack(mem, mine, &mine_len), 0);
    CHECK_EQ(weft_mem_pack(other, theirs, &theirs_len), 0);
    CHECK(mine_len == theirs_len && memcmp(mine, theirs, mine_len) == 0);
    weft_resource_info_t info;
    CHECK_EQ(weft_resource_info(worker, &info), 0);
    CHECK(info.n_users == 1 && info.leased_am == 64 && strcmp(info.kind, "worker") == 0);
    CHECK(weft_disassociate_resources(region, other, NULL) >= 0);
    for (int i = 0; i < 2000; i++) two_turn(&s.two);
    CHECK_EQ(weft_resource_release(region), 0);
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    weft_worker_destroy(user);
    CHECK_EQ(weft_resource_release(worker), 0);
    share_down(&s);
}

static void *release_here(void *resource) {
    return (void *)(intptr_t)weft_resource_release(resource);
}

/* The worker knows of it. */
TEST(an_exported_object_is_released_by_the_thread_of_its_worker) {
    struct two t;
    weft_resource_t *resource;
    pthread_t other;
    void *st;
    two_workers(&t, "self", NULL, 0);
    CHECK_EQ(weft_resource_export(WEFT_OBJECT_WORKER, t.a, WEFT_RESOURCE_WORKER, NULL, &resource),
             0);
    CHECK_EQ(pthread_create(&other, NULL, release_here, resource), 0);
    pthread_join(other, &st);
    CHECK_EQ((intptr_t)st, WEFT_ERR_WRONG_THREAD);
    CHECK_EQ(weft_resource_release(resource), 0);
    two_down(&t);
}

TEST(an_exported_object_is_lost_when_its_worker_closes) {
    struct two t;
    weft_resource_t *resource;
    weft_resource_info_t info;
    two_workers(&t, "self", NULL, 0);
    CHECK_EQ(weft_resource_export(WEFT_OBJECT_WORKER, t.a, WEFT_RESOURCE_WORKER, NULL, &resource),
             0);
    CHECK_EQ(weft_worker_close(t.a, &(weft_op_t){.done = two_gone, .arg = &t.a}), WEFT_IN_PROGRESS);
    UNTIL(&t, !t.a);
    CHECK_EQ(weft_resource_info(resource, &info), 0);
    CHECK_EQ(info.status, WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(weft_resource_release(resource), 0);
    two_down(&t);
}

TEST(a_worker_seen_from_outside_shows_its_users) {
    struct two t;
    weft_worker_t *user;
    two_workers(&t, "self", NULL, 0);
    weft_context_t *context = associated_context();
    weft_worker_params_t params = {.associated = 1, .name = "my library"};
    CHECK_EQ(weft_worker_create(context, &params, &user), 0);
    weft_resource_t *resource = worker_resource(t.a);
    CHECK_EQ(associate(context, WEFT_OBJECT_WORKER, resource, user), 0);
    const struct stats_head *head = *(struct stats_head *const *)t.a->live; /* its first member */
    bool seen = strcmp(head->resource[0],
                       "worker \"worker\", READY, user worker my library, ids 512 to 575") == 0;
    if (!seen) printf("  %s\n", head->resource[0]);
    CHECK(seen && !*head->resource[1]);
    weft_worker_destroy(user);
    CHECK(!*head->resource[0]);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_context_destroy(context), 0);
    two_down(&t);
}

/* ---- another process ------------------------------------------------------------------------- */

/* The owner: exports a region, sends it, and waits to be killed. */
static void own_region(int socket) {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_mem_t *mem;
    weft_mem_info_t info;
    weft_resource_t *resource;
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL};
    if (weft_context_create(NULL, &context) ||
        weft_worker_create(context, &(weft_worker_params_t){.transports = "self"}, &worker) ||
        weft_mem_alloc(worker, 8192, &params, &mem) || weft_mem_describe(mem, &info))
        _exit(1);
    strcpy(info.base, "of the owner");
    if (weft_resource_export(WEFT_OBJECT_MEMORY, mem, WEFT_RESOURCE_SEGMENT, NULL, &resource) ||
        weft_resource_send(resource, socket))
        _exit(1);
    for (;;) pause();
}

static int lost;
static void on_lost(void *object, weft_status_t status, void *arg) {
    lost += status == WEFT_ERR_RESOURCE_LOST;
}

TEST(a_segment_of_another_process_is_used_until_its_owner_is_killed) {
    struct sharing s;
    int pair[2];
    lost = 0;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    pid_t owner = fork();
    if (owner == 0) {
        close(pair[0]);
        own_region(pair[1]);
    }
    close(pair[1]);
    share_up(&s, "shm");
    weft_resource_t *resource;
    weft_mem_t *mem;
    weft_mem_info_t info;
    CHECK_EQ(weft_resource_receive(s.two.a, pair[0], &resource), 0);
    CHECK_EQ(weft_mem_register(s.library[0], NULL, 0,
                               &(weft_mem_params_t){.rights = WEFT_MEM_ALL, .associated = 1}, &mem),
             0);
    weft_associate_params_t params = {.resource = resource, .on_lost = on_lost};
    CHECK_EQ(weft_associate_resources(s.context, WEFT_OBJECT_MEMORY, &params, mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK(strcmp(info.base, "of the owner") == 0);
    const struct stats_head *head = *(struct stats_head *const *)s.two.a->live;
    CHECK(strstr(head->resource[0], "from another process") ||
          strstr(head->resource[1], "from another process"));
    CHECK_EQ(lost, 0);
    kill(owner, SIGKILL);
    UNTIL(&s.two, lost == 1);
    waitpid(owner, NULL, 0);
    weft_resource_info_t about = {.n_users = 1};
    UNTIL(&s.two, weft_resource_info(resource, &about) == 0 && about.n_users == 0);
    CHECK_EQ(about.status, WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(weft_resource_release(resource), 0);
    share_down(&s);
}

static void on_endpoint(weft_ep_t *ep, void *arg) {
    ++*(int *)arg;
}

/* The owner listens at any free port, sends the socket, and waits to be killed. */
static void own_listener(int to) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_SOCKET, fd);
    if (listen(fd, 8) || weft_resource_send(describe(WEFT_RESOURCE_SOCKET, &value, 1), to))
        _exit(1);
    for (;;) pause();
}

TEST(a_resource_for_which_no_descriptor_is_left_is_refused_as_that) {
    struct two t;
    weft_resource_t *received;
    int pair[2];
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    two_workers(&t, "tcp", (weft_setting_t[]){{"tcp.insecure", "yes"}}, 1);
    weft_resource_value_t value = VALUE(WEFT_RES_ENDPOINT_SOCKET, pair[1]);
    weft_resource_t *sent = describe(WEFT_RESOURCE_CONNECTION, &value, 1);
    CHECK_EQ(weft_resource_send(sent, pair[1]), 0);
    descriptors_leave(0);
    weft_status_t st = weft_resource_receive(t.b, pair[0], &received);
    descriptors_give_back();
    CHECK_EQ(st, WEFT_ERR_NO_FDS);
    CHECK_EQ(weft_resource_release(sent), 0);
    close(pair[0]);
    close(pair[1]);
    two_down(&t);
}

TEST(a_listening_socket_of_another_process_accepts_until_its_owner_is_killed) {
    struct two t;
    weft_resource_t *received;
    int pair[2], accepted = 0;
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    pid_t owner = fork();
    if (owner == 0) {
        close(pair[0]);
        own_listener(pair[1]);
    }
    close(pair[1]);
    two_workers(&t, "tcp", (weft_setting_t[]){{"tcp.insecure", "yes"}}, 1);
    CHECK_EQ(weft_resource_receive(t.b, pair[0], &received), 0);
    weft_listen_params_t listening = {.on_endpoint = on_endpoint, .arg = &accepted};
    weft_resource_value_t listen_by = VALUE(WEFT_RES_WORKER_LISTEN, listening);
    weft_associate_params_t params = {.resource = received, .values = &listen_by, .n_values = 1};
    CHECK_EQ(weft_associate_resources(t.context, WEFT_OBJECT_WORKER, &params, t.b), 0);
    char uri[64];
    const char *port = strrchr(weft_listener_uri(weft_resource_listener(received)), ':');
    snprintf(uri, sizeof uri, "tcp://127.0.0.1%s", port);
    CHECK_EQ(weft_connect(t.a, uri, NULL, &t.ep), 0);
    UNTIL(&t, accepted == 1);
    kill(owner, SIGKILL);
    weft_resource_info_t info = {.n_users = 1};
    UNTIL(&t, weft_resource_info(received, &info) == 0 && info.n_users == 0);
    waitpid(owner, NULL, 0);
    CHECK_EQ(info.status, WEFT_ERR_RESOURCE_LOST);
    CHECK(weft_resource_listener(received) == NULL);
    CHECK_EQ(weft_resource_release(received), 0);
    two_down(&t);
}

static void keep_ep(weft_ep_t *ep, void *arg) {
    *(weft_ep_t **)arg = ep;
}

static int connect_to(const char *uri) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    at.sin_port = htons((uint16_t)atoi(strrchr(uri, ':') + 1));
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

/* Another process connects, and sends what it has connected. */
TEST(a_connected_socket_of_another_process_is_used_until_its_owner_is_killed) {
    struct sharing s;
    weft_resource_t *received;
    weft_listener_t *listener;
    weft_ep_t *ep, *accepted = NULL;
    int pair[2];
    handled = lost = 0;
    share_up(&s, "tcp");
    weft_listen_params_t listening = {.on_endpoint = keep_ep, .arg = &accepted};
    CHECK_EQ(weft_listen(two_b(&s.two), "tcp://127.0.0.1:0", &listening, &listener), 0);
    CHECK_EQ(weft_am_handler_set(s.library[1], 3, on_message, NULL), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    pid_t owner = fork();
    if (owner == 0) {
        int fd = connect_to(weft_listener_uri(listener));
        weft_resource_value_t value = VALUE(WEFT_RES_ENDPOINT_SOCKET, fd);
        weft_resource_t *sent = describe(WEFT_RESOURCE_CONNECTION, &value, 1);
        close(pair[0]);
        CHECK_EQ(weft_resource_send(sent, pair[1]), 0);
        for (;;) pause();
    }
    close(pair[1]);
    CHECK_EQ(weft_resource_receive(s.two.a, pair[0], &received), 0);
    CHECK_EQ(weft_connect(s.library[0], NULL, &(weft_ep_params_t){.associated = 1}, &ep), 0);
    weft_associate_params_t params = {.resource = received, .on_lost = on_lost};
    CHECK_EQ(weft_associate_resources(s.context, WEFT_OBJECT_ENDPOINT, &params, ep), 0);
    CHECK(weft_am_send(ep, 3, NULL, 0, &(weft_iov_t){"x", 1}, 1, NULL) >= 0);
    UNTIL(&s.two, handled == 1);
    kill(owner, SIGKILL);
    UNTIL(&s.two, lost == 1);
    waitpid(owner, NULL, 0);
    weft_resource_info_t info = {.n_users = 1};
    UNTIL(&s.two, weft_resource_info(received, &info) == 0 && info.n_users == 0);
    CHECK_EQ(info.status, WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(weft_resource_release(received), 0);
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, NULL), 0);
    share_down(&s);
}

TEST(an_endpoint_is_given_out) {
    struct sharing s;
    weft_resource_t *resource;
    weft_ep_t *ep;
    handled = 0;
    share_up(&s, "shm");
    share_dial(&s);
    CHECK_EQ(weft_am_handler_set(s.library[1], 3, on_message, NULL), 0);
    CHECK_EQ(
        weft_resource_export(WEFT_OBJECT_ENDPOINT, s.ep, WEFT_RESOURCE_ENDPOINTS, NULL, &resource),
        0);
    CHECK_EQ(weft_connect(s.library[0], NULL, &(weft_ep_params_t){.associated = 1}, &ep), 0);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_ENDPOINT, resource, ep), 0);
    CHECK(weft_am_send(ep, 3, NULL, 0, &(weft_iov_t){"x", 1}, 1, NULL) >= 0);
    UNTIL(&s.two, handled == 1);
    struct tally done = {0};
    CHECK_EQ(weft_disassociate_resources(resource, ep, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&s.two, done.calls);
    CHECK_EQ(weft_resource_release(resource), 0);
    share_down(&s);
}

TEST(bytes_that_are_no_resource_are_refused) {
    struct two t;
    weft_resource_t *resource;
    int pair[2];
    char bytes[200] = "weftres";
    two_workers(&t, "self", NULL, 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    CHECK_EQ(send(pair[1], bytes, sizeof bytes, 0), sizeof bytes);
    CHECK_EQ(weft_resource_receive(t.a, pair[0], &resource), WEFT_ERR_PROTOCOL);
    close(pair[1]);
    resource = describe(WEFT_RESOURCE_USER, NULL, 0);
    CHECK_EQ(weft_resource_send(resource, pair[0]), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_resource_release(resource), 0);
    close(pair[0]);
    two_down(&t);
}
