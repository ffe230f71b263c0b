/* Processors on a machine that may have more than a cpu_set_t has bits. The kernel is a double:
 * like Linux it refuses a mask that cannot hold every processor the machine may have. */
#include "../collectives/team.h"

#include "../harness.h"
#include <base/affinity.h>
#include <base/numa.h>
#include <errno.h>
#include <runtime/view/host.h>
#include <string.h>
#include <sys/stat.h>

enum { MAY_HAVE = 4096 };

static const int *allowed;
static int n_allowed;

#define ALLOW(...) \
    (allowed = (const int[]){__VA_ARGS__}, n_allowed = sizeof((int[]){__VA_ARGS__}) / sizeof(int))

/* The library's calls come here, too. */
__attribute__((visibility("default"))) int sched_getaffinity(pid_t pid, size_t size,
                                                             cpu_set_t *set) {
    CHECK_EQ(pid, 0);
    if (size < MAY_HAVE / 8) {
        errno = EINVAL;
        return -1;
    }
    memset(set, 0, size);
    for (int i = 0; i < n_allowed; i++) CPU_SET_S((size_t)allowed[i], size, set);
    return 0;
}

TEST(every_processor_is_found) {
    struct affinity cpus;
    ALLOW(3, 1023, 1024, 4095);
    CHECK(weft__affinity_read(&cpus));
    CHECK_EQ(weft__affinity_count(&cpus), 4);
    CHECK_EQ(weft__affinity_next(&cpus, 0), 3);
    CHECK_EQ(weft__affinity_next(&cpus, 3), 3);
    CHECK_EQ(weft__affinity_next(&cpus, 4), 1023);
    CHECK_EQ(weft__affinity_next(&cpus, 1025), 4095);
    CHECK_EQ(weft__affinity_next(&cpus, 4096), -1);
    CHECK_EQ(weft__affinity_nth(&cpus, 2), 1024);
    CHECK_EQ(weft__affinity_nth(&cpus, 7), 4095);
    weft__affinity_only(&cpus, AFFINITY_CPUS - 1);
    CHECK_EQ(weft__affinity_count(&cpus), 1);
    CHECK_EQ(weft__affinity_nth(&cpus, 5), AFFINITY_CPUS - 1);
}

TEST(a_thread_without_a_processor_has_no_first_one) {
    struct affinity cpus;
    n_allowed = 0;
    CHECK(weft__affinity_read(&cpus));
    CHECK_EQ(weft__affinity_count(&cpus), 0);
    CHECK_EQ(weft__affinity_next(&cpus, 0), -1);
    CHECK_EQ(weft__affinity_nth(&cpus, 0), -1);
}

TEST(a_process_is_where_its_first_processor_is) {
    char dir[] = "/tmp/weft-nodes-XXXXXX", path[300];
    ALLOW(1500, 1501);
    CHECK(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/cpu1500", dir);
    CHECK_EQ(mkdir(path, 0700), 0);
    strcat(path, "/node7");
    CHECK_EQ(mkdir(path, 0700), 0);
    CHECK_EQ(weft__own_node(dir), 7);
    CHECK_EQ(rmdir(path), 0);
    *strrchr(path, '/') = 0;
    CHECK_EQ(rmdir(path), 0);
    CHECK_EQ(rmdir(dir), 0);
}

TEST(a_resource_set_has_those_that_it_can_number) {
    static weft_resource_set_t set;
    ALLOW(2, 1500, WEFT_MAX_CPUS - 1, WEFT_MAX_CPUS);
    weft__resource_set_measure(&set, weft__topology("none"));
    CHECK_EQ(set.n_cpus, 3);
    CHECK(set.cpus[0] == 4 && set.cpus[1500 / 64] == UINT64_C(1) << 1500 % 64);
    CHECK_EQ(set.cpus[WEFT_MAX_CPUS / 64 - 1], UINT64_C(1) << 63);
}

TEST(a_team_counts_the_cores_of_its_members) {
    struct crew c;
    weft_team_info_t info;
    weft_team_member_t member;
    ALLOW(1100, 1101, 1102, 1103);
    crew_up(&c, 4, "self,shm", NULL, NULL);
    CHECK_EQ(weft_team_describe(c.rank[0].team, &info), WEFT_OK);
    CHECK_EQ(weft_team_member(c.rank[0].team, 2, &member), WEFT_OK);
    CHECK_EQ(info.ranks_per_core, 1);
    CHECK_EQ(member.cores, 4);
    crew_down(&c);
}
