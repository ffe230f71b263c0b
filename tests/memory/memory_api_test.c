/* Regions as a program sees them: made, described, exported, revoked, cached, and gone. */
#include <base/numa.h>
#include <endpoints/core/worker.h>
#include <tests/support/rma_peers.h>

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>

static const weft_mem_params_t all_rights = {.rights = WEFT_MEM_ALL};

TEST(allocated_memory_is_zero_and_of_the_size_asked_for) {
    struct two t;
    static const size_t sizes[] = {1, 4095, 4096, 4097, 1 << 20, (3 << 20) + 5};
    two_workers(&t, "self", NULL, 0);
    for (int kind = WEFT_PAGES_AUTO; kind <= WEFT_PAGES_HUGE; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            weft_mem_t *mem;
            weft_mem_info_t info;
            weft_mem_params_t params = {.rights = WEFT_MEM_READ, .pages = (weft_mem_pages_t)kind};
            CHECK_EQ(weft_mem_alloc(t.a, sizes[i], &params, &mem), 0);
            CHECK_EQ(weft_mem_describe(mem, &info), 0);
            CHECK(info.len == sizes[i] && info.rights == WEFT_MEM_READ && info.epoch == 1 &&
                  info.page >= 4096);
            for (size_t k = 0; k < sizes[i]; k++) CHECK_EQ(((char *)info.base)[k], 0);
            memset(info.base, 1, sizes[i]);
            CHECK_EQ(weft_mem_advise(mem, 0, sizes[i], WEFT_ADVISE_DONT_NEED), 0);
            for (size_t k = 0; k < sizes[i]; k++) CHECK_EQ(((char *)info.base)[k], 0);
            CHECK_EQ(weft_mem_release(mem, NULL), 0);
            CHECK_EQ(weft_mem_detect(info.base, &info), WEFT_ERR_NOT_FOUND);
        }
    two_down(&t);
}

TEST(advice_is_for_the_region_alone) {
    struct two t;
    weft_mem_t *mem;
    char *mine = aligned_alloc(4096, 16384);
    two_workers(&t, "self", NULL, 0);
    memset(mine, 'm', 16384);
    CHECK_EQ(weft_mem_register(t.a, mine + 100, 10000, NULL, &mem), 0);
    for (int advice = WEFT_ADVISE_WILL_NEED; advice <= WEFT_ADVISE_RANDOM; advice++)
        CHECK_EQ(weft_mem_advise(mem, 5, 9000, (weft_mem_advice_t)advice), 0);
    for (int i = 0; i < 100; i++) CHECK(mine[i] == 'm' && mine[16383 - i] == 'm');
    CHECK_EQ(weft_mem_advise(mem, 1, 10000, WEFT_ADVISE_RANDOM), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_advise(mem, SIZE_MAX, 2, WEFT_ADVISE_RANDOM), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    two_down(&t);
    free(mine);
}

TEST(an_exported_region_is_the_same_memory_where_it_is_imported) {
    struct two t;
    weft_mem_t *mem, *other, *part;
    weft_mem_info_t here, there;
    int fd;
    uint64_t offset;
    struct stat stat;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), len = 5 * page;
    two_workers(&t, "shm", NULL, 0);
    CHECK_EQ(weft_mem_alloc(t.a, len, &all_rights, &mem), 0);
    CHECK_EQ(weft_mem_export(mem, &fd, &offset), 0);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    CHECK(ftruncate(fd, 0) != 0); /* it cannot be taken from under a peer */
    CHECK(fstat(fd, &stat) == 0 && stat.st_size >= (off_t)len);
    CHECK_EQ(weft_mem_import(t.b, fd, offset, len, &all_rights, &other), 0);
    CHECK_EQ(weft_mem_import(t.b, fd, offset + page, page, NULL, &part), 0);
    CHECK_EQ(weft_mem_import(t.b, fd, offset + 1, 100, NULL, &part), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_import(t.b, fd, offset, (size_t)stat.st_size + 1, NULL, &part),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_import(t.b, 0x3fff, 0, 100, NULL, &part), WEFT_ERR_INVALID_PARAM);
    close(fd);
    CHECK_EQ(weft_mem_describe(mem, &here), 0);
    CHECK_EQ(weft_mem_describe(other, &there), 0);
    pattern(here.base, len, 1);
    CHECK(is_pattern(there.base, len, 1));
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    CHECK(is_pattern(there.base, len, 1));

    /* What can become shorter is not imported: a peer would fault. */
    fd = memfd_create("loose", MFD_CLOEXEC);
    CHECK_EQ(ftruncate(fd, 8192), 0);
    CHECK_EQ(weft_mem_import(t.b, fd, 0, 8192, NULL, &part), WEFT_ERR_INVALID_PARAM);
    close(fd);
    char mine[100];
    CHECK_EQ(weft_mem_register(t.a, mine, sizeof mine, NULL, &mem), 0);
    CHECK_EQ(weft_mem_export(mem, &fd, &offset), WEFT_ERR_UNSUPPORTED);
    two_down(&t); /* takes what was not released with it */
}

