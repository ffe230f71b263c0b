#define _GNU_SOURCE
/* The memory that a team shares: opened by those it is meant for, and by no others. */
#include <collectives/segment.h>
#include <collectives/wire.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <talloc.h>
#include <tests/harness.h>

static int signals;

/* The library's calls come here, too. */
__attribute__((visibility("default"))) int fallocate(int fd, int mode, off_t offset, off_t len) {
    if (signals == 0) return (int)syscall(SYS_fallocate, fd, mode, offset, len);
    signals--;
    errno = EINTR;
    return -1;
}

static int advice_error; /* of the calls that populate */

__attribute__((visibility("default"))) int madvise(void *at, size_t len, int advice) {
    enum { POPULATE_WRITE = 23 };
    if (advice != POPULATE_WRITE || advice_error == 0)
        return (int)syscall(SYS_madvise, at, len, advice);
    errno = advice_error;
    return -1;
}

static uint64_t allocated(const struct segment *s) {
    struct stat stat;
    CHECK_EQ(fstat(s->fd, &stat), 0);
    return (uint64_t)stat.st_blocks * 512;
}

TEST(what_one_process_makes_another_opens) {
    struct segment *mine, *theirs;
    CHECK_EQ(weft__team_segment_create(NULL, 4, 8192, 99, &mine), WEFT_OK);
    pid_t maker = getpid(), child = fork();
    if (child == 0) {
        struct member_record of = {
            .slot = 8192, .nonce = 99, .pid = (uint32_t)maker, .fd = (uint32_t)mine->fd};
        if (weft__team_segment_open(NULL, 4, &of, &theirs) < 0) _exit(1);
        memcpy(segment_slot(theirs, 3, 4), "published", 10);
        atomic_store(&theirs->head->channel[3].published, 7);
        _exit(0);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK_EQ(atomic_load(&mine->head->channel[3].published), 7);
    CHECK(strcmp((char *)segment_slot(mine, 3, 4), "published") == 0);
    weft__team_segment_close(mine);
}

static bool opens(uint32_t size, struct member_record maker) {
    struct segment *segment;
    return weft__team_segment_open(NULL, size, &maker, &segment) >= 0;
}

TEST(what_is_not_the_teams_segment_is_not_opened) {
    struct segment *mine, *theirs;
    uint32_t pid = (uint32_t)getpid();
    CHECK_EQ(weft__team_segment_create(NULL, 4, 8192, 99, &mine), WEFT_OK);
    uint32_t fd = (uint32_t)mine->fd;
    CHECK(!opens(4, (struct member_record){.slot = 8192, .nonce = 98, .pid = pid, .fd = fd}));
    CHECK(!opens(5, (struct member_record){.slot = 8192, .nonce = 99, .pid = pid, .fd = fd}));
    CHECK(!opens(4, (struct member_record){.slot = 4096, .nonce = 99, .pid = pid, .fd = fd}));
    CHECK(!opens(4, (struct member_record){.slot = 8192, .nonce = 99, .pid = pid, .fd = 4000}));
    CHECK(!opens(4, (struct member_record){.slot = 8192, .nonce = 99, .pid = pid, .fd = 1}));
    CHECK(!opens(4, (struct member_record){.slot = 8192, .nonce = 99, .pid = 0, .fd = 0}));
    CHECK(weft__team_segment_create(NULL, SEGMENT_MOST_MEMBERS + 1, 64, 1, &theirs) < 0);
    weft__team_segment_opened(mine);
    CHECK(!opens(4, (struct member_record){.slot = 8192, .nonce = 99, .pid = pid, .fd = fd}));
    weft__team_segment_close(mine);
}

TEST(a_signal_while_it_is_made_does_no_harm) {
    struct segment *mine;
    signals = 1;
    CHECK_EQ(weft__team_segment_create(NULL, 4, 8192, 99, &mine), WEFT_OK);
    CHECK_EQ(signals, 0);
    weft__team_segment_close(mine);
}

TEST(slots_have_no_pages_before_their_first_use) {
    struct segment *mine;
    CHECK_EQ(weft__team_segment_create(NULL, 4, 32768, 99, &mine), WEFT_OK);
    if (mine->has_slots) SKIP("the kernel cannot allocate pages on request");
    uint64_t front = (uint64_t)(segment_slot(mine, 0, 0) - (uint8_t *)mine->head);
    if (allocated(mine) >= 2 << 20) SKIP("shared memory has huge pages");
    CHECK_EQ(allocated(mine), front);
    advice_error = EFAULT;
    CHECK_EQ(weft__team_segment_fill(mine), WEFT_ERR_NO_MEMORY);
    CHECK_EQ(allocated(mine), front);
    advice_error = 0;
    CHECK_EQ(weft__team_segment_fill(mine), WEFT_OK);
    CHECK_EQ(allocated(mine), mine->bytes);
    advice_error = EFAULT; /* it is asked once */
    CHECK_EQ(weft__team_segment_fill(mine), WEFT_OK);
    advice_error = 0;
    weft__team_segment_close(mine);
}

TEST(a_kernel_that_cannot_allocate_later_allocates_all_at_once) {
    struct segment *mine, *theirs;
    advice_error = EINVAL;
    CHECK_EQ(weft__team_segment_create(NULL, 4, 32768, 99, &mine), WEFT_OK);
    CHECK_EQ(allocated(mine), mine->bytes);
    struct member_record of = {
        .slot = 32768, .nonce = 99, .pid = (uint32_t)getpid(), .fd = (uint32_t)mine->fd};
    CHECK_EQ(weft__team_segment_open(NULL, 4, &of, &theirs), WEFT_OK);
    CHECK_EQ(weft__team_segment_fill(theirs), WEFT_OK);
    advice_error = 0;
    weft__team_segment_close(theirs);
    weft__team_segment_close(mine);
}

/* What a member that sleeps watches. */
static int watch_of(const struct segment *segment) {
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    CHECK_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, segment->doorbell, &event), 0);
    return epoll;
}

