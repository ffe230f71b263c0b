/* What the exchange of a process leaves when the process ends: nothing that a checker for leaks
 * would report. */
#include "../harness.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <talloc.h>
#include <unistd.h>
#include <weft/weft.h>

static size_t before; /* blocks; 0: not in the child */

/* Behind the destructors of the library. */
static __attribute__((destructor(101))) void count_what_is_left(void) {
    if (!before) return;
    bool as_before = talloc_total_blocks(NULL) == before;
    talloc_disable_null_tracking(); /* its own block */
    if (!as_before) _exit(1);
}

static void end_with_an_exchange(void) {
    talloc_enable_null_tracking();
    before = talloc_total_blocks(NULL);
    const weft_exchange_t *x = weft_run_exchange();
    exit(x && talloc_total_blocks(NULL) > before ? 0 : 2);
}

TEST(the_exchange_of_a_process_leaves_no_memory_at_its_end) {
    int status = 1;
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) end_with_an_exchange();
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}
