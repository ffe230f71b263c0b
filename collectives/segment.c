/* Makes, opens, checks and closes the memory that the members of a team on one host share. */
#define _GNU_SOURCE
#include "segment.h"
#include "wire.h"

#include <base/hash.h>
#include <base/host.h>
#include <base/sealed.h>
#include <errno.h>
#include <fcntl.h>
#include <reactor/reactor.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };
static const uint64_t segment_magic = 0x3031746c53746657; /* "WftSlt10" */

static uint64_t pages(uint64_t bytes) {
    return (bytes + 4095) / 4096 * 4096;
}

static uint64_t head_bytes(uint32_t size) {
    return pages(sizeof(struct segment_head)) +
           pages(size *
                 (sizeof(struct segment_member) + SEGMENT_LINES * sizeof(struct segment_line) +
                  SEGMENT_CHANNELS * (sizeof(struct segment_peer) + sizeof(struct segment_offer))));
}

static uint64_t annex_bytes(uint32_t size) {
    return size <= SEGMENT_ANNEX_MEMBERS ? SEGMENT_CHANNELS * (uint64_t)size * SEGMENT_ANNEX : 0;
}

static uint64_t heads_bytes(uint32_t size) {
    return segment_has_heads(size) ? SEGMENT_HEADS * (uint64_t)size * size * SEGMENT_LINE : 0;
}

static uint64_t block_bytes(uint32_t size) {
    uint64_t room = SEGMENT_CHANNELS * (uint64_t)size * size * segment_block_stride(size);
    return size <= SEGMENT_ANNEX_MEMBERS ? pages(heads_bytes(size) + room) : 0;
}

/* All that stands before the slots. */
static uint64_t front_bytes(uint32_t size) {
    return head_bytes(size) + block_bytes(size) + annex_bytes(size);
}

static uint64_t bytes_for(uint32_t size, uint64_t slot) {
    return front_bytes(size) + SEGMENT_CHANNELS * (uint64_t)(size + 1) * slot;
}

static void lay_out(struct segment *s, void *mapped) {
    uint8_t *at = mapped;
    s->head = mapped;
    s->member = (struct segment_member *)(at + pages(sizeof *s->head));
    s->line = (struct segment_line *)(s->member + s->size);
    s->peer = (struct segment_peer *)(s->line + SEGMENT_LINES * s->size);
    s->offer = (struct segment_offer *)(s->peer + SEGMENT_CHANNELS * s->size);
    s->block = at + head_bytes(s->size);
    s->room = s->block + heads_bytes(s->size);
    s->annex = s->block + block_bytes(s->size);
    s->data = s->annex + annex_bytes(s->size);
}

static bool map_segment(struct segment *s, int fd) {
    void *at = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return false;
    lay_out(s, at);
    return true;
}

static struct segment *new_segment(const void *parent, uint32_t size, uint64_t slot) {
    struct segment *s = weft__new(parent, struct segment);
    if (!s) return NULL;
    s->size = size;
    s->block_stride = segment_block_stride(size);
    s->head_stride = segment_has_heads(size) ? SEGMENT_LINE : s->block_stride;
    s->head_mask = (segment_has_heads(size) ? SEGMENT_HEADS : SEGMENT_CHANNELS) - 1;
    s->slot = slot;
    s->bytes = bytes_for(size, slot);
    s->fd = s->doorbell = -1;
    return s;
}

/* ---- the doorbell ---------------------------------------------------------------------------- */

/* That of a process: for reading and writing, so that a write never lacks a reader. */
static int open_doorbell(uint32_t pid, uint32_t fd, struct stat *stat) {
    char path[48];
    snprintf(path, sizeof path, "/proc/%u/fd/%u", pid, fd);
    int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (opened >= 0 && fstat(opened, stat) == 0 && S_ISFIFO(stat->st_mode)) return opened;
    if (opened >= 0) close(opened);
    return -1;
}

static bool make_doorbell(struct segment *s) {
    int ends[2];
    struct stat stat;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) return false;
    s->doorbell = open_doorbell((uint32_t)getpid(), (uint32_t)ends[0], &stat);
    close(ends[0]);
    close(ends[1]);
    if (s->doorbell < 0) return false;
    s->head->doorbell = (uint32_t)s->doorbell;
    s->head->doorbell_inode = stat.st_ino;
    return true;
}

/* The process may have ended, and another have its number. */
static bool find_doorbell(struct segment *s, uint32_t maker) {
    struct stat stat;
    s->doorbell = open_doorbell(maker, s->head->doorbell, &stat);
    return s->doorbell >= 0 && stat.st_ino == s->head->doorbell_inode;
}

/*
 * A write to a pipe that is readable already wakes none in some kernels (Linux 5.5 to 5.13), so
 * it is emptied first. Members that were woken and have not looked yet sleep on, until this write.
 */
