/* A child that one of the program's functions forked, and that returns from it, is ended, and
 * has changed nothing that is its parent's. */
#include <tests/support/threads.h>

#include <sys/ioctl.h>
#include <sys/wait.h>
#include <weft/collective.h>
#include <weft/layout.h>
#include <weft/rma.h>

enum { LARGE = 300000, MESSAGES = 30, ENDED = 1, MOST_FDS = 256 };

static char out[LARGE], in[LARGE];

/* ---- what parent and child share */

static uint64_t mixed(uint64_t sum, const void *from, size_t len) {
    for (size_t i = 0; i < len; i++)
        sum = (sum ^ ((const unsigned char *)from)[i]) * UINT64_C(0x100000001b3);
    return sum;
}

static uint64_t sum_of_memory(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    uint64_t sum = 0;
    char line[512];
    uintptr_t begin, end;
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:weft") && sscanf(line, "%lx-%lx r", &begin, &end) == 2)
            sum = mixed(sum, (const void *)begin, end - begin);
    if (maps) fclose(maps);
    return sum;
}

/* What is to be read of each, where a file stands, what an eventfd has, and what an epoll
 * watches. A timer runs on by itself. */
static int first_fd; /* of the library's */
static uint64_t sum_of_fds(bool *under_way_p) {
    uint64_t sum = 0;
    *under_way_p = false;
    for (int fd = first_fd; fd < MOST_FDS; fd++) {
        char path[64], text[4096];
        int readable = 0, unsent = 0;
        snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
        FILE *info = fopen(path, "re");
        if (!info) continue;
        size_t len = fread(text, 1, sizeof text - 1, info);
        fclose(info);
        text[len] = 0;
        if (strstr(text, "clockid")) continue;
        (void)ioctl(fd, FIONREAD, &readable);
        if (ioctl(fd, TIOCOUTQ, &unsent) == 0 && unsent > 0) *under_way_p = true;
        sum = mixed(mixed(sum, text, len), &readable, sizeof readable);
    }
    return sum;
}

/* What was sent arrives by itself, and some of it not before the kernel has acknowledged what
 * came before. */
static uint64_t sum_at_rest(void) {
    enum { SOON_US = 2000, ACKNOWLEDGED_US = 100000 };
    bool under_way;
    uint64_t before, sum = sum_of_fds(&under_way);
    do {
        before = sum;
        test_kernel_pause(under_way ? ACKNOWLEDGED_US : SOON_US);
        sum = sum_of_fds(&under_way);
    } while (sum != before);
    return sum_of_memory() ^ sum;
}

/* ---- forking */

static bool due;             /* in the next function of the program's that is called */
static bool is_forked_child; /* it should not have come so far */
static int n_forked, sent[2];

static void fork_here(void) {
    char line[256] = "";
    int status = 0;
    if (!due) return;
    due = false;
    uint64_t sum = sum_at_rest();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(sent[1], STDERR_FILENO);
        alarm((unsigned)test_timeout(60));
        is_forked_child = true;
        return;
    }
    bool gone =
        waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == ENDED;
    bool notified = gone && read(sent[0], line, sizeof line - 1) > 0 &&
                    strstr(line, "a callback forked returned");
    bool whole = sum_at_rest() == sum;
    if (!notified || !whole)
        printf("  status %#x; printed \"%s\"; what is shared is %s\n", status, line,
               whole ? "as it was" : "changed");
    if (notified && whole)
        n_forked++;
    else
        n_forked = -1;
}

static void done(weft_status_t status, void *arg) {
    fork_here();
    tally(status, arg);
}
#define FORKS(tally_p) (&(weft_op_t){.done = done, .arg = (tally_p)})

/* ---- two workers */

static void begin(void) {
    if (is_forked_child) _exit(0);
    CHECK_EQ(pipe(sent), 0);
    first_fd = sent[1] + 1;
    n_forked = 0;
    due = false;
}

static void up(struct two *t, const char *transport) {
    const weft_setting_t settings[] = {{"shm.staging", "64k"}};
    begin();
    two_workers(t, transport, settings, 1);
    CHECK(weft_worker_fd(t->a) >= 0);
    two_dial(t);
    UNTIL(t, t->ready && t->back);
}

static void down(struct two *t) {
    two_down(t);
    close(sent[0]);
    close(sent[1]);
}

