/* The libraries of RDMA are in a process that asks for RDMA, and in no other. */
#include "../harness.h"

#include <sys/wait.h>

#ifdef WEFT_HAVE_RDMA
#include <talloc.h>
#include <transports/rdma/verbs/list.h>
#include <weft/weft.h>

static bool mapped(const char *library) {
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) found |= strstr(line, library) != NULL;
    if (maps) fclose(maps);
    return found;
}

/* A worker with these transports, in a process of its own. Its exit status is the number of the
 * libraries that it mapped. */
static int libraries_with(const char *transports) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        weft_context_t *context;
        weft_worker_t *worker;
        setenv("WEFT_TRANSPORTS", transports, 1);
        setenv("WEFT_LOG_LEVEL", "error", 1);
        if (weft_context_create(NULL, &context) || weft_worker_create(context, NULL, &worker))
            _exit(9);
        _exit(mapped("libibverbs.so") + mapped("librdmacm.so"));
    }
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(a_worker_without_rdma_loads_no_library_of_it) {
    CHECK_EQ(libraries_with("self,shm,tcp"), 0);
}

TEST(a_worker_that_names_rdma_loads_both) {
    CHECK_EQ(libraries_with("self,tcp,rdma_rc"), 2);
    CHECK_EQ(libraries_with("self,tcp,rdma_ud"), 2);
}

TEST(listing_devices_loads_both) {
    weft_context_t *context;
    struct rd_list *list;
    CHECK(!mapped("libibverbs.so"));
    CHECK_EQ(weft_context_create(NULL, &context), WEFT_OK);
    CHECK_EQ(weft__rd_list(NULL, &list), WEFT_OK);
    talloc_free(list);
    weft_context_destroy(context);
    CHECK(mapped("libibverbs.so") && mapped("librdmacm.so"));
}
#else
TEST(rdma_load) {
    SKIP("built without rdma");
}
#endif
