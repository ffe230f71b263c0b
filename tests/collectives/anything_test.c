/* A member that sends anything: messages of the team with fields and lengths at random, beside
 * collectives, agreements and a growth of the others. Each of these ends, and the workers, too. */
#include <collectives/agreement.h>
#include <collectives/collective.h>
#include <endpoints/messages/am.h>

#include "team.h"

enum { N = 3, LIAR = N - 1, SENT = 40, SEEDS = 40 };
static struct crew c;
static uint64_t seed;

static uint32_t any(uint32_t below) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

static void note_end(weft_status_t status, void *arg) {
    free(arg);
}

static void send_anything(void) {
    static uint8_t header[COLL_WIRE_BYTES];
    weft_ep_t *ep = weft__team_ep(c.rank[LIAR].team, any(LIAR));
    static const uint32_t lengths[] = {0, 1, 4, 8, 17, 24, 336, 360, 700, 2048, 5000};
    size_t len = lengths[any(11)];
    uint8_t *bytes = malloc(len + 1);
    struct coll_wire wire = {.team = any(20) ? c.rank[0].team->id : 0,
                             .epoch = any(20) ? 0 : any(3),
                             .seq = any(4) ? any(4) : any(UINT32_MAX),
                             .tag = any(4) ? any(4) : any(UINT32_MAX),
                             .from = any(10) ? LIAR : any(N + 1),
                             .stream = any(10) ? 0 : any(UINT32_MAX)};
    for (size_t i = 0; i < len; i++) bytes[i] = (uint8_t)(any(3) ? 0 : any(256));
    if (len >= AGREE_HEAD_BYTES && any(2)) {
        struct agree_head head = {any(2) ? UINT64_MAX : any(9), any(N + 2), any(2) ? 0 : any(400)};
        weft__agree_head_write(bytes, &head);
    }
    weft__coll_wire_write(header, &wire);
    weft_iov_t iov = {bytes, len};
    weft_op_t op = {
        .done = note_end, .arg = bytes, .flags = any(4) ? WEFT_AM_EAGER : WEFT_AM_RENDEZVOUS};
    unsigned id = COLL_WIRE_DATA + any(COLL_WIRE_FORGET - COLL_WIRE_DATA + 1);
    /* one that ends the team at once hides what comes after it */
    if ((id == COLL_WIRE_NOTICE || id == COLL_WIRE_LEAVE) && any(8)) id = COLL_WIRE_AGREE;
    if (!ep || weft__am_send(ep, &(struct am_send_args){id, header, sizeof header, &iov, len > 0,
                                                        &op}) != WEFT_IN_PROGRESS)
        free(bytes);
}

static uint64_t in[N][64], out[N][64 * N], flags[N];

static void begin_something(struct rank *me, uint32_t r) {
    weft_op_t op = {.done = on_outcome, .arg = me, .deadline_ms = 60};
    expect_outcome(me);
    switch (any(5)) {
    case 0:
        posted(me, weft_allreduce(me->team, in[r], out[r], 8, WEFT_UINT64, WEFT_SUM, &op));
        break;
    case 1: posted(me, weft_allgather(me->team, in[r], out[r], 8, WEFT_UINT64, &op)); break;
    case 2: posted(me, weft_barrier(me->team, &op)); break;
    case 3: posted(me, weft_team_agree(me->team, &flags[r], NULL, &op)); break;
    default:
        op.flags = WEFT_COLL_SAFE;
        posted(me, weft_barrier(me->team, &op));
        break;
    }
}

static bool honest_notified(void) {
    for (uint32_t r = 0; r < LIAR; r++)
        if (!c.rank[r].outcome_calls) return false;
    return true;
}

static void live(const char *transports, uint64_t from) {
    static const weft_setting_t quiet[] = {{"coll.slot", "0"},
                                           {"log.level", "none"},
                                           {"close.timeout", "50ms"},
                                           {"team.timeout", "200ms"}};
    seed = from;
    crew_workers(&c, N, transports, quiet, 4);
    crew_teams(&c);
    for (int round = 0; round < 3; round++) {
        for (uint32_t r = 0; r < LIAR; r++) begin_something(&c.rank[r], r);
        for (int i = 0; i < SENT; i++) {
            send_anything();
            if (any(3) == 0) crew_turn(&c);
        }
        UNTIL(&c, honest_notified());
    }
    if (any(2)) vanish(&c, any(LIAR));
    c.rank[LIAR].closed = true;
    crew_down(&c);
}

TEST(a_member_that_sends_anything_over_tcp_ends_no_worker) {
    for (uint64_t s = 1; s <= SEEDS; s++) live("self,tcp", s);
}
TEST(a_member_that_sends_anything_over_shared_memory_ends_no_worker) {
    for (uint64_t s = 1; s <= SEEDS; s++) live("self,shm", s);
}
