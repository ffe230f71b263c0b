/* A fork's child makes a context and workers of its own, and its parent's go on; a program that
 * is spawned has none. */
#include <tests/support/threads.h>

#include <sys/wait.h>
#include <weft/rma.h>

enum { LARGE = 300000, MESSAGES = 50, SPIN = 60 };

static char out[LARGE], in[LARGE];

/* ---- what a process does with workers of its own */

static void message_each_way(struct two *t) {
    struct tally large = {0}, got = {0};
    pattern(out, sizeof out, 3);
    CHECK(weft_tag_recv(two_b(t), 1, ~UINT64_C(0), &(weft_iov_t){in, sizeof in}, 1, NULL,
                        OP(&got)) >= 0);
    CHECK(weft_tag_send(t->ep, 1, &(weft_iov_t){out, sizeof out}, 1, OP(&large)) >= 0);
    UNTIL(t, got.calls);
    CHECK(is_pattern(in, sizeof in, 3));
    got = (struct tally){0};
    CHECK(weft_tag_recv(t->a, 2, ~UINT64_C(0), &(weft_iov_t){in, 8}, 1, NULL, OP(&got)) >= 0);
    CHECK(weft_tag_send(t->back, 2, &(weft_iov_t){"back....", 8}, 1, NULL) >= 0);
    UNTIL(t, got.calls);
    CHECK(memcmp(in, "back....", 8) == 0);
}

static void put_one(struct two *t) {
    weft_mem_t *mem;
    weft_mem_info_t info;
    weft_rkey_t *rkey;
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    struct tally put = {0}, gone = {0};
    CHECK_EQ(weft_mem_alloc(two_b(t), 4096, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK_EQ(weft_mem_pack(mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(t->ep, key, len, &rkey), 0);
    weft_op_t op = {.done = tally, .arg = &put, .flags = WEFT_RMA_REMOTE};
    weft_status_t st = weft_put(t->ep, "put", 4, (uint64_t)(uintptr_t)info.base, rkey, &op);
    if (st == WEFT_IN_PROGRESS) UNTIL(t, put.calls);
    CHECK(st >= 0 && strcmp(info.base, "put") == 0);
    weft_rkey_release(rkey);
    st = weft_mem_release(mem, OP(&gone));
    if (st == WEFT_IN_PROGRESS) UNTIL(t, gone.calls);
    CHECK(st >= 0 && gone.status == WEFT_OK);
}

static void whole_life(const char *transports) {
    struct two t;
    two_up(&t, transports);
    message_each_way(&t);
    put_one(&t);
    two_down(&t);
}

/* The same of a worker with a thread, whose callbacks come on it or are polled for. */
static void on_echo(weft_ep_t *ep, weft_am_t *am, void *arg) {
    (void)weft_am_send(ep, ECHO, NULL, 0, &(weft_iov_t){(void *)(uintptr_t)am->data, am->len}, 1,
                       NULL);
}
static void life_with_a_thread(const char *transports, weft_callbacks_t callbacks) {
    struct pair p;
    pair_make(&p, transports, NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.a, ECHO, on_back, &p), 0);
    CHECK_EQ(weft_am_handler_set(p.b, ID, on_echo, NULL), 0);
    CHECK_EQ(weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = callbacks}), 0);
    for (int i = 0; i < MESSAGES; i++)
        CHECK(weft_am_send(p.to_b, ID, NULL, 0, &(weft_iov_t){"1234567", 8}, 1, NULL) >= 0);
    UNTIL_PAIR(&p, p.arrived == MESSAGES);
    pair_end(&p);
}

/* ---- of a child, while its parent's go on */

enum life { ALONE, ON_THREAD, POLLED };
static void live(const char *transports, enum life life) {
    if (life == ALONE)
        whole_life(transports);
    else
        life_with_a_thread(transports,
                           life == POLLED ? WEFT_CALLBACKS_POLLED : WEFT_CALLBACKS_ON_THREAD);
}

/* A failed check ends the child, not its copy of the test. */
static pid_t child_that_lives(const char *transports, enum life life) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid) return pid;
    alarm(SPIN);
    if (setjmp(test_out) == 0) {
        live(transports, life);
        _exit(0);
    }
    fflush(stdout);
    _exit(1);
}

static unsigned next_number, out_of_order;
static void on_number(weft_ep_t *ep, weft_am_t *am, void *arg) {
    unsigned number;
    memcpy(&number, am->data, sizeof number);
    out_of_order += number != next_number++;
}

