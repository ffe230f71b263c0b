/*
 * What the library asks the kernel for, and is given from the seed instead: time, which passes only
 * when a run says so, and random bytes. So timers, nonces, tickets and ids of a run are those of
 * its repetition.
 */
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "world.h"

static bool ours;
static uint64_t now_ns, random_state;

enum { A_LOOK_NS = 100 }; /* each look at the clock takes so long */

void machine_begin(uint64_t seed) {
    ours = true;
    now_ns = UINT64_C(1000000000000);
    random_state = chance_mix(seed + 77);
}

void machine_pass(uint64_t ns) {
    now_ns += ns;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *t) {
    if (!ours) return (int)syscall(SYS_clock_gettime, clock, t);
    now_ns += A_LOOK_NS;
    *t = (struct timespec){.tv_sec = (time_t)(now_ns / 1000000000),
                           .tv_nsec = (long)(now_ns % 1000000000)};
    return 0;
}

__attribute__((visibility("default"))) ssize_t getrandom(void *to, size_t len, unsigned flags) {
    if (!ours) return syscall(SYS_getrandom, to, len, flags);
    for (size_t at = 0; at < len; at += sizeof random_state) {
        uint64_t value = chance_mix(random_state += UINT64_C(0x9e3779b97f4a7c15));
        memcpy((char *)to + at, &value, len - at < sizeof value ? len - at : sizeof value);
    }
    return (ssize_t)len;
}