TEST(wrong_parameters_are_refused) {
    struct two t;
    weft_mem_t *mem;
    char mine[10], key[WEFT_RKEY_MAX];
    size_t len;
    two_workers(&t, "self", NULL, 0);
    CHECK_EQ(weft_mem_alloc(NULL, 1, NULL, &mem), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_alloc(t.a, 0, NULL, &mem), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_alloc(t.a, SIZE_MAX, NULL, &mem), WEFT_ERR_NO_MEMORY);
    CHECK_EQ(weft_mem_alloc(t.a, 1, &(weft_mem_params_t){.rights = 8}, &mem),
             WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_register(t.a, NULL, 1, NULL, &mem), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_register(t.a, mine, SIZE_MAX, NULL, &mem), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_register(t.a, mine, 10, NULL, &mem), 0);
    len = sizeof key;
    /* no rights: nothing to give away */
    CHECK_EQ(weft_mem_pack(mem, key, &len), WEFT_ERR_INVALID_PARAM);
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    CHECK_EQ(weft_mem_register(t.a, mine, 10, &all_rights, &mem), 0);
    size_t small = 20;
    CHECK_EQ(weft_mem_pack(mem, key, &small), WEFT_ERR_TRUNCATED);
    len = sizeof key;
    CHECK_EQ(weft_mem_pack(mem, key, &len), 0);
    CHECK(len <= WEFT_RKEY_MAX);
    CHECK_EQ(small, len);
    two_down(&t);
}

static void send_node(const char *dir, const char *device, const char *text) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, device);
    CHECK_EQ(mkdir(path, 0700), 0);
    strcat(path, "/device");
    CHECK_EQ(mkdir(path, 0700), 0);
    strcat(path, "/numa_node");
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

TEST(a_device_is_where_the_kernel_reports_it) {
    char dir[] = "/tmp/weft-nodes-XXXXXX", command[300];
    CHECK(mkdtemp(dir));
    send_node(dir, "card0", "1\n");
    send_node(dir, "card1", "-1\n");
    CHECK_EQ(weft__device_node(dir, "card0"), 1);
    CHECK_EQ(weft__device_node(dir, "card0:1"), 1);
    CHECK_EQ(weft__device_node(dir, "card1"), -1);
    CHECK_EQ(weft__device_node(dir, "card2"), -1);
    CHECK_EQ(weft__device_node(dir, "../card0"), -1);
    CHECK_EQ(weft__device_node(dir, ""), -1);
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK_EQ(system(command), 0);
}

TEST(a_process_is_where_its_first_processor_is) {
    char dir[] = "/tmp/weft-nodes-XXXXXX", path[300], command[300];
    cpu_set_t cpus;
    int first = 0;
    CHECK_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    while (!CPU_ISSET(first, &cpus)) first++;
    CHECK(mkdtemp(dir));
    CHECK_EQ(weft__own_node(dir), -1); /* no such processor */
    snprintf(path, sizeof path, "%s/cpu%d", dir, first);
    CHECK_EQ(mkdir(path, 0700), 0);
    CHECK_EQ(weft__own_node(dir), -1); /* which has no node */
    strcat(path, "/node7");
    CHECK_EQ(mkdir(path, 0700), 0);
    CHECK_EQ(weft__own_node(dir), 7);
    CHECK(weft__own_node(PROCESSORS) >= -1);
    snprintf(command, sizeof command, "rm -r %s", dir);
    CHECK_EQ(system(command), 0);
}