static void parents_go_on(const char *transport, enum life life) {
    struct two t;
    int status = -1;
    unsigned sent = 0;
    next_number = out_of_order = 0;
    two_up(&t, transport);
    CHECK(weft_worker_fd(t.a) >= 0);
    CHECK_EQ(weft_am_handler_set(two_b(&t), ID, on_number, NULL), 0);
    CHECK(weft_am_send(t.ep, ID, NULL, 0, &(weft_iov_t){&sent, sizeof sent}, 1, NULL) >= 0);
    sent++;
    pid_t pid = child_that_lives(transport, life);
    for (pid_t ended = 0; ended == 0; ended = waitpid(pid, &status, WNOHANG)) {
        CHECK(weft_am_send(t.ep, ID, NULL, 0, &(weft_iov_t){&sent, sizeof sent}, 1, NULL) >= 0);
        sent++;
        UNTIL(&t, next_number == sent);
    }
    CHECK_EQ(status, 0);
    CHECK_EQ(out_of_order, 0);
    CHECK_EQ(t.errors, 0);
    message_each_way(&t);
    put_one(&t);
    two_down(&t);
}

TEST_EACH(a_child_has_workers_of_its_own) {
    parents_go_on(transport, ALONE);
}
TEST(a_child_has_a_worker_with_a_thread_of_its_own_shm) {
    parents_go_on("shm", ON_THREAD);
}
TEST(a_child_has_a_worker_with_a_thread_of_its_own_tcp) {
    parents_go_on("tcp", ON_THREAD);
}
TEST(a_child_polls_for_the_callbacks_of_its_own_worker_shm) {
    parents_go_on("shm", POLLED);
}
TEST(a_child_polls_for_the_callbacks_of_its_own_worker_tcp) {
    parents_go_on("tcp", POLLED);
}

/* As a server does that forks for each client; the child ends there. */
static int status_of_child;
static void on_forked(weft_ep_t *ep, weft_am_t *am, void *arg) {
    pid_t pid = child_that_lives(arg, ALONE);
    if (waitpid(pid, &status_of_child, 0) != pid) status_of_child = -2;
}
TEST_EACH(a_child_of_a_handler_has_workers_of_its_own) {
    struct two t;
    status_of_child = -1;
    two_up(&t, transport);
    CHECK_EQ(weft_am_handler_set(two_b(&t), ID, on_forked, (void *)(uintptr_t)transport), 0);
    CHECK(weft_am_send(t.ep, ID, NULL, 0, NULL, 0, NULL) >= 0);
    UNTIL(&t, status_of_child != -1);
    CHECK_EQ(status_of_child, 0);
    message_each_way(&t);
    two_down(&t);
}

TEST_EACH(a_grandchild_has_workers_of_its_own) {
    struct two t;
    int status = -1;
    two_up(&t, transport);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(SPIN);
        if (setjmp(test_out) == 0) {
            parents_go_on(transport, ALONE);
            _exit(0);
        }
        fflush(stdout);
        _exit(1);
    }
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
    message_each_way(&t);
    two_down(&t);
}

/* ---- of a program that is spawned */

static void what_a_program_inherits(char numbers[1024]) {
    fflush(stdout);
    FILE *list = popen("ls /proc/self/fd", "re");
    CHECK(list);
    size_t len = fread(numbers, 1, 1023, list);
    CHECK_EQ(pclose(list), 0);
    numbers[len] = 0;
}

