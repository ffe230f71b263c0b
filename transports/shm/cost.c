/* Measures the bandwidth of a copy into a shared segment, which delays each message's receiver. */
#include "cost.h"
#include <reactor/reactor.h>
#include <transports/shm/memory/segment.h>

#include <sys/mman.h>
#include <transports/copy.h>

enum { PIECE = 256 << 10, WHOLE = 1 << 20, ROUNDS = 3 };

static uint64_t copy_pieces(char *to, const char *from) {
    uint64_t begin = weft__real_now();
    for (size_t at = 0; at < WHOLE; at += PIECE) {
        weft__copy(to + at, from + at, PIECE);
        __asm__ volatile("" ::"r"(to) : "memory");
    }
    return weft__real_now() - begin;
}

/* One thread alone cannot measure the latency to another processor: the attributes estimate
 * that. */
bool weft__shm_measure(struct iface_cost *cost_p) {
    struct segment segment;
    uint64_t least = UINT64_MAX;
    char *from = mmap(NULL, WHOLE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (from == MAP_FAILED) return false;
    bool made = weft__segment_create(&segment, "weft-cost", WHOLE, SEGMENT_MINE) == WEFT_OK;
    for (int i = 0; made && i < ROUNDS; i++) {
        uint64_t took = copy_pieces(segment.at, from);
        if (took < least) least = took;
    }
    if (made) weft__segment_close(&segment);
    munmap(from, WHOLE);
    if (!made) return false;
    *cost_p = (struct iface_cost){.bandwidth = WHOLE * 1e9 / (double)(least ? least : 1)};
    return true;
}