static unsigned received, out_of_order;
static void on_number(weft_ep_t *ep, weft_am_t *am, void *arg) {
    unsigned number;
    memcpy(&number, am->data, sizeof number);
    out_of_order += number != received++;
}

static void some_messages(struct two *t, weft_ep_t *ep) {
    received = out_of_order = 0;
    for (unsigned i = 0; i < MESSAGES; i++) {
        CHECK(weft_am_send(ep, ECHO, NULL, 0, &(weft_iov_t){&i, sizeof i}, 1, NULL) >= 0);
        if (i % 3 == 0) two_turn(t);
    }
    UNTIL(t, received >= MESSAGES);
    for (int i = 0; i < 20; i++) two_turn(t);
    CHECK_EQ(received, MESSAGES);
    CHECK_EQ(out_of_order, 0);
}

/* The parent's conversation has lost nothing and has nothing twice. */
static void goes_on(struct two *t) {
    struct tally got = {0};
    if (is_forked_child) _exit(0);
    CHECK(!due);
    CHECK_EQ(n_forked, 1);
    CHECK_EQ(weft_am_handler_set(t->a, ECHO, on_number, NULL), 0);
    CHECK_EQ(weft_am_handler_set(two_b(t), ECHO, on_number, NULL), 0);
    some_messages(t, t->ep);
    some_messages(t, t->back);
    pattern(out, sizeof out, 9);
    CHECK(weft_tag_recv(two_b(t), 99, ~UINT64_C(0), &(weft_iov_t){in, sizeof in}, 1, NULL,
                        OP(&got)) >= 0);
    CHECK(weft_tag_send(t->ep, 99, &(weft_iov_t){out, sizeof out}, 1, NULL) >= 0);
    UNTIL(t, got.calls);
    CHECK(is_pattern(in, sizeof in, 9));
    CHECK_EQ(t->errors + t->back_errors, 0);
    CHECK_EQ(n_forked, 1);
    down(t);
}

static void on_am(weft_ep_t *ep, weft_am_t *am, void *arg) {
    fork_here();
    ++*(int *)arg;
}

/* More than one message is there, so that the child would handle the next, too. */
TEST_EACH(a_child_that_returns_from_a_handler_is_ended) {
    struct two t;
    int n = 0;
    up(&t, transport);
    CHECK_EQ(weft_am_handler_set(two_b(&t), ID, on_am, &n), 0);
    due = true;
    for (int i = 0; i < 5; i++)
        CHECK(weft_am_send(t.ep, ID, NULL, 0, &(weft_iov_t){"1234567", 8}, 1, NULL) >= 0);
    UNTIL(&t, n == 5);
    goes_on(&t);
}

TEST_EACH(a_child_that_returns_from_a_handler_leaves_its_offer) {
    struct two t;
    int n = 0;
    struct tally sent = {0};
    up(&t, transport);
    CHECK_EQ(weft_am_handler_set(two_b(&t), ID, on_am, &n), 0);
    due = true;
    weft_op_t op = {.done = tally, .arg = &sent, .flags = WEFT_AM_RENDEZVOUS};
    CHECK(weft_am_send(t.ep, ID, NULL, 0, &(weft_iov_t){out, sizeof out}, 1, &op) >= 0);
    UNTIL(&t, n == 1 && sent.calls);
    goes_on(&t);
}

TEST_EACH(a_child_that_returns_from_the_end_of_a_receive_is_ended) {
    struct two t;
    struct tally got = {0};
    up(&t, transport);
    due = true;
    for (int i = 0; i < 3; i++)
        CHECK(weft_tag_recv(two_b(&t), 1, ~UINT64_C(0), &(weft_iov_t){in, 8}, 1, NULL,
                            FORKS(&got)) >= 0);
    for (int i = 0; i < 3; i++)
        CHECK(weft_tag_send(t.ep, 1, &(weft_iov_t){"1234567", 8}, 1, NULL) >= 0);
    UNTIL(&t, got.calls == 3);
    goes_on(&t);
}