/* All kinds of descriptors that two workers make, or get from each other. */
static void inherits_nothing(const char *transport, const char *uri) {
    struct two t;
    char before[1024], after[1024];
    weft_listener_t *listener;
    weft_mem_t *mem;
    weft_mem_info_t info;
    weft_rkey_t *rkey;
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    uint64_t offset;
    int fd;
    what_a_program_inherits(before);
    two_thread_mode = WEFT_THREAD_MULTIPLE;
    two_workers(&t, transport, NULL, 0);
    two_thread_mode = WEFT_THREAD_SINGLE;
    CHECK(weft_worker_fd(t.a) >= 0);
    two_dial(&t);
    UNTIL(&t, t.ready && t.back);
    CHECK_EQ(weft_listen(t.a, uri, NULL, &listener), 0);
    message_each_way(&t);
    CHECK_EQ(weft_mem_alloc(t.b, 4096, &(weft_mem_params_t){.rights = WEFT_MEM_ALL}, &mem), 0);
    CHECK_EQ(weft_mem_describe(mem, &info), 0);
    CHECK_EQ(weft_mem_export(mem, &fd, &offset), 0);
    CHECK_EQ(weft_mem_pack(mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(t.ep, key, len, &rkey), 0);
    struct tally put = {0};
    weft_op_t op = {.done = tally, .arg = &put, .flags = WEFT_RMA_REMOTE};
    weft_status_t st = weft_put(t.ep, "put", 4, (uint64_t)(uintptr_t)info.base, rkey, &op);
    if (st == WEFT_IN_PROGRESS) UNTIL(&t, put.calls);
    CHECK_EQ(
        weft_worker_start_thread(t.b, &(weft_thread_params_t){.callbacks = WEFT_CALLBACKS_POLLED}),
        0);
    what_a_program_inherits(after);
    CHECK_EQ(weft_worker_stop_thread(t.b), 0);
    weft_rkey_release(rkey);
    weft_listener_close(listener);
    close(fd);
    two_down(&t);
    if (strcmp(before, after) != 0) printf("  before:\n%s  after:\n%s", before, after);
    CHECK(strcmp(before, after) == 0);
}
TEST(a_program_that_is_spawned_inherits_nothing_shm) {
    inherits_nothing("shm", "shm://spawn");
}
TEST(a_program_that_is_spawned_inherits_nothing_tcp) {
    inherits_nothing("tcp", "tcp://127.0.0.1:0");
}

/* ---- a fork while threads of the parent are at work. Under AddressSanitizer a child may inherit
 * locks of the allocator from a thread that it does not have; under ThreadSanitizer such a child
 * may start no threads. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static atomic_bool over;

/* Not all machines have all transports. */
static void open_and_close(const char *transports) {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_worker_params_t params = {.transports = transports};
    char address[256];
    size_t len = sizeof address;
    if (weft_context_create(NULL, &context) < 0) return;
    if (weft_worker_create(context, &params, &worker) == WEFT_OK) {
        (void)weft_worker_address(worker, address, &len);
        weft_worker_destroy(worker);
    }
    weft_context_destroy(context);
}
static void *open_on(void *transports) {
    while (!over) open_and_close(transports);
    return NULL;
}

TEST(a_child_opens_workers_while_threads_of_its_parent_do) {
    enum { CHILDREN = 100 };
    char *transports[] = {"self,shm,tcp", "rdma"};
    pthread_t others[2];
    int wrong = 0;
    over = false;
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&others[i], NULL, open_on, transports[i]), 0);
    for (int i = 0; i < CHILDREN && !wrong; i++) {
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            alarm(SPIN);
            if (setjmp(test_out)) _exit(1);
            open_and_close(transports[1]);
            whole_life("shm,tcp");
            _exit(0);
        }
        int status = -1;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        wrong += status != 0;
    }
    over = true;
    for (int i = 0; i < 2; i++) pthread_join(others[i], NULL);
    CHECK_EQ(wrong, 0);
}

/* Of a parent whose worker a thread drives, which does not come along. */
static void parents_thread_goes_on(weft_callbacks_t callbacks) {
    struct pair p;
    int status = -1, sent = 0;
    pair_make(&p, "shm,tcp", NULL, 0);
    CHECK_EQ(weft_am_handler_set(p.a, ECHO, on_back, &p), 0);
    CHECK_EQ(weft_am_handler_set(p.b, ID, on_echo, NULL), 0);
    CHECK_EQ(weft_worker_start_thread(p.b, &(weft_thread_params_t){.callbacks = callbacks}), 0);
    for (enum life life = ALONE; life <= POLLED; life++) {
        pid_t pid = child_that_lives("shm,tcp", life);
        for (pid_t ended = 0; ended == 0; ended = waitpid(pid, &status, WNOHANG)) {
            CHECK(weft_am_send(p.to_b, ID, NULL, 0, &(weft_iov_t){"1234567", 8}, 1, NULL) >= 0);
            sent++;
            UNTIL_PAIR(&p, p.arrived == sent);
        }
        CHECK_EQ(status, 0);
    }
    pair_end(&p);
}
TEST(a_child_of_a_process_whose_worker_has_a_thread_has_its_own) {
    parents_thread_goes_on(WEFT_CALLBACKS_ON_THREAD);
}
TEST(a_child_of_a_process_that_polls_for_its_callbacks_has_its_own) {
    parents_thread_goes_on(WEFT_CALLBACKS_POLLED);
}
#endif
