/* Both ends of a lane by the mailbox, from the moment when one has done with it: neither side frees
 * what the other may still read. */
#include <fsm/explore/explorer.h>
#include <tests/harness.h>
#include <tests/model.h>
#include <transports/shm/attach/attach.h>

#define IN(s) (1u << SHM_PART_##s)

static bool is_in(const struct explore_world *w, unsigned peer, unsigned states) {
    return states >> w->peer[peer]->state & 1;
}
/* Its half of the socket is shut: by SHUT, or with all that it freed. A hostile peer may shut it
 * at any time. */
static bool has_shut(const struct explore_world *w, unsigned peer) {
    return w->hostile >> peer & 1 || explore_notified(w, peer, SHM_PART_FX_SHUT) ||
           is_in(w, peer, IN(GONE));
}
static bool peer_has_left(const struct explore_world *w, unsigned peer) {
    return w->hostile >> !peer & 1 || !is_in(w, !peer, IN(ATTACHED));
}
static bool peer_has_shut(const struct explore_world *w, unsigned peer) {
    return has_shut(w, !peer);
}

static const struct explore_local locals[] = {
    {.event = SHM_PART_EV_LEAVE, .states = (uint16_t)~IN(GONE)},
    {.event = SHM_PART_EV_LEAVE_SILENT, .states = (uint16_t)~IN(GONE), .when = peer_has_left},
    {.event = SHM_PART_EV_LEAVE_LOST, .states = (uint16_t)~IN(GONE), .when = peer_has_shut},
    {.event = SHM_PART_EV_LOST,
     .states = IN(TALKING) | IN(EMPTYING) | IN(WAITING),
     .when = peer_has_shut},
    {.event = SHM_PART_EV_EMPTIED, .states = IN(EMPTYING) | IN(LAST)},
};

static const struct explore_effect effects[SHM_PART_N_EFFECTS] = {
    [SHM_PART_FX_SEND_QUIT] = {EXPLORE_SEND, SHM_PART_EV_SILENT},
    [SHM_PART_FX_SHUT] = {EXPLORE_NOTIFY, 0},
    [SHM_PART_FX_FREE] = {EXPLORE_NOTIFY, 0},
};

static const struct explore_role end = {.machine = &weft__shm_part_machine,
                                        .size = sizeof(struct fsm),
                                        .start = SHM_PART_ATTACHED,
                                        EXPLORE_LOCALS_OF(locals),
                                        .effects = effects};

static bool listens(const struct explore_world *w, unsigned peer) {
    return !is_in(w, peer, IN(GONE));
}

static const char *invariant(const struct explore_world *w) {
    for (unsigned i = 0; i < 2; i++) {
        if (w->hostile >> i & 1) continue;
        unsigned shut = explore_notified(w, i, SHM_PART_FX_SHUT),
                 freed = explore_notified(w, i, SHM_PART_FX_FREE);
        if (shut > 1 || freed > 1) return "once";
        if (freed != is_in(w, i, IN(GONE))) return "freed if and only if it is gone";
        if (w->hostile) continue;
        if (shut && is_in(w, !i, IN(ATTACHED)))
            return "emptied for good only of a peer that publishes no more";
        if (freed && !has_shut(w, !i)) return "nothing is freed that the peer may still read";
    }
    return NULL;
}

static bool agreed(const struct explore_world *w) {
    if (w->hostile) return is_in(w, w->hostile & 1 ? 1 : 0, IN(GONE));
    return (is_in(w, 0, IN(GONE)) && is_in(w, 1, IN(GONE)));
}

static void holds(uint8_t hostile) {
    struct explore_model model = {.name = "shm_part",
                                  .role = {&end, &end},
                                  .n_peers = 2,
                                  .hostile = hostile,
                                  .channel = {.capacity = 4},
                                  .listens = listens,
                                  .invariant = invariant,
                                  .agreed = agreed};
    CHECK(model_holds(&model));
}

TEST(both_ends_go_and_neither_before_the_other_has_let_go) {
    holds(0);
}
TEST(a_hostile_end_reaches_no_bug) {
    holds(1);
}
TEST(every_cell_is_reached_or_has_a_reason) {
    weft__fsm_coverage_reset();
    bool before = weft__fsm_coverage(true);
    holds(0);
    holds(1);
    weft__fsm_coverage(before);
    CHECK_EQ(explore_unreached(&weft__shm_part_machine, stdout), 0);
}