TEST(a_pointer_reports_what_it_points_to) {
    weft_mem_info_t info;
    int fd = memfd_create("detect", MFD_CLOEXEC);
    CHECK_EQ(ftruncate(fd, 65536), 0);
    char *at = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    at[5000] = 1;
    CHECK_EQ(weft_mem_detect(at + 5000, &info), 0);
    CHECK(info.type == WEFT_MEMORY_HOST && (char *)info.base <= at &&
          (char *)info.base + info.len >= at + 65536);
    CHECK(info.page == (size_t)sysconf(_SC_PAGESIZE) && info.numa_node >= -1);
    CHECK_EQ(munmap(at, 65536), 0);
    CHECK_EQ(weft_mem_detect(at + 5000, &info), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(weft_mem_detect(NULL, &info), WEFT_ERR_NOT_FOUND);
    CHECK_EQ(weft_mem_detect(&info, &info), 0);
    close(fd);
}

TEST(what_there_is_is_listed) {
    struct two t;
    weft_memory_info_t info;
    size_t n = 0;
    two_workers(&t, "self", NULL, 0);
    CHECK_EQ(weft_worker_memory(t.a, 0, &info), 0);
    CHECK(!strcmp(info.name, "host") && info.can_alloc && info.can_export && info.bandwidth > 0 &&
          info.latency_ns > 0 && info.message_rate > 0);
    /* Its costs are those of the calibration. */
    t.a->calibration.value[CALIBRATE_COPY_4M] = 3000000000;
    t.a->calibration.value[CALIBRATE_SYSCALL] = 345000;
    CHECK_EQ(weft_worker_memory(t.a, 0, &info), 0);
    CHECK_EQ(info.bandwidth, 3e9);
    while (weft_worker_memory(t.a, n, &info) == WEFT_OK) n++;
    CHECK_EQ(n, 2);
    CHECK(!strcmp(info.name, "self") && info.can_register && info.can_map);
    CHECK_EQ(info.register_ns, 345);
    CHECK(info.message_rate > 0);
    two_down(&t);
}

/* ---- the cache */

static int invalid;
static void on_invalid(weft_mem_t *mem, void *arg) {
    invalid++;
}

TEST(a_registration_is_found_again_until_the_memory_goes) {
    struct two t;
    weft_mem_t *first, *again, *other, *own;
    char *mine = malloc(100000), key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    struct tally done = {0};
    two_workers(&t, "self", NULL, 0);
    CHECK_EQ(weft_mem_get(t.a, mine, 50000, WEFT_MEM_ALL, &first), 0);
    CHECK_EQ(weft_mem_get(t.a, mine + 100, 1000, WEFT_MEM_READ, &again), 0);
    CHECK(first == again);
    CHECK_EQ(weft_mem_get(t.a, mine + 49999, 2, WEFT_MEM_READ, &other), 0);
    CHECK(other != first);
    CHECK_EQ(weft_mem_release(first, NULL), WEFT_ERR_INVALID_PARAM); /* it is the cache's */
    weft_mem_put(again);
    weft_mem_put(first);
    CHECK_EQ(weft_mem_get(t.a, mine, 50000, WEFT_MEM_ALL, &again), 0);
    CHECK(first == again);
    CHECK_EQ(weft_worker_count(t.a, "memory.cache_hits"), 2);

    /* A program's own registration of it reports it; the cached ones are found no more. */
    CHECK_EQ(weft_mem_register(t.a, mine + 10, 20,
                               &(weft_mem_params_t){.rights = 7, .on_invalid = on_invalid}, &own),
             0);
    invalid = 0;
    weft_status_t st = weft_mem_invalidate(t.a, mine, 20, OP(&done));
    CHECK_EQ(st, 0);
    for (int i = 0; i < 3; i++) two_turn(&t);
    CHECK_EQ(invalid, 1);
    CHECK_EQ(weft_mem_pack(own, key, &len), WEFT_ERR_REVOKED);
    CHECK_EQ(weft_mem_pack(again, key, &len), WEFT_ERR_REVOKED);
    CHECK_EQ(weft_mem_get(t.a, mine, 50000, WEFT_MEM_ALL, &first), 0);
    CHECK(first != again);
    weft_mem_put(again);
    CHECK_EQ(weft_mem_pack(other, key, &len), 0); /* it did not overlap */
    CHECK_EQ(weft_mem_release(own, NULL), 0);
    two_down(&t);
    free(mine);
}

/* Each allocation of it fails once. Who repeats the call has all of it done. */
TEST(an_invalidation_that_lacked_memory_may_be_repeated) {
    static char mine[5000];
    bool whole = false;
    for (uint64_t k = 1; !whole; k++) {
        struct rma r;
        struct tally done;
        weft_mem_t *own, *cached;
        char got[8], packed[WEFT_RKEY_MAX];
        size_t len = sizeof packed;
        rma_up(&r, "shm", false, 4096, WEFT_MEM_ALL, NULL, 0);
        CHECK_EQ(weft_mem_register(r.t.b, mine, sizeof mine, &all_rights, &own), 0);
        CHECK_EQ(weft_mem_get(r.t.b, mine, 100, WEFT_MEM_READ, &cached), 0);
        weft_mem_put(cached);
        weft_rkey_t *key = rma_key(&r, own);
        uint64_t at = (uintptr_t)mine;
        CHECK_EQ(
            RMA_WAIT(&r, &done,
                     weft_get(r.t.ep, got, 8, at, key, &(weft_op_t){.done = tally, .arg = &done})),
            0);
        weft__alloc_fail_at(k);
        weft_status_t st = RMA_WAIT(&r, &done,
                                    weft_mem_invalidate(r.t.b, mine, sizeof mine,
                                                        &(weft_op_t){.done = tally, .arg = &done}));
        whole = weft__alloc_fail_at(0) < k;
        CHECK(st == WEFT_OK || (!whole && st == WEFT_ERR_NO_MEMORY));
        if (st < 0)
            CHECK_EQ(RMA_WAIT(&r, &done,
                              weft_mem_invalidate(r.t.b, mine, sizeof mine,
                                                  &(weft_op_t){.done = tally, .arg = &done})),
                     0);
        CHECK_EQ(weft_mem_pack(own, packed, &len), WEFT_ERR_REVOKED);
        CHECK_EQ(
            RMA_WAIT(&r, &done,
                     weft_get(r.t.ep, got, 8, at, key, &(weft_op_t){.done = tally, .arg = &done})),
            WEFT_ERR_REVOKED);
        CHECK_EQ(r.t.b->memory.cache.n, 0);
        weft_rkey_release(key);
        rma_down(&r);
    }
}

static int log_errors;
static void count_errors(weft_log_level_t level, const char *room, const char *line, void *arg) {
    log_errors += level == WEFT_LOG_ERROR;
}
static void cancel(weft_status_t status, void *arg) {
    weft_request_cancel(*(weft_request_t **)arg);
}

TEST(an_invalidation_that_is_cancelled_while_its_last_region_ends_is_notified_once) {
    struct rma r = {0};
    struct tally notified = {0};
    weft_mem_t *mem;
    weft_request_t *request = NULL;
    static char mine[5000];
    weft_worker_params_t params = {
        .transports = "shm", .on_endpoint = two_on_endpoint, .arg = &r.t};
    log_errors = 0;
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.log = count_errors}, &r.t.context), 0);
    CHECK_EQ(weft_worker_create(r.t.context, &params, &r.t.a), 0);
    CHECK_EQ(weft_worker_create(r.t.context, &params, &r.t.b), 0);
    two_dial(&r.t);
    UNTIL(&r.t, r.t.ready && r.t.back);
    CHECK_EQ(weft_mem_register(r.t.b, mine, sizeof mine, &all_rights, &mem), 0);
    r.rkey = rma_key(&r, mem);
    UNTIL(&r.t, r.rkey->key->status != WEFT_NO_RESOURCE);
    /* Both wait for the peer, who is not driven, and the revocation is reported first. */
    weft_op_t revoke = {.done = cancel, .arg = &request},
              op = {.done = tally, .arg = &notified, .request_p = &request};
    weft_status_t st = weft_mem_revoke(mem, &revoke);
    if (st == WEFT_IN_PROGRESS) {
        CHECK_EQ(weft_mem_invalidate(r.t.b, mine, sizeof mine, &op), WEFT_IN_PROGRESS);
        UNTIL(&r.t, notified.calls);
        CHECK(notified.calls == 1 && notified.status == WEFT_ERR_CANCELLED);
    }
    CHECK_EQ(log_errors, 0);
    rma_down(&r);
}

