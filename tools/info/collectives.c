#include "collectives.h"

#include <base/settings.h>
#include <collectives/select.h>
#include <stdio.h>
#include <talloc.h>

static void print_range(uint64_t from, uint64_t to, unsigned algorithm, bool chosen) {
    char end[32] = "and on";
    if (to != UINT64_MAX) snprintf(end, sizeof end, "to %llu", (unsigned long long)to);
    printf("      %12llu %-16s %s%s\n", (unsigned long long)from, end,
           weft__algorithm_name(algorithm), chosen ? "  (by the settings)" : "");
}

struct answer {
    unsigned algorithm;
    bool chosen;
};

static struct answer ask(const struct choices *choices, struct question *q, uint64_t bytes) {
    struct answer a;
    q->bytes = bytes;
    q->oneshot = q->slots && weft__oneshot_fit(q->kind, bytes, q->ranks);
    a.algorithm = weft__choose_why(choices, q, &a.chosen);
    return a;
}

static bool same(struct answer a, struct answer b) {
    return a.algorithm == b.algorithm && a.chosen == b.chosen;
}

/* Where an answer that holds at `low` ends, if it does not at `high`. */
static uint64_t end_of(const struct choices *choices, struct question *q, struct answer now,
                       uint64_t low, uint64_t high) {
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (same(ask(choices, q, middle), now))
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* It is asked at every eighth of a power of two, and between two answers in the middle. */
static void print_kind(const struct choices *choices, struct question q) {
    uint64_t from = 0, low = 0;
    struct answer now = ask(choices, &q, 0);
    for (uint64_t size = 1; size <= UINT64_C(1) << 40; size += size < 8 ? 1 : size / 8) {
        while (!same(ask(choices, &q, size), now)) {
            uint64_t end = end_of(choices, &q, now, low, size);
            print_range(from, end - 1, now.algorithm, now.chosen);
            from = low = end;
            now = ask(choices, &q, end);
        }
        low = size;
    }
    print_range(from, UINT64_MAX, now.algorithm, now.chosen);
}

static void print_team(const struct choices *choices, uint32_t ranks, bool shared) {
    printf("a team of %u, %s\n", ranks,
           shared ? "with a shared segment, a core for each"
                  : "over messages (other hosts, or no segment)");
    for (int kind = 0; kind < N_COLL_KINDS; kind++)
        for (int fixed = 0; fixed < 1 + (kind == COLL_ALLREDUCE); fixed++) {
            struct question q = {.kind = (enum coll_kind)kind,
                                 .ranks = ranks,
                                 .per_core = 1,
                                 .fixed_order = fixed,
                                 .slots = shared,
                                 .memory = COLL_HOST};
            printf("  %s%s, bytes of each\n", weft__coll_name((enum coll_kind)kind),
                   fixed ? " in fixed order" : "");
            print_kind(choices, q);
        }
}

/* Of device memory, where the members share a host. */
static void print_cuda(const struct choices *choices, uint32_t ranks) {
    printf("a team of %u, all with device memory (CUDA), on one host\n", ranks);
    for (int kind = 0; kind < N_COLL_KINDS; kind++) {
        struct question q = {.kind = (enum coll_kind)kind,
                             .ranks = ranks,
                             .per_core = 1,
                             .peer = true,
                             .memory = COLL_CUDA};
        if (kind == COLL_BARRIER || kind == COLL_FANIN || kind == COLL_FANOUT) continue;
        printf("  %s, bytes of each\n", weft__coll_name((enum coll_kind)kind));
        print_kind(choices, q);
    }
}

int info_collectives(void) {
    static const uint32_t ranks[] = {2, 8, 64};
    struct choices choices;
    weft_context_t *context;
    if (weft_context_create(NULL, &context) < 0) return 0;
    void *parent = talloc_new(NULL);
    int right =
        weft__choices_read(parent, weft__setting_str(context, SETTING_COLL_ALGORITHMS),
                           weft__setting_str(context, SETTING_COLL_TUNING), &choices) == WEFT_OK;
    if (!right) {
        char text[512];
        weft_status_describe(WEFT_ERR_INVALID_PARAM, text, sizeof text);
        fprintf(stderr, "weft-info: %s\n", text);
    }
    for (unsigned i = 0; right && i < sizeof ranks / sizeof *ranks; i++) {
        print_team(&choices, ranks[i], true);
        print_team(&choices, ranks[i], false);
        print_cuda(&choices, ranks[i]);
    }
    talloc_free(parent);
    weft_context_destroy(context);
    return right;
}