TEST_EACH(a_child_that_returns_from_the_end_of_a_large_message_is_ended) {
    struct two t;
    struct tally sent = {0}, got = {0};
    up(&t, transport);
    due = true;
    CHECK(weft_tag_recv(two_b(&t), 1, ~UINT64_C(0), &(weft_iov_t){in, sizeof in}, 1, NULL,
                        OP(&got)) >= 0);
    CHECK_EQ(weft_tag_send(t.ep, 1, &(weft_iov_t){out, sizeof out}, 1, FORKS(&sent)),
             WEFT_IN_PROGRESS);
    UNTIL(&t, sent.calls && got.calls);
    goes_on(&t);
}

TEST_EACH(a_child_that_returns_from_a_deadline_is_ended) {
    struct two t;
    struct tally got = {0};
    up(&t, transport);
    due = true;
    weft_op_t op = {.done = done, .arg = &got, .deadline_ms = 5};
    CHECK(weft_tag_recv(t.a, 1, ~UINT64_C(0), &(weft_iov_t){in, 8}, 1, NULL, &op) >= 0);
    UNTIL(&t, got.calls);
    CHECK_EQ(got.status, WEFT_ERR_TIMED_OUT);
    goes_on(&t);
}

TEST_EACH(a_child_that_returns_from_a_flush_is_ended) {
    struct two t;
    struct tally flushed = {0};
    up(&t, transport);
    due = true;
    CHECK(weft_am_send(t.ep, ID, NULL, 0, NULL, 0, NULL) >= 0);
    CHECK_EQ(weft_worker_flush(t.a, FORKS(&flushed)), WEFT_IN_PROGRESS);
    UNTIL(&t, flushed.calls);
    goes_on(&t);
}

static void posted_function(void *arg) {
    fork_here();
    ++*(int *)arg;
}
TEST_EACH(a_child_that_returns_from_a_posted_function_is_ended) {
    struct two t;
    int n = 0;
    up(&t, transport);
    due = true;
    CHECK_EQ(weft_worker_post(t.a, posted_function, &n), 0);
    CHECK_EQ(weft_worker_post(t.a, posted_function, &n), 0);
    UNTIL(&t, n == 2);
    goes_on(&t);
}

static void on_data(weft_ep_t *ep, void *arg) {
    const void *data;
    size_t len;
    fork_here();
    while (weft_stream_take(ep, &data, &len) == WEFT_OK) {
        *(size_t *)arg += len;
        weft_stream_release(weft_ep_worker(ep), data);
    }
}
TEST_EACH(a_child_that_returns_from_the_news_of_a_stream_is_ended) {
    struct two t;
    size_t n = 0;
    up(&t, transport);
    CHECK_EQ(weft_stream_on_data(t.back, on_data, &n), 0);
    due = true;
    CHECK(weft_stream_send(t.ep, &(weft_iov_t){out, 5000}, 1, NULL) >= 0);
    UNTIL(&t, n == 5000);
    goes_on(&t);
}

/* ---- coming and going */

static weft_status_t on_request(const char *peer, void *arg) {
    fork_here();
    return WEFT_OK;
}
static void on_visitor(weft_ep_t *ep, void *arg) {
    fork_here();
    *(weft_ep_t **)arg = ep;
}
static void visit(const char *transport, const weft_listen_params_t *params, weft_ep_t **visitor) {
    struct two t;
    weft_listener_t *listener;
    weft_ep_t *ep;
    struct tally closed = {0};
    char uri[64] = "tcp://127.0.0.1:0";
    if (strcmp(transport, "shm") == 0) snprintf(uri, sizeof uri, "shm://forked%d", (int)getpid());
    up(&t, transport);
    CHECK_EQ(weft_listen(two_b(&t), uri, params, &listener), 0);
    due = true;
    *visitor = NULL;
    CHECK_EQ(weft_connect(t.a, weft_listener_uri(listener), NULL, &ep), 0);
    UNTIL(&t, *visitor);
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, CLOSE_OP(&closed)), WEFT_IN_PROGRESS);
    UNTIL(&t, closed.calls);
    weft_listener_close(listener);
    goes_on(&t);
}
static weft_ep_t *visitor;
static const weft_listen_params_t asked = {
    .on_request = on_request, .on_endpoint = on_visitor, .arg = &visitor};
