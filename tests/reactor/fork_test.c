/* Children that a program forks while others of its threads are at work in the library. */
#include "../harness.h"
#include "../network.h"

#include <pthread.h>
#include <reactor/reactor.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The library's calls come here, too. As in an emulator, no page is wiped that the kernel is asked
 * to wipe, and the answer is that it will be. */
__attribute__((visibility("default"))) int madvise(void *at, size_t len, int advice) {
    return advice == MADV_WIPEONFORK ? 0 : (int)syscall(SYS_madvise, at, len, advice);
}

static weft_context_t *context;
static atomic_bool over;

/* What the threads do without a pause, and each child once. */
static void (*work)(void);
static void *work_on(void *arg) {
    while (!over) work();
    return NULL;
}

/* None of them may wait for a thread that did not come with it: `check` says 0. */
static void children_end(void (*what)(void), int (*check)(void)) {
    enum { CHILDREN = 300, SPIN = 20, THREADS = 2 };
    pthread_t others[THREADS];
    int late = 0;
    over = false;
    work = what;
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&others[i], NULL, work_on, NULL), 0);
    for (int i = 0; i < CHILDREN && !late; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm((unsigned)test_timeout(SPIN));
            work();
            _exit(check());
        }
        int status = 0;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        late += status != 0;
    }
    over = true;
    for (int i = 0; i < THREADS; i++) pthread_join(others[i], NULL);
    CHECK_EQ(late, 0);
}

TEST(a_child_knows_that_it_is_one_where_the_kernel_does_not_wipe_its_page) {
    uint32_t parents = weft__fork_generation();
    int status;
    pid_t pid = fork();
    if (pid == 0) _exit(weft__fork_generation() == parents);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK_EQ(status, 0);
}

static uint32_t parent;
static void ask(void) {
    weft__fork_generation();
}
static int is_the_parents(void) {
    return weft__fork_generation() == parent;
}
/* Its first context asks which process it is in. */
TEST(a_child_waits_for_no_thread_that_did_not_come_with_it) {
    parent = weft__fork_generation();
    children_end(ask, is_the_parents);
    CHECK_EQ(weft__fork_generation(), parent);
}

static void discard_line(weft_log_level_t level, const char *room, const char *line, void *arg) {}
static void send_msg(void) {
    weft__log_limited(context, WEFT_LOG_WARN, "room", "a line");
}
static int nothing_is_wrong(void) {
    return 0;
}
TEST(a_child_logs_while_threads_of_its_parent_do) {
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.log = discard_line}, &context), 0);
    children_end(send_msg, nothing_is_wrong);
    CHECK_EQ(weft_context_destroy(context), 0);
}
