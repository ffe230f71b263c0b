/*
 * Lets the program itself choose the instructions that callgrind counts: those of one kind of work
 * at a time, after some rounds to warm up. Each kind's figures come in a profile of its own.
 * Without valgrind's headers, or outside of it, nothing happens.
 */
#ifndef WEFT_BENCH_COUNTING_H
#define WEFT_BENCH_COUNTING_H

#include <stdbool.h>
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define CALLGRIND_START_INSTRUMENTATION ((void)0)
#define CALLGRIND_TOGGLE_COLLECT        ((void)0)
#define CALLGRIND_ZERO_STATS            ((void)0)
#define CALLGRIND_DUMP_STATS_AT(name)   ((void)(name))
#endif

enum counted { COUNT_NOTHING, COUNT_SEND = 1, COUNT_RECEIVE = 2, COUNT_SETTLE = 4, COUNT_ALL = 7 };
static enum counted counted;

/* Around what is of that kind. Begun with --collect-atstart=no. */
#define COUNTED(kind, call)                             \
    do {                                                \
        if (counted & (kind)) CALLGRIND_TOGGLE_COLLECT; \
        call;                                           \
        if (counted & (kind)) CALLGRIND_TOGGLE_COLLECT; \
    } while (0)

/* `rounds` rounds, of which that kind is counted. */
static inline void count_rounds(const char *name, enum counted kind, void (*round)(void),
                                int rounds) {
    counted = kind;
    CALLGRIND_ZERO_STATS;
    while (rounds-- > 0) round();
    CALLGRIND_DUMP_STATS_AT(name);
    counted = COUNT_NOTHING;
}

/* What is counted of messages: alone, there and back; and in bursts, one way. */
enum { COUNT_WARM = 8, COUNT_ALONE = 64, COUNT_BURSTS = 16, COUNT_BURST = 48 };
static inline void count_messages(void (*alone)(void), void (*burst)(void)) {
    for (int i = 0; i < COUNT_WARM; i++) alone(), burst();
    CALLGRIND_START_INSTRUMENTATION;
    alone();
    burst();
    count_rounds("alone", COUNT_ALL, alone, COUNT_ALONE);
    count_rounds("send", COUNT_SEND, burst, COUNT_BURSTS);
    count_rounds("receive", COUNT_RECEIVE, burst, COUNT_BURSTS);
    count_rounds("settle", COUNT_SETTLE, burst, COUNT_BURSTS);
}

#endif