static const weft_listen_params_t unasked = {.on_endpoint = on_visitor, .arg = &visitor};
TEST(a_child_that_returns_from_a_request_to_connect_is_ended_shm) {
    visit("shm", &asked, &visitor);
}
TEST(a_child_that_returns_from_a_request_to_connect_is_ended_tcp) {
    visit("tcp", &asked, &visitor);
}
TEST(a_child_that_returns_from_a_connection_is_ended_shm) {
    visit("shm", &unasked, &visitor);
}
TEST(a_child_that_returns_from_a_connection_is_ended_tcp) {
    visit("tcp", &unasked, &visitor);
}

static void on_end(weft_ep_t *ep, weft_status_t status, void *arg) {
    fork_here();
    ++*(int *)arg;
}
static void part(const char *transport, bool from_error) {
    struct two t;
    struct tally closed = {0};
    int n = 0;
    up(&t, transport);
    weft_ep_on_error(t.back, on_end, &n);
    weft_ep_t *more;
    CHECK_EQ(weft_ep_close(t.ep, WEFT_CLOSE_FLUSH, from_error ? OP(&closed) : FORKS(&closed)),
             WEFT_IN_PROGRESS);
    due = true;
    UNTIL(&t, closed.calls && n);
    CHECK_EQ(weft_ep_close(t.back, WEFT_CLOSE_ABORT, NULL), WEFT_IN_PROGRESS);
    t.ready = 0;
    t.back = NULL;
    two_dial(&t);
    more = t.ep;
    UNTIL(&t, t.ready && t.back && more);
    goes_on(&t);
}
TEST_EACH(a_child_that_returns_from_the_news_that_a_peer_closed_is_ended) {
    part(transport, true);
}
TEST_EACH(a_child_that_returns_from_a_close_is_ended) {
    part(transport, false);
}

/* ---- one-sided */

