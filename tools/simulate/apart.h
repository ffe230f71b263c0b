/* Runs in processes of their own: a crash or a hang is a finding, not an end. */
#ifndef WEFT_TOOLS_SIMULATE_APART_H
#define WEFT_TOOLS_SIMULATE_APART_H

#include "world.h"

#include <sys/types.h>

/* As fork(), and the child ends with its parent. Aborts where there can be no more processes. */
pid_t apart_fork(void);

/* One run in a process of its own. */
void apart_run(const struct plan *plan, struct verdict *verdict);

/* Memory that a process shares with those that it forks. */
void *apart_shared(size_t size);
/* Of a process that ended: "" if in good order, else how. */
const char *apart_end(int wait_status);
/* From now on this process may work so long. */
void apart_alarm(unsigned seconds);
enum { A_HANG_S = 20 }; /* of one seed */

/*
 * batch.c: seeds, in several processes; each hundredth is run once more, by another process at
 * other addresses. Returns how many failed, and prints them and the rate.
 */
enum { BATCH_JOBS = 64 }; /* at most */
struct batch {
    uint64_t from, n;
    unsigned jobs;
    bool quiet;
};
uint64_t batch_run(const struct batch *batch);
/* The trace hash of a seed, as another process of this program sees it. */
uint64_t batch_hash_elsewhere(uint64_t seed);

/* minimise.c: leaves out what can be left out, as long as the run fails in the same way. */
void minimise(struct plan *plan, struct verdict *verdict, FILE *progress);

/* find.c: runs seeds in their order until one fails, and prints that one. True: one failed. */
bool find_first(uint64_t from, uint64_t n);

#endif
