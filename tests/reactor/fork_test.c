/* Children that a program forks while others of its threads are at work in the library. */
#include "../harness.h"

#include <pthread.h>
#include <reactor/reactor.h>
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_bool over;
static void *ask_on(void *arg) {
    while (!over) weft__fork_generation();
    return NULL;
}

/* Its first context asks which process it is in. */
TEST(a_child_waits_for_no_thread_that_did_not_come_with_it) {
    enum { CHILDREN = 300, PATIENCE = 20 };
    pthread_t others[2];
    int late = 0;
    uint32_t parent = weft__fork_generation();
    over = false;
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_create(&others[i], NULL, ask_on, NULL), 0);
    for (int i = 0; i < CHILDREN && !late; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(PATIENCE);
            _exit(weft__fork_generation() == parent);
        }
        int status = 0;
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        late += status != 0;
    }
    over = true;
    for (int i = 0; i < 2; i++) pthread_join(others[i], NULL);
    CHECK_EQ(late, 0);
    CHECK_EQ(weft__fork_generation(), parent);
}
