/*
 * Lengths that do not fit into 32 bits, on mapped memory. What is read is the same 3 MiB over and
 * over, and what is written falls into a window of 16 MiB, as often: both are laid over the real
 * mapping, so that little memory is taken. Each turn's bytes are checked before the next ones come
 * to where they are.
 */
#include <tests/support/rma_peers.h>

#include <endpoints/core/request.h>
#include <sys/mman.h>

enum { MIB = 1 << 20, PERIOD = 3 * MIB /* no divisor of 2^32 */, WINDOW = 16 * MIB };
#define LENGTH ((UINT64_C(1) << 32) + 5)
#define ROOM   ((UINT64_C(1) << 32) + 2 * WINDOW)

/* [at, at + ROOM) becomes `period` bytes of memory, again and again. */
static void lay(char *at, size_t period) {
    int fd = memfd_create("period", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)period) == 0);
    for (size_t i = 0; i < ROOM; i += period) {
        size_t n = ROOM - i < period ? ROOM - i : period;
        CHECK(mmap(at + i, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd,
                   0) != MAP_FAILED);
    }
    close(fd);
}

/* Unlike pattern(), not the same again after 64 KiB. */
static void fill(char *at) {
    uint64_t *words = (uint64_t *)(void *)at;
    for (uint64_t i = 0; i < PERIOD / 8; i++) words[i] = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static void check(const char *sink, const char *source, size_t from, size_t to) {
    if (memcmp(sink + from, source + from, to - from) == 0) return;
    fprintf(stderr, "  wrong between %#zx and %#zx\n", from, to);
    CHECK(false);
}

static void transfer(bool put) {
    struct rma r;
    struct tally t = {0};
    weft_request_t *request;
    rma_up(&r, "shm", false, ROOM, WEFT_MEM_ALL, NULL, 0);
    char *far = r.rkey->key->local;
    char *near = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(far != NULL && near != MAP_FAILED);
    char *source = put ? near : far, *sink = put ? far : near;
    lay(source, PERIOD);
    lay(sink, WINDOW);
    fill(source);
    weft_op_t op = {.done = tally, .arg = &t, .request_p = &request};
    weft_status_t st = put ? weft_put(r.t.ep, near, LENGTH, rma_at(&r, 0), r.rkey, &op)
                           : weft_get(r.t.ep, near, LENGTH, rma_at(&r, 0), r.rkey, &op);
    CHECK_EQ(st, WEFT_IN_PROGRESS);
    size_t checked = 0;
    while (!t.calls) {
        size_t come = request->offset;
        CHECK(come - checked < WINDOW);
        check(sink, source, checked, come);
        checked = come;
        two_turn(&r.t);
    }
    CHECK(LENGTH - checked < WINDOW);
    check(sink, source, checked, LENGTH);
    CHECK_EQ(t.status, 0);
    /* Nothing beyond: what came a window ago is there. */
    CHECK(memcmp(sink + LENGTH, source + LENGTH - WINDOW, 64) == 0);
    CHECK(memcmp(sink + LENGTH - 64, source + LENGTH - 64, 64) == 0);
    munmap(near, ROOM);
    rma_down(&r);
}

TEST(a_put_of_more_than_four_gigabytes_arrives_whole) {
    transfer(true);
}
TEST(a_get_of_more_than_four_gigabytes_arrives_whole) {
    transfer(false);
}