static int reports(int epoll) {
    struct epoll_event event;
    return epoll_wait(epoll, &event, 1, 0);
}

/* Also one that has not looked since the last time, and none that has looked since. */
TEST(one_ring_wakes_all_members) {
    struct segment *segment[3];
    int epoll[3];
    CHECK_EQ(weft__team_segment_create(NULL, 3, 64, 99, &segment[0]), WEFT_OK);
    for (int i = 1; i < 3; i++) {
        struct member_record of = {
            .slot = 64, .nonce = 99, .pid = (uint32_t)getpid(), .fd = (uint32_t)segment[0]->fd};
        CHECK_EQ(weft__team_segment_open(NULL, 3, &of, &segment[i]), WEFT_OK);
    }
    for (int i = 0; i < 3; i++) epoll[i] = watch_of(segment[i]);
    for (int i = 0; i < 3; i++) CHECK_EQ(reports(epoll[i]), 0);
    for (int n = 0; n < 100000; n++) weft__team_segment_ring(segment[n % 3]);
    for (int i = 0; i < 3; i++) CHECK_EQ(reports(epoll[i]), 1);
    for (int i = 0; i < 3; i++) CHECK_EQ(reports(epoll[i]), 0);
    weft__team_segment_ring(segment[2]);
    weft__team_segment_ring(segment[1]);
    for (int i = 0; i < 3; i++) CHECK_EQ(reports(epoll[i]), 1);
    for (int i = 0; i < 3; i++) close(epoll[i]);
    for (int i = 2; i >= 0; i--) weft__team_segment_close(segment[i]);
}

TEST(what_is_not_the_teams_doorbell_is_not_rung) {
    struct segment *mine, *theirs;
    int other[2];
    CHECK_EQ(pipe(other), 0);
    CHECK_EQ(weft__team_segment_create(NULL, 4, 8192, 99, &mine), WEFT_OK);
    struct member_record of = {
        .slot = 8192, .nonce = 99, .pid = (uint32_t)getpid(), .fd = (uint32_t)mine->fd};
    const uint32_t strange[] = {(uint32_t)other[0], (uint32_t)mine->fd, 4000};
    for (int i = 0; i < 3; i++) {
        mine->head->doorbell = strange[i];
        CHECK(!opens(4, of));
    }
    mine->head->doorbell = (uint32_t)mine->doorbell;
    CHECK_EQ(weft__team_segment_open(NULL, 4, &of, &theirs), WEFT_OK);
    weft__team_segment_close(theirs);
    weft__team_segment_close(mine);
    close(other[0]);
    close(other[1]);
}

TEST(no_one_can_shrink_it_under_the_others) {
    struct segment *mine;
    CHECK_EQ(weft__team_segment_create(NULL, 2, 64, 1, &mine), WEFT_OK);
    CHECK(ftruncate(mine->fd, 0) < 0);
    CHECK(ftruncate(mine->fd, 1 << 24) < 0);
    weft__team_segment_close(mine);
}

TEST(an_unsealed_file_of_the_right_size_is_refused) {
    struct segment *mine;
    CHECK_EQ(weft__team_segment_create(NULL, 2, 64, 1, &mine), WEFT_OK);
    int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)mine->bytes) == 0);
    CHECK_EQ(pwrite(fd, mine->head, 4096, 0), 4096);
    CHECK(!opens(2, (struct member_record){
                        .slot = 64, .nonce = 1, .pid = (uint32_t)getpid(), .fd = (uint32_t)fd}));
    close(fd);
    weft__team_segment_close(mine);
}

TEST(the_host_has_an_identity) {
    CHECK(weft__team_host() != 0);
    CHECK(weft__team_host() == weft__team_host());
}