TEST_EACH(a_child_that_returns_from_the_end_of_a_put_is_ended) {
    struct two t;
    weft_mem_t *mem;
    weft_mem_info_t info;
    weft_rkey_t *rkey;
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    uint64_t old;
    struct tally put = {0};
    up(&t, transport);
    CHECK_EQ(weft_mem_register(two_b(&t), in, sizeof in,
                               &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem),
             0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK_EQ(weft_mem_pack(mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(t.ep, key, len, &rkey), 0);
    uint64_t remote = (uint64_t)(uintptr_t)info.base;
    due = true;
    int begun = weft_put(t.ep, out, sizeof out, remote, rkey, FORKS(&put)) == WEFT_IN_PROGRESS;
    begun += weft_atomic_fetch(t.ep, WEFT_ATOMIC_ADD, 8, 1, 0, &old, remote, rkey, FORKS(&put)) ==
             WEFT_IN_PROGRESS;
    UNTIL(&t, put.calls == begun);
    /* they ended within the call */
    if (due) CHECK(weft_worker_flush(t.a, FORKS(&put)) == WEFT_IN_PROGRESS);
    UNTIL(&t, !due);
    weft_rkey_release(rkey);
    goes_on(&t);
}

/* ---- functions that the library asks something of */

static weft_status_t pack(void *state, size_t offset, void *to, size_t len) {
    memcpy(to, (char *)state + offset, len); /* which may be shared memory */
    fork_here();
    return WEFT_OK;
}
static weft_status_t unpack(void *state, size_t offset, const void *from, size_t len) {
    fork_here();
    memcpy((char *)state + offset, from, len);
    return WEFT_OK;
}
static void laid_out(const char *transport, bool out_of_it) {
    struct two t;
    struct tally sent = {0}, got = {0};
    static const weft_pack_ops_t ops = {.pack = pack, .unpack = unpack};
    const weft_layout_t layout = {.kind = WEFT_LAYOUT_USER, .user = &ops};
    weft_op_t laid = {.done = tally, .arg = out_of_it ? &sent : &got, .layout = &layout};
    weft_iov_t iov = {out, 1000}, to = {in, 1000};
    up(&t, transport);
    CHECK(weft_tag_recv(two_b(&t), 1, ~UINT64_C(0), &to, 1, NULL, out_of_it ? OP(&got) : &laid) >=
          0);
    due = true;
    CHECK(weft_tag_send(t.ep, 1, &iov, 1, out_of_it ? &laid : OP(&sent)) >= 0);
    UNTIL(&t, got.calls);
    goes_on(&t);
}
TEST_EACH(a_child_that_returns_from_packing_is_ended) {
    laid_out(transport, true);
}
TEST_EACH(a_child_that_returns_from_unpacking_is_ended) {
    laid_out(transport, false);
}

static weft_status_t gather(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                            void *all, weft_done_fn all_there, void *done_arg) {
    if (arg) fork_here();
    memcpy(all, mine, len);
    all_there(WEFT_OK, done_arg);
    return WEFT_OK;
}
static void on_team(weft_team_t *team, weft_status_t status, void *arg) {
    fork_here();
    ++*(int *)arg;
}
static void team_up(const char *transport, bool in_exchange) {
    struct two t;
    int n = 0;
    weft_exchange_t alone = {.size = 1, .allgather = gather, .arg = in_exchange ? &n : NULL};
    weft_team_t *team;
    up(&t, transport);
    due = true;
    CHECK_EQ(
        weft_team_create(
            t.a, &(weft_team_params_t){.exchange = &alone, .on_ready = on_team, .arg = &n}, &team),
        0);
    UNTIL(&t, n == 1);
    goes_on(&t);
}
TEST_EACH(a_child_that_returns_from_the_news_of_a_team_is_ended) {
    team_up(transport, false);
}
TEST_EACH(a_child_that_returns_from_an_exchange_is_ended) {
    team_up(transport, true);
}

/* ---- a worker with a thread */

static void on_pair(weft_ep_t *ep, weft_am_t *am, void *arg) {
    fork_here();
    weft_op_t op = {.done = done, .arg = &posted};
    (void)weft_am_send(ep, ECHO, NULL, 0, &(weft_iov_t){(void *)(uintptr_t)am->data, am->len}, 1,
                       &op);
}
static void with_a_thread(const char *transport) {
    struct pair p;
    const weft_setting_t settings[] = {{"shm.staging", "64k"}};
    begin();
    pair_make(&p, transport, settings, 1);
    CHECK_EQ(weft_am_handler_set(p.a, ECHO, on_back, &p), 0);
    CHECK_EQ(weft_am_handler_set(p.b, ID, on_pair, NULL), 0);
    CHECK_EQ(
        weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    CHECK(weft_am_send(p.to_b, ID, NULL, 0, &(weft_iov_t){"1234567", 8}, 1, NULL) >= 0);
    UNTIL_PAIR(&p, p.arrived == 1);
    due = true;
    CHECK(weft_am_send(p.to_b, ID, NULL, 0, &(weft_iov_t){"1234567", 8}, 1, NULL) >= 0);
    for (int i = 0; i < MESSAGES; i++)
        CHECK(weft_am_send(p.to_b, ID, NULL, 0, &(weft_iov_t){"1234567", 8}, 1, NULL) >= 0);
    UNTIL_PAIR(&p, p.arrived == MESSAGES + 2);
    CHECK_EQ(n_forked, 1);
    CHECK_EQ(p.errors, 0);
    pair_end(&p);
    close(sent[0]);
    close(sent[1]);
}
TEST(a_child_that_returns_from_a_polled_callback_is_ended_shm) {
    with_a_thread("shm");
}
TEST(a_child_that_returns_from_a_polled_callback_is_ended_tcp) {
    with_a_thread("tcp");
}

/* ---- a child of its own callbacks */

static void on_own(weft_ep_t *ep, weft_am_t *am, void *arg) {
    ++*(int *)arg;
}
static void on_parents(weft_ep_t *ep, weft_am_t *am, void *arg) {
    int n = 0;
    struct two t;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm((unsigned)test_timeout(60));
        if (setjmp(test_out)) _exit(3);
        two_up(&t, arg);
        CHECK_EQ(weft_am_handler_set(two_b(&t), ID, on_own, &n), 0);
        for (int i = 0; i < 5; i++) CHECK(weft_am_send(t.ep, ID, NULL, 0, NULL, 0, NULL) >= 0);
        UNTIL(&t, n == 5);
        two_down(&t);
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &n_forked, 0), pid);
    n_forked = n_forked == 0 ? 1 : -1;
}
TEST_EACH(a_child_whose_own_callbacks_return_is_not) {
    struct two t;
    up(&t, transport);
    CHECK_EQ(weft_am_handler_set(two_b(&t), ID, on_parents, (void *)(uintptr_t)transport), 0);
    CHECK(weft_am_send(t.ep, ID, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(&t, n_forked);
    goes_on(&t);
}