static weft_status_t asked_again[3];
static void ask_again(weft_status_t status, void *arg) {
    weft_mem_t *mem = arg;
    weft_mem_info_t info;
    asked_again[0] = weft_mem_release(mem, NULL);
    asked_again[1] = weft_mem_revoke(mem, NULL);
    asked_again[2] = weft_mem_describe(mem, &info);
}

TEST(a_release_that_was_asked_for_is_refused_until_it_is_notified) {
    struct rma r;
    struct tally notified = {0};
    rma_up(&r, "shm", false, 5000, WEFT_MEM_ALL, NULL, 0);
    /* Both wait for the peer, and are reported one after the other. */
    CHECK_EQ(weft_mem_revoke(r.mem, &(weft_op_t){.done = ask_again, .arg = r.mem}),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_mem_release(r.mem, OP(&notified)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_mem_release(r.mem, NULL), WEFT_ERR_BUSY);
    UNTIL(&r.t, notified.calls);
    CHECK_EQ(notified.status, WEFT_OK);
    for (int i = 0; i < 3; i++) CHECK_EQ(asked_again[i], WEFT_ERR_BUSY);
    rma_down(&r);
}

/* The turn may end in between. */
TEST(a_region_is_there_until_its_release_is_notified) {
    for (unsigned budget = 1; budget <= 8; budget++) {
        struct rma r;
        struct tally notified = {0};
        weft_mem_info_t info;
        rma_up(&r, "shm", false, 5000, WEFT_MEM_ALL, NULL, 0);
        CHECK_EQ(weft_mem_release(r.mem, OP(&notified)), WEFT_IN_PROGRESS);
        for (double end = test_now() + test_timeout(60); !notified.calls && test_now() < end;) {
            weft_status_t st = weft_mem_describe(r.mem, &info);
            CHECK(st == WEFT_OK || st == WEFT_ERR_BUSY);
            weft_worker_progress(r.t.a, 1);
            weft_worker_progress(r.t.b, budget);
        }
        CHECK_EQ(notified.calls, 1);
        rma_down(&r);
    }
}

/* Until its endpoint's handle is gone it may be made, and it outlives that. */
TEST_EACH(a_key_for_an_endpoint_that_is_closing_is_released_after_it) {
    enum { MOST = 1000 };
    struct rma r;
    struct tally closed = {0};
    weft_rkey_t *late[MOST];
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    int n = 0;
    rma_up(&r, transport, true, 5000, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_mem_pack(r.mem, key, &len), 0);
    CHECK_EQ(weft_ep_close(r.t.ep, WEFT_CLOSE_ABORT, OP(&closed)), WEFT_IN_PROGRESS);
    for (; !closed.calls && n < MOST; weft_worker_progress(r.t.a, 1))
        CHECK_EQ(weft_rkey_unpack(r.t.ep, key, len, &late[n++]), WEFT_OK);
    CHECK(closed.calls == 1 && n > 0);
    while (n-- > 0) {
        weft_rkey_info_t info;
        CHECK_EQ(weft_rkey_describe(late[n], &info), WEFT_OK);
        CHECK_EQ(info.status, WEFT_ERR_CLOSED);
        weft_rkey_release(late[n]);
    }
    rma_down(&r);
}

TEST(the_cache_keeps_no_more_than_it_may) {
    struct two t;
    weft_setting_t settings[] = {{"memory.cache_regions", "4"}};
    weft_mem_t *mem[10];
    static char mine[10][64];
    two_workers(&t, "self", settings, 1);
    for (int i = 0; i < 10; i++) CHECK_EQ(weft_mem_get(t.a, mine[i], 64, 1, &mem[i]), 0);
    for (int i = 0; i < 10; i++) weft_mem_put(mem[i]);
    weft_mem_t *again;
    CHECK_EQ(weft_mem_get(t.a, mine[9], 64, 1, &again), 0);
    CHECK_EQ(weft_worker_count(t.a, "memory.cache_hits"), 1);
    CHECK_EQ(weft_mem_get(t.a, mine[0], 64, 1, &again), 0);
    CHECK_EQ(weft_worker_count(t.a, "memory.cache_hits"), 1); /* it had left */
    two_down(&t);
}

/* ---- revocation and release, with a peer that has the region open */

TEST_WAYS(a_revoked_key_ends_operations_and_a_new_one_serves) {
    struct rma r;
    struct tally done = {0}, op = {0};
    weft_rkey_info_t info;
    rma_up(&r, transport, messages, 8192, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(RMA_WAIT(&r, &op, weft_put(r.t.ep, "one", 4, rma_at(&r, 0), r.rkey, RMA_REMOTE(&op))),
             0);
    CHECK_EQ(RMA_WAIT(&r, &done, weft_mem_revoke(r.mem, OP(&done))), 0);
    CHECK_EQ(RMA_WAIT(&r, &op, weft_put(r.t.ep, "two", 4, rma_at(&r, 0), r.rkey, RMA_REMOTE(&op))),
             WEFT_ERR_REVOKED);
    CHECK_EQ(RMA_WAIT(&r, &op, weft_get(r.t.ep, &info, 4, rma_at(&r, 0), r.rkey, OP(&op))),
             WEFT_ERR_REVOKED);
    CHECK(!strcmp(r.target, "one"));
    CHECK_EQ(weft_rkey_describe(r.rkey, &info), 0);
    CHECK_EQ(info.status, WEFT_ERR_REVOKED);
    CHECK_EQ(weft_mem_describe(r.mem, &r.info), 0);
    CHECK_EQ(r.info.epoch, 2);
    weft_rkey_release(r.rkey);
    r.rkey = rma_key(&r, r.mem);
    CHECK_EQ(RMA_WAIT(&r, &op, weft_put(r.t.ep, "two", 4, rma_at(&r, 0), r.rkey, RMA_REMOTE(&op))),
             0);
    CHECK(!strcmp(r.target, "two"));
    CHECK_EQ(RMA_WAIT(&r, &done, weft_mem_release(r.mem, OP(&done))), 0);
    CHECK_EQ(
        RMA_WAIT(&r, &op, weft_put(r.t.ep, "three", 6, rma_at(&r, 0), r.rkey, RMA_REMOTE(&op))),
        WEFT_ERR_REVOKED);
    CHECK_EQ(r.t.errors + r.t.back_errors, 0);
    rma_down(&r);
}

/* While a peer lets go the region is asked for nothing more, and the first release ends once. */
TEST(a_region_that_is_being_released_is_not_released_again) {
    struct rma r;
    struct tally done = {0};
    rma_up(&r, "shm", false, 8192, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_mem_release(r.mem, OP(&done)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_mem_release(r.mem, OP(&done)), WEFT_ERR_BUSY);
    UNTIL(&r.t, done.calls);
    CHECK_EQ(done.status, WEFT_OK);
    rma_down(&r);
    CHECK_EQ(done.calls, 1);
}

struct release {
    weft_status_t status;
    char text[512];
};
static void on_released(weft_status_t status, void *arg) {
    struct release *release = arg;
    release->status = status;
    weft_status_describe(status, release->text, sizeof release->text);
}

/* A peer that is stopped keeps its mapping. The program is notified at the deadline; the region
 * goes when the peer goes on. */
TEST(a_release_with_a_deadline_does_not_wait_for_a_peer_that_is_stopped) {
    struct rma r;
    struct release release = {.status = WEFT_IN_PROGRESS};
    weft_op_t op = {.done = on_released, .arg = &release, .deadline_ms = 20};
    rma_up(&r, "shm", false, 8192, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_mem_release(r.mem, &op), WEFT_IN_PROGRESS);
    double end = test_now() + test_timeout(60);
    while (release.status == WEFT_IN_PROGRESS && test_now() < end) weft_worker_progress(r.t.b, 0);
    CHECK_EQ(release.status, WEFT_ERR_TIMED_OUT);
    CHECK(strstr(release.text, "release or revocation of a region: its deadline passed"));
    weft_mem_info_t info;
    UNTIL(&r.t, weft_mem_detect(r.target, &info) == WEFT_ERR_NOT_FOUND);
    rma_down(&r);
}

/* No key was given out since: one revocation serves both, and each completes. One behind it is a
 * new one. */
TEST_WAYS(a_region_that_is_being_revoked_is_revoked_once_and_all_are_notified) {
    struct rma r;
    struct tally first = {0}, second = {0}, third = {0};
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    rma_up(&r, transport, messages, 8192, WEFT_MEM_ALL, NULL, 0);
    weft_status_t st = weft_mem_revoke(r.mem, OP(&first)),
                  again = weft_mem_revoke(r.mem, OP(&second));
    CHECK_EQ(st, again);
    CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
    if (st == WEFT_IN_PROGRESS) {
        CHECK_EQ(weft_mem_pack(r.mem, key, &len), WEFT_ERR_BUSY);
        UNTIL(&r.t, first.calls && second.calls);
        CHECK(first.status == WEFT_OK && second.status == WEFT_OK);
    }
    CHECK_EQ(weft_mem_describe(r.mem, &r.info), 0);
    CHECK_EQ(r.info.epoch, st == WEFT_OK ? 3 : 2);
    CHECK_EQ(weft_mem_revoke(r.mem, OP(&third)), WEFT_OK); /* no peer has it open */
    CHECK_EQ(weft_mem_describe(r.mem, &r.info), 0);
    CHECK_EQ(r.info.epoch, st == WEFT_OK ? 4 : 3);
    CHECK_EQ(weft_mem_pack(r.mem, key, &len), 0);
    rma_down(&r);
    CHECK(first.calls <= 1 && second.calls <= 1 && third.calls == 0);
}

TEST(a_region_that_is_being_released_is_revoked_with_that) {
    struct rma r;
    struct tally released = {0}, revoked = {0};
    rma_up(&r, "shm", false, 8192, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_mem_release(r.mem, OP(&released)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_mem_revoke(r.mem, OP(&revoked)), WEFT_IN_PROGRESS);
    UNTIL(&r.t, released.calls && revoked.calls);
    CHECK(released.status == WEFT_OK && revoked.status == WEFT_OK);
    rma_down(&r);
    CHECK(released.calls == 1 && revoked.calls == 1);
}

/* The next remote flush reports a posted put that only the target could refuse, once. */
TEST(a_refusal_is_reported_by_the_next_remote_flush) {
    struct rma r;
    struct tally op = {0};
    rma_up(&r, "tcp", true, 8192, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_mem_revoke(r.mem, NULL), 0);
    CHECK_EQ(weft_put(r.t.ep, "lost", 5, rma_at(&r, 0), r.rkey, NULL), 0);
    CHECK_EQ(weft_ep_fence(r.t.ep), 0);
    CHECK_EQ(RMA_FLUSH(&r, &op), WEFT_ERR_REVOKED);
    CHECK_EQ(RMA_FLUSH(&r, &op), WEFT_OK);
    CHECK_EQ(r.target[0], 0);
    rma_down(&r);
}

/* ---- keys as bytes */

TEST(keys_survive_mauling_and_name_their_worker) {
    struct rma r;
    char key[WEFT_RKEY_MAX], mauled[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    weft_rkey_t *rkey;
    unsigned seed = 5;
    rma_up(&r, "shm", false, 4096, WEFT_MEM_ALL, NULL, 0);
    CHECK_EQ(weft_mem_pack(r.mem, key, &len), 0);
    CHECK(len > 0);
    for (size_t n = 0; n < len; n++)
        CHECK_EQ(weft_rkey_unpack(r.t.ep, key, n, &rkey), WEFT_ERR_ADDRESS);
    for (int i = 0; i < 20000; i++) {
        memcpy(mauled, key, len);
        for (int k = rand_r(&seed) % 4; k >= 0; k--)
            mauled[(size_t)rand_r(&seed) % len] = (char)rand_r(&seed);
        size_t n = rand_r(&seed) % 4 ? len : (size_t)rand_r(&seed) % sizeof key;
        if (weft_rkey_unpack(r.t.ep, mauled, n, &rkey) == WEFT_OK) weft_rkey_release(rkey);
    }
    memcpy(mauled, key, len);
    mauled[4] ^= 1; /* another worker's */
    CHECK_EQ(weft_rkey_unpack(r.t.ep, mauled, len, &rkey), WEFT_ERR_ADDRESS);
    mauled[4] ^= 1;
    mauled[2]++; /* another version's */
    CHECK_EQ(weft_rkey_unpack(r.t.ep, mauled, len, &rkey), WEFT_ERR_ADDRESS);
    CHECK_EQ(r.t.errors + r.t.back_errors, 0);
    rma_down(&r);
}

TEST(a_key_of_another_worker_reaches_nothing) {
    struct rma r;
    struct tally op = {0};
    weft_mem_t *mem;
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    weft_rkey_t *rkey;
    two_workers(&r.t, "tcp", NULL, 0);
    CHECK_EQ(weft_mem_alloc(r.t.a, 4096, &all_rights, &mem), 0); /* a's own, sent to b */
    CHECK_EQ(weft_mem_pack(mem, key, &len), 0);
    two_dial(&r.t);
    weft_status_t st = weft_rkey_unpack(r.t.ep, key, len, &rkey);
    if (st == WEFT_OK) {
        CHECK_EQ(RMA_WAIT(&r, &op,
                          weft_put(r.t.ep, "x", 1, ((struct weft_rkey *)rkey)->region.base, rkey,
                                   OP(&op))),
                 WEFT_ERR_UNREACHABLE);
        weft_rkey_release(rkey);
    } else {
        CHECK_EQ(st, WEFT_ERR_ADDRESS);
    }
    two_down(&r.t);
}

/* Once a revocation is done nothing changes the region any more, whatever was on its way into
 * it. */
TEST_WAYS(nothing_is_written_after_a_revocation_is_done) {
    enum { BIG = 4 << 20 };
    char *out = malloc(BIG), *seen = malloc(BIG), *in = malloc(BIG);
    int refused = 0;
    memset(out, 'n', BIG);
    for (int turns = 0; turns < 24; turns++) {
        struct rma r;
        struct tally put = {0}, get = {0}, revoked = {0};
        rma_up(&r, transport, messages, BIG, WEFT_MEM_ALL, NULL, 0);
        weft_status_t st = weft_put(r.t.ep, out, BIG, rma_at(&r, 0), r.rkey, RMA_REMOTE(&put));
        weft_status_t got = weft_get(r.t.ep, in, BIG, rma_at(&r, 0), r.rkey, OP(&get));
        for (int i = 0; i < turns; i++) two_turn(&r.t);
        CHECK_EQ(RMA_WAIT(&r, &revoked, weft_mem_revoke(r.mem, OP(&revoked))), 0);
        memcpy(seen, r.target, BIG);
        if (st == WEFT_IN_PROGRESS) UNTIL(&r.t, put.calls == 1);
        if (got == WEFT_IN_PROGRESS) UNTIL(&r.t, get.calls == 1);
        for (int i = 0; i < 50; i++) two_turn(&r.t);
        CHECK(memcmp(seen, r.target, BIG) == 0);
        CHECK(put.status == WEFT_OK || put.status == WEFT_ERR_REVOKED);
        CHECK(get.status == WEFT_OK || get.status == WEFT_ERR_REVOKED ||
              get.status == WEFT_ERR_CANCELLED);
        refused += put.status < 0;
        /* Half of a put that was refused says nothing of a whole one. */
        if (put.status == WEFT_OK) CHECK(memcmp(r.target, out, BIG) == 0);
        CHECK_EQ(r.t.errors + r.t.back_errors, 0);
        rma_down(&r);
    }
    CHECK_EQ(refused > 0, messages);
    free(out);
    free(seen);
    free(in);
}
