/* Numbers of collectives and agreements that wrap. */
#include "team.h"

#include <collectives/collective.h>

static int32_t mine[MOST_RANKS][500], sum[MOST_RANKS][500];

static void number_from(struct crew *c, uint32_t first) {
    for (uint32_t r = 0; r < c->size; r++) {
        c->rank[r].team->order.next_seq = first;
        c->rank[r].team->n_agreements = first;
    }
}

static void sums(struct crew *c, int times) {
    for (int i = 0; i < times; i++) {
        for (uint32_t r = 0; r < c->size; r++) mine[r][499] = i + (int32_t)r;
        EVERYBODY(c,
                  weft_allreduce(me->team, mine[r], sum[r], 500, WEFT_INT32, WEFT_SUM, OP_OF(me)));
        for (uint32_t r = 0; r < c->size; r++)
            CHECK(c->rank[r].outcome == WEFT_OK && sum[r][499] == 4 * i + 6);
    }
}

TEST(collectives_go_on_when_their_numbers_wrap) {
    struct crew c;
    crew_up(&c, 4, "self,shm", "coll.slot", "0");
    number_from(&c, UINT32_MAX - 5);
    sums(&c, 12);
    CHECK_EQ(c.rank[0].team->order.next_seq, 6);
    crew_down(&c);
}

/* One member is ahead of the others by collectives on both sides of the wrap. */
TEST(messages_that_come_early_find_their_collective_across_the_wrap) {
    struct crew c;
    int32_t value[3][4];
    crew_up(&c, 3, "self,tcp", NULL, NULL);
    number_from(&c, UINT32_MAX - 1);
    for (int i = 0; i < 4; i++) {
        value[0][i] = 100 + i;
        CHECK(weft_bcast(c.rank[0].team, &value[0][i], 1, WEFT_INT32, 0, NULL) >= 0);
    }
    for (int i = 0; i < 1000; i++) crew_turn(&c);
    for (int i = 0; i < 4; i++)
        for (uint32_t r = 1; r < 3; r++) {
            expect_outcome(&c.rank[r]);
            posted(&c.rank[r],
                   weft_bcast(c.rank[r].team, &value[r][i], 1, WEFT_INT32, 0, OP_OF(&c.rank[r])));
            UNTIL(&c, c.rank[r].outcome_calls);
            CHECK(c.rank[r].outcome == WEFT_OK && value[r][i] == 100 + i);
        }
    crew_down(&c);
}

TEST(agreements_go_on_when_their_numbers_wrap) {
    struct crew c;
    uint64_t flags[3];
    crew_up(&c, 3, "self,shm", NULL, NULL);
    number_from(&c, UINT32_MAX - 2);
    for (int i = 0; i < 6; i++) {
        for (uint32_t r = 0; r < 3; r++) flags[r] = ~(1ull << (r + (unsigned)i));
        EVERYBODY(&c, weft_team_agree(me->team, &flags[r], NULL, OP_OF(me)));
        for (uint32_t r = 0; r < 3; r++)
            CHECK(c.rank[r].outcome == WEFT_OK && flags[r] == ~(7ull << i));
    }
    crew_down(&c);
}