void weft__team_segment_ring(const struct segment *segment) {
    char rings[SEGMENT_MOST_MEMBERS];
    ssize_t n = read(segment->doorbell, rings, sizeof rings);
    (void)n;
    n = write(segment->doorbell, "", 1);
    (void)n;
}

/* ---- the slots' pages ------------------------------------------------------------------------ */

/* Linux 5.14. False with EINVAL where the kernel knows no such advice. */
static bool populate(const struct segment *s, uint64_t bytes) {
    int st;
    do st = madvise(s->head, bytes, MADV_POPULATE_WRITE);
    while (st < 0 && errno == EINTR);
    return st == 0;
}

/*
 * Slots are the most of a segment, and a team whose vectors are small uses none: it would pay 0.3
 * ms for those of eight members. A kernel that cannot allocate them later does so now.
 */
static bool fill_front(struct segment *s) {
    uint64_t front = front_bytes(s->size);
    if (weft__sealed_fill(s->fd, 0, front) < 0) return false;
    if (populate(s, 1)) return true; /* a page that is there: does the kernel know it? */
    s->has_slots = errno == EINVAL;
    return s->has_slots && weft__sealed_fill(s->fd, front, s->bytes - front) == 0;
}

/* All of it, so that the range begins where the mapping does, whatever a page's size. */
weft_status_t weft__team_segment_fill(struct segment *s) {
    if (s->has_slots) return WEFT_OK;
    s->has_slots = atomic_load(&s->head->filled) || populate(s, s->bytes) ||
                   errno == EINVAL; /* then its maker has filled it */
    if (s->has_slots) atomic_store(&s->head->filled, 1);
    return s->has_slots ? WEFT_OK : weft__fail(WEFT_ERR_NO_MEMORY, "the team's slots");
}

/* ---- its life -------------------------------------------------------------------------------- */

weft_status_t weft__team_segment_create(const void *parent, uint32_t size, uint64_t slot,
                                        uint64_t nonce, struct segment **segment_p) {
    if (size > SEGMENT_MOST_MEMBERS) return WEFT_ERR_UNSUPPORTED;
    struct segment *s = new_segment(parent, size, slot);
    if (!s) return WEFT_ERR_NO_MEMORY;
    void *at;
    s->fd = weft__sealed_make("weft-team", s->bytes, 0, 0, &at);
    if (s->fd < 0) {
        talloc_free(s);
        return WEFT_ERR_NO_MEMORY;
    }
    lay_out(s, at);
    if (!fill_front(s)) {
        weft__team_segment_close(s);
        return WEFT_ERR_NO_MEMORY;
    }
    s->head->nonce = nonce;
    s->head->size = size;
    s->head->slot = slot;
    s->head->bytes = s->bytes;
    s->head->magic = segment_magic;
    if (!make_doorbell(s)) {
        weft__team_segment_close(s);
        return WEFT_ERR_NO_FDS;
    }
    *segment_p = s;
    return WEFT_OK;
}

static bool is_ours(int fd, const struct segment *s) {
    struct stat stat;
    int seals = fcntl(fd, F_GET_SEALS);
    return fstat(fd, &stat) == 0 && (uint64_t)stat.st_size == s->bytes && seals >= 0 &&
           (seals & SEALS) == SEALS;
}

static bool head_matches(const struct segment *s, uint64_t nonce) {
    const struct segment_head *head = s->head;
    return head->magic == segment_magic && head->nonce == nonce && head->size == s->size &&
           head->slot == s->slot && head->bytes == s->bytes;
}

weft_status_t weft__team_segment_open(const void *parent, uint32_t size,
                                      const struct member_record *maker,
                                      struct segment **segment_p) {
    char path[48];
    if (size > SEGMENT_MOST_MEMBERS) return WEFT_ERR_UNSUPPORTED;
    struct segment *s = new_segment(parent, size, maker->slot);
    if (!s) return WEFT_ERR_NO_MEMORY;
    snprintf(path, sizeof path, "/proc/%u/fd/%u", maker->pid, maker->fd);
    int opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    bool good = opened >= 0 && is_ours(opened, s) && map_segment(s, opened);
    if (opened >= 0) close(opened);
    if (good && head_matches(s, maker->nonce) && find_doorbell(s, maker->pid)) {
        *segment_p = s;
        return WEFT_OK;
    }
    weft__team_segment_close(s);
    return WEFT_ERR_UNREACHABLE;
}

void weft__team_segment_opened(struct segment *segment) {
    if (segment->fd >= 0) close(segment->fd);
    segment->fd = -1;
}

void weft__team_segment_close(struct segment *segment) {
    if (!segment) return;
    weft__team_segment_opened(segment);
    if (segment->doorbell >= 0) close(segment->doorbell);
    if (segment->head) munmap(segment->head, segment->bytes);
    talloc_free(segment);
}

uint64_t weft__team_host(void) {
    uid_t uid = geteuid();
    uint64_t pids = weft__host_id("pid");
    return pids ? hash_more(pids, &uid, sizeof uid) : 0;
}
