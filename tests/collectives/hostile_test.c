/* What a peer may send to a member: without the team's identity, in the name of another member, or
 * without end. The peer holds the key. */
#include <collectives/agreement.h>
#include <collectives/call.h>
#include <collectives/collective.h>
#include <endpoints/core/link.h>
#include <endpoints/messages/am.h>
#include <transports/tcp/tcp.h>

#include "team.h"

/* Two members, and a worker beside them that is none. */
enum { MEMBERS = 2, INTRUDER = MEMBERS };
static struct crew c;
static weft_ep_t *to_member;

static void connect_intruder_to(uint32_t rank) {
    uint8_t address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(c.rank[rank].worker, address, &len), WEFT_OK);
    CHECK_EQ(weft_connect_address(c.rank[INTRUDER].worker, address, len, NULL, &to_member),
             WEFT_OK);
}

static weft_status_t send_as(weft_ep_t *ep, enum coll_wire_id id, const struct coll_wire *wire,
                             const void *bytes, size_t len, const weft_op_t *op) {
    static uint8_t header[COLL_WIRE_BYTES];
    weft_iov_t iov = {(void *)(uintptr_t)bytes, len};
    weft__coll_wire_write(header, wire);
    return weft__am_send(ep, &(struct am_send_args){id, header, sizeof header, &iov, len > 0, op});
}

static void two_members(const char *transports, const char *setting, const char *value) {
    weft_setting_t one = {setting, value};
    crew_workers(&c, MEMBERS + 1, transports, &one, setting != NULL);
    c.size = MEMBERS;
    crew_teams(&c);
    c.size = MEMBERS + 1;
    connect_intruder_to(0);
}

static uint64_t count(const char *name) {
    return weft_worker_count(c.rank[0].worker, name);
}

/* ---- without the team's identity ------------------------------------------------------------- */

/* 0 stands for an identity that is not known yet. */
TEST(a_message_without_an_identity_reaches_no_team_in_its_exchange) {
    static const enum coll_wire_id ids[] = {COLL_WIRE_DATA,  COLL_WIRE_GO,      COLL_WIRE_NOTICE,
                                            COLL_WIRE_LEAVE, COLL_WIRE_RELEASE, COLL_WIRE_AGREE,
                                            COLL_WIRE_LEFT,  COLL_WIRE_JOIN};
    enum { IDS = sizeof ids / sizeof *ids };
    static const uint8_t bytes[64];
    crew_workers(&c, MEMBERS + 1, "self,tcp", NULL, 0);
    c.size = MEMBERS;
    crew_begin_teams(&c, 5000);
    c.size = MEMBERS + 1;
    c.copy_ctl.arrived = 0; /* the exchange waits */
    connect_intruder_to(0);
    for (int i = 0; i < IDS; i++) {
        struct coll_wire wire = {.from = 1, .seq = i == 6 ? 1 : 0, .tag = (uint32_t)-3};
        CHECK(send_as(to_member, ids[i], &wire, bytes, i < 2 ? 0 : sizeof bytes, NULL) >= 0);
    }
    UNTIL(&c, count("am.received") >= IDS);
    CHECK_EQ(count("peer.violations"), 0);
    c.copy_ctl.arrived = MEMBERS;
    UNTIL(&c, all_ready(&c));
    for (uint32_t r = 0; r < MEMBERS; r++) CHECK_EQ(c.rank[r].ready, WEFT_OK);
    EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
    crew_down(&c);
}

/* What members send before this one knows the team finds a place beside what is sent for none. */
TEST(messages_of_unknown_teams_leave_room_for_those_of_members) {
    weft_setting_t alone = {"coll.slot", "0"};
    crew_workers(&c, MEMBERS + 1, "self,tcp", &alone, 1);
    c.size = MEMBERS;
    crew_begin_teams(&c, 5000);
    c.size = MEMBERS + 1;
    c.copy_ctl.arrived = 0;
    connect_intruder_to(1);
    uint64_t before = weft_worker_count(c.rank[1].worker, "am.received");
    enum { MANY = 5000 };
    for (uint32_t i = 0; i < MANY; i++) {
        struct coll_wire wire = {.team = 12345, .seq = i};
        CHECK(send_as(to_member, COLL_WIRE_DATA, &wire, NULL, 0, NULL) >= 0);
        if (i % 64 == 0) crew_turn(&c);
    }
    UNTIL(&c, weft_worker_count(c.rank[1].worker, "am.received") >= before + MANY);
    c.copy_ctl.arrived = MEMBERS;
    copy_ctl_pump(&c.copy_ctl); /* the first member's exchange ends, and it sends */
    for (int i = 0; i < 2000; i++)
        for (uint32_t r = 0; r < MEMBERS; r++) weft_worker_progress(c.rank[r].worker, 0);
    UNTIL(&c, all_ready(&c));
    for (uint32_t r = 0; r < MEMBERS; r++) CHECK_EQ(c.rank[r].ready, WEFT_OK);
    crew_down(&c);
}

/* ---- early messages: of a team whose exchange may be in progress here ------------------------ */

static struct team_registry *registry_of(uint32_t r) {
    struct team_registry *registry;
    CHECK_EQ(weft__team_registry(c.rank[r].worker, &registry), WEFT_OK);
    return registry;
}

/* Rank 0 is in an exchange that waits; the others are workers beside it. */
static void one_in_exchange(uint32_t workers, weft_ep_t **to_first) {
    uint8_t address[256];
    size_t len = sizeof address;
    crew_workers(&c, workers, "self,tcp", NULL, 0);
    c.size = 1;
    crew_begin_teams(&c, 60000);
    c.size = workers;
    c.copy_ctl.arrived = 0;
    CHECK_EQ(weft_worker_address(c.rank[0].worker, address, &len), WEFT_OK);
    for (uint32_t r = 1; r < workers; r++)
        CHECK_EQ(weft_connect_address(c.rank[r].worker, address, len, NULL, &to_first[r]), WEFT_OK);
}

/* `n` messages of a team that is not known, which have arrived. */
static void send_early(weft_ep_t *ep, uint32_t n, const void *bytes, size_t len) {
    uint64_t before = count("am.received");
    for (uint32_t i = 0; i < n; i++) {
        struct coll_wire wire = {.team = 12345, .seq = i};
        CHECK(send_as(ep, COLL_WIRE_DATA, &wire, bytes, len, NULL) >= 0);
        if (i % 64 == 0) crew_turn(&c);
    }
    UNTIL(&c, count("am.received") >= before + n);
}

TEST(early_messages_are_dropped_where_no_exchange_is_in_progress) {
    two_members("self,tcp", NULL, NULL);
    uint64_t before = count("coll.dropped");
    send_early(to_member, 3, NULL, 0);
    CHECK_EQ(count("coll.dropped"), before + 3);
    CHECK_EQ(registry_of(0)->n_orphans, 0);
    crew_down(&c);
}

TEST(early_messages_of_more_bytes_than_4096_are_dropped) {
    static const uint8_t bytes[4097];
    weft_ep_t *ep[2];
    one_in_exchange(2, ep);
    send_early(ep[1], 1, bytes, 4096);
    CHECK(registry_of(0)->n_orphans == 1 && count("coll.dropped") == 0);
    send_early(ep[1], 1, bytes, 4097);
    CHECK(registry_of(0)->n_orphans == 1 && count("coll.dropped") == 1);
    crew_down(&c);
}

TEST(early_messages_are_1024_of_one_worker_and_4096_of_all) {
    enum { WORKERS = 6 };
    weft_ep_t *ep[WORKERS];
    one_in_exchange(WORKERS, ep);
    send_early(ep[1], 1030, NULL, 0);
    CHECK(registry_of(0)->n_orphans == 1024 && count("coll.dropped") == 6);
    for (uint32_t r = 2; r < 5; r++) send_early(ep[r], 1024, NULL, 0);
    CHECK(registry_of(0)->n_orphans == 4096 && count("coll.dropped") == 6);
    send_early(ep[5], 2, NULL, 0);
    CHECK(registry_of(0)->n_orphans == 4096 && count("coll.dropped") == 8);
    crew_down(&c);
}

static void let_exchange_end(void) {
    c.copy_ctl.arrived = c.copy_ctl.size;
}
static void let_time_end(void) {
    c.rank[0].team->deadline.fire(&c.rank[0].team->deadline);
}
static void close_first(void) {
    CHECK_EQ(weft_team_close(c.rank[0].team, &(weft_op_t){.done = on_closed, .arg = &c.rank[0]}),
             WEFT_IN_PROGRESS);
}
static void let_exchange_fail(void) {
    struct copy_ctl_seat *seat = &c.copy_ctl.seat[0];
    seat->done(WEFT_ERR_IO, seat->arg);
}
static void let_exchange_end_with_garbage(void) {
    struct copy_ctl_seat *seat = &c.copy_ctl.seat[0];
    memset(seat->all, 0xa5, seat->len);
    seat->done(WEFT_OK, seat->arg);
}

/* However the last exchange ends. */
TEST(early_messages_are_dropped_when_no_exchange_is_in_progress_any_more) {
    static void (*const ends[])(void) = {let_exchange_end, let_time_end, close_first,
                                         let_exchange_fail, let_exchange_end_with_garbage};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        weft_ep_t *ep[2];
        one_in_exchange(2, ep);
        send_early(ep[1], 5, "early", 5);
        CHECK_EQ(registry_of(0)->n_orphans, 5);
        ends[i]();
        UNTIL(&c, c.rank[0].ready_calls);
        CHECK(registry_of(0)->n_orphans == 0 && count("coll.dropped") == 5);
        UNTIL(&c, ends[i] != close_first || c.rank[0].closed);
        if (c.rank[0].closed) c.rank[0].team = NULL;
        crew_down(&c);
    }
}

/* What another exchange may wait for stays. */
TEST(early_messages_stay_while_another_exchange_is_in_progress) {
    struct copy_ctl second;
    struct rank other = {.ready = WEFT_IN_PROGRESS};
    weft_ep_t *ep[2];
    one_in_exchange(2, ep);
    copy_ctl_make(&second, 1);
    weft_team_params_t params = {
        .exchange = &second.exchange[0], .on_ready = on_team_ready, .arg = &other};
    CHECK_EQ(weft_team_create(c.rank[0].worker, &params, &other.team), WEFT_OK);
    send_early(ep[1], 5, NULL, 0);
    let_exchange_end();
    UNTIL(&c, c.rank[0].ready_calls);
    CHECK_EQ(registry_of(0)->n_orphans, 5);
    copy_ctl_pump(&second);
    UNTIL(&c, other.ready_calls);
    CHECK_EQ(registry_of(0)->n_orphans, 0);
    CHECK_EQ(weft_team_close(other.team, &(weft_op_t){.done = on_closed, .arg = &other}),
             WEFT_IN_PROGRESS);
    UNTIL(&c, other.closed);
    crew_down(&c);
}

/* Rank 0 receives what rank 1 sends, and no allocation of its own succeeds. */
static void receive_without_memory(uint64_t received) {
    double end = test_now() + test_timeout(60);
    while (count("am.received") == received && test_now() < end) {
        weft_worker_progress(c.rank[1].worker, 0);
        weft__alloc_fail_run(1, 1000);
        weft_worker_progress(c.rank[0].worker, 0);
        weft__alloc_fail_at(0);
    }
}

/* It may have been a member's: the teams that are made then fail, and no later one. */
TEST(an_early_message_that_finds_no_memory_fails_the_exchange_in_progress) {
    for (int times_out = 0; times_out < 2; times_out++) {
        weft_ep_t *ep[2];
        struct coll_wire wire = {.team = 12345};
        one_in_exchange(2, ep);
        send_early(ep[1], 1, NULL, 0);
        uint64_t before = count("am.received");
        CHECK(send_as(ep[1], COLL_WIRE_DATA, &wire, NULL, 0, NULL) >= 0);
        receive_without_memory(before);
        CHECK_EQ(count("coll.dropped"), 1);
        (times_out ? let_time_end : let_exchange_end)();
        UNTIL(&c, c.rank[0].ready_calls);
        CHECK_EQ(c.rank[0].ready, times_out ? WEFT_ERR_TIMED_OUT : WEFT_ERR_NO_MEMORY);
        crew_close_teams(&c);
        c.size = 1;
        crew_teams(&c);
        c.size = 2;
        crew_down(&c);
    }
}

/* ---- in the name of another member ----------------------------------------------------------- */

/* The worker beside the team has learned its identity. */
static bool first_has_failed(void) {
    weft_team_info_t info;
    CHECK_EQ(weft_team_describe(c.rank[0].team, &info), WEFT_OK);
    return info.status < 0;
}

TEST(who_blames_no_member_of_the_team_is_blamed) {
    static const uint32_t ranks[] = {2, UINT32_MAX};
    for (int i = 0; i < 2; i++) {
        weft_team_info_t info;
        char text[512];
        two_members("self,tcp", NULL, NULL);
        struct coll_wire wire = {.team = c.rank[0].team->id,
                                 .from = 1,
                                 .seq = ranks[i],
                                 .tag = (uint32_t)WEFT_ERR_REVOKED};
        weft_ep_t *ep = weft_team_ep(c.rank[1].team, 0);
        CHECK(send_as(ep, COLL_WIRE_NOTICE, &wire, NULL, 0, NULL) >= 0);
        UNTIL(&c, first_has_failed());
        CHECK_EQ(weft_team_describe(c.rank[0].team, &info), WEFT_OK);
        CHECK(info.status == WEFT_ERR_REVOKED && info.blamed == 1);
        CHECK_EQ(weft_barrier(c.rank[0].team, NULL), WEFT_ERR_REVOKED);
        weft_status_describe(WEFT_ERR_REVOKED, text, sizeof text);
        CHECK(strstr(text, "because of rank 1"));
        crew_down(&c);
    }
}

TEST(a_message_in_the_name_of_another_worker_reaches_no_team) {
    static const enum coll_wire_id ids[] = {COLL_WIRE_DATA,   COLL_WIRE_GO,   COLL_WIRE_NOTICE,
                                            COLL_WIRE_LEAVE,  COLL_WIRE_LEFT, COLL_WIRE_AGREE,
                                            COLL_WIRE_RELEASE};
    enum { IDS = sizeof ids / sizeof *ids };
    static const uint8_t bytes[64];
    two_members("self,tcp", NULL, NULL);
    for (int i = 0; i < IDS; i++) {
        struct coll_wire wire = {
            .team = c.rank[0].team->id, .from = 1, .seq = i == 4 ? 1 : 0, .tag = (uint32_t)-3};
        size_t len = ids[i] == COLL_WIRE_LEFT ? 1 : i < 2 ? 0 : sizeof bytes;
        CHECK(send_as(to_member, ids[i], &wire, bytes, len, NULL) >= 0);
    }
    UNTIL(&c, count("coll.dropped") == IDS);
    CHECK_EQ(count("peer.violations"), 0);
    EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
    for (uint32_t r = 0; r < MEMBERS; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    crew_down(&c);
}

/* ---- from a member, without end -------------------------------------------------------------- */

/* A message of no bytes takes memory as long as the collective that it names has not begun. */
TEST(empty_messages_of_collectives_to_come_are_bounded) {
    two_members("self,tcp", "coll.unexpected_bytes", "64k");
    for (uint32_t i = 0; i < 20000 && c.rank[0].team->status == WEFT_OK; i++) {
        struct coll_wire wire = {.team = c.rank[0].team->id, .from = 1, .seq = 1000 + i, .tag = i};
        CHECK(send_as(weft__team_ep(c.rank[1].team, 0), i % 2 ? COLL_WIRE_GO : COLL_WIRE_DATA,
                      &wire, NULL, 0, NULL) >= 0);
        if (i % 64 == 0) crew_turn(&c);
    }
    UNTIL(&c, c.rank[0].team->status == WEFT_ERR_QUOTA);
    crew_down(&c);
}

static void note_end(weft_status_t status, void *arg) {
    *(weft_status_t *)arg = status;
}

/* A long message of an agreement, from the second member to the first. */
static void offer_contribution(weft_status_t *sent_p) {
    static uint8_t bytes[1024];
    struct coll_wire wire = {.team = c.rank[0].team->id, .from = 1, .tag = AGREE_CONTRIBUTE};
    weft_op_t op = {.done = note_end, .arg = sent_p, .flags = WEFT_AM_RENDEZVOUS};
    CHECK(send_as(weft__team_ep(c.rank[1].team, 0), COLL_WIRE_AGREE, &wire, bytes, sizeof bytes,
                  &op) >= 0);
}

/* The bytes of a long message of an agreement are on their way when the worker ends. */
TEST(a_worker_ends_while_a_message_of_an_agreement_arrives) {
    weft_status_t sent = WEFT_IN_PROGRESS;
    two_members("self,tcp", NULL, NULL);
    uint64_t before = count("am.received");
    offer_contribution(&sent);
    double end = test_now() + test_timeout(60);
    while (count("am.received") == before && test_now() < end) {
        weft_worker_progress(c.rank[0].worker, 0);
        if (count("am.received") == before) weft_worker_progress(c.rank[1].worker, 0);
    }
    CHECK(count("am.received") > before);
    vanish(&c, 0);
    crew_down(&c);
}

/* To the kernel. */
static bool all_have_left(weft_ep_t *ep) {
    return weft_ep_has_room(ep) == WEFT_OK && tcp_lane(ep->link->lane)->out.queued == 0;
}

static size_t n_incoming(const struct team_registry *registry) {
    size_t n = 0;
    list_for_each(at, &registry->incoming) n++;
    return n;
}

/* The bytes of a long message of an agreement take memory until they are there, which the member
 * decides that offered them. */
TEST(long_messages_of_agreements_are_bounded) {
    enum { OFFERS = 200 };
    static weft_status_t sent[OFFERS];
    struct team_registry *registry;
    two_members("self,tcp", NULL, NULL);
    CHECK_EQ(weft__team_registry(c.rank[0].worker, &registry), WEFT_OK);
    EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
    for (int i = 0; i < 200; i++) crew_turn(&c);
    uint64_t before = count("am.received");
    for (uint32_t i = 0; i < OFFERS; i++) offer_contribution(&sent[i]);
    double end = test_now() + test_timeout(60);
    while (!all_have_left(weft__team_ep(c.rank[1].team, 0)) && test_now() < end)
        weft_worker_progress(c.rank[1].worker, 0);
    while (count("am.received") < before + OFFERS && test_now() < end)
        weft_worker_progress(c.rank[0].worker, 0);
    CHECK_EQ(count("am.received"), before + OFFERS);
    CHECK_EQ(n_incoming(registry), AGREE_INCOMING_MOST);
    UNTIL(&c, n_incoming(registry) == 0);
    EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
    for (uint32_t r = 0; r < MEMBERS; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    crew_down(&c);
}

/* It is counted, and its sender has its bytes back. */
TEST(a_long_message_of_an_agreement_that_finds_no_memory_is_dropped) {
    weft_status_t sent = WEFT_IN_PROGRESS;
    two_members("self,tcp", NULL, NULL);
    EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
    for (int i = 0; i < 200; i++) crew_turn(&c);
    uint64_t before = count("am.received"), dropped = count("coll.dropped");
    offer_contribution(&sent);
    receive_without_memory(before);
    CHECK_EQ(count("coll.dropped"), dropped + 1);
    UNTIL(&c, sent != WEFT_IN_PROGRESS);
    EVERYBODY(&c, weft_barrier(me->team, OP_OF(me)));
    for (uint32_t r = 0; r < MEMBERS; r++) CHECK_EQ(c.rank[r].outcome, WEFT_OK);
    crew_down(&c);
}

/* The others have excluded this member before it calls: nothing of the call is left behind. */
TEST(a_decision_before_the_call_leaves_no_deadline) {
    static uint64_t flags;
    uint8_t bytes[AGREE_HEAD_BYTES + 1] = {0};
    two_members("self,tcp", NULL, NULL);
    weft__agree_head_write(bytes, &(struct agree_head){.ballot = 2});
    bytes[AGREE_HEAD_BYTES] = 1; /* rank 0 is lost */
    struct coll_wire wire = {.team = c.rank[0].team->id, .from = 1, .tag = AGREE_DECIDE};
    uint64_t before = count("am.received");
    weft_ep_t *to_first = weft__team_ep(c.rank[1].team, 0);
    CHECK(send_as(to_first, COLL_WIRE_AGREE, &wire, bytes, sizeof bytes, NULL) >= 0);
    UNTIL(&c, count("am.received") > before);
    expect_outcome(&c.rank[0]);
    weft_op_t op = {.done = on_outcome, .arg = &c.rank[0], .deadline_ms = 200};
    posted(&c.rank[0], weft_team_agree(c.rank[0].team, &flags, NULL, &op));
    UNTIL(&c, c.rank[0].outcome_calls);
    CHECK_EQ(c.rank[0].outcome, WEFT_ERR_PEER_FAILED);
    crew_close_teams(&c);
    double end = test_now() + 0.3;
    while (test_now() < end) crew_turn(&c);
    crew_down(&c);
}

/* ---- to a worker that joins ------------------------------------------------------------------ */

/* The inviter sends the records of all before the worker has given its own. */
static void hurry(weft_ep_t *ep, weft_am_t *am, void *arg) {
    static const uint8_t records[2 * MEMBER_RECORD_BYTES];
    struct coll_wire wire, answer;
    CHECK(weft__coll_wire_read(am->header, am->header_len, &wire));
    answer = (struct coll_wire){
        .team = wire.team, .epoch = wire.epoch, .seq = wire.seq, .from = 1, .stream = 2};
    CHECK(send_as(ep, COLL_WIRE_WELCOME, &answer, NULL, 0, NULL) >= 0);
    CHECK(send_as(ep, COLL_WIRE_RECORDS, &answer, records, sizeof records, NULL) >= 0);
}

TEST(records_that_come_before_their_time_end_a_join) {
    uint8_t invitation[WEFT_TEAM_INVITATION_MAX];
    size_t len = sizeof invitation - INVITATION_HEAD;
    crew_workers(&c, 2, "self,tcp", NULL, 0);
    CHECK_EQ(weft__am_handler_set(c.rank[1].worker, COLL_WIRE_JOIN, hurry, NULL), WEFT_OK);
    weft__invitation_write(invitation, &(struct coll_invitation){.team = 77});
    CHECK_EQ(weft_worker_address(c.rank[1].worker, invitation + INVITATION_HEAD, &len), WEFT_OK);
    weft_team_params_t params = {
        .on_ready = on_team_ready, .arg = &c.rank[0], .deadline_ms = 10000};
    c.rank[0].ready = WEFT_IN_PROGRESS;
    CHECK_EQ(weft_team_join(c.rank[0].worker, invitation, INVITATION_HEAD + len, &params), WEFT_OK);
    UNTIL(&c, c.rank[0].ready_calls);
    CHECK_EQ(c.rank[0].ready, WEFT_ERR_PROTOCOL);
    crew_down(&c);
}

/* ---- from a worker that joins ---------------------------------------------------------------- */

static uint8_t records[3 * MEMBER_RECORD_BYTES];
static int n_welcomed, n_records;
static void on_welcome(weft_ep_t *ep, weft_am_t *am, void *arg) {
    n_welcomed++;
}
static void on_records(weft_ep_t *ep, weft_am_t *am, void *arg) {
    n_records++;
    CHECK(am->data != NULL);
    CHECK_EQ(am->len, sizeof records);
    memcpy(records, am->data, am->len);
}

static void send_of_joiner(enum coll_wire_id id, uint32_t number, const void *bytes, size_t len) {
    const weft_team_t *team = c.rank[0].team;
    struct coll_wire wire = {.team = team->id, .epoch = team->epoch, .seq = number};
    CHECK(send_as(to_member, id, &wire, bytes, len, NULL) >= 0);
}

/* The inviter may be sending it to the members already. */
TEST(the_first_record_of_a_worker_that_joins_counts) {
    uint8_t address[256], record[MEMBER_RECORD_BYTES];
    size_t len = sizeof address;
    crew_workers(&c, 2, "self,tcp", NULL, 0);
    c.size = 1;
    crew_teams(&c);
    c.size = 2;
    n_welcomed = n_records = 0;
    CHECK_EQ(weft_worker_address(c.rank[1].worker, address, &len), WEFT_OK);
    CHECK_EQ(weft__am_handler_set(c.rank[1].worker, COLL_WIRE_WELCOME, on_welcome, NULL), WEFT_OK);
    CHECK_EQ(weft__am_handler_set(c.rank[1].worker, COLL_WIRE_RECORDS, on_records, NULL), WEFT_OK);
    uint8_t own[256];
    size_t own_len = sizeof own;
    CHECK_EQ(weft_worker_address(c.rank[0].worker, own, &own_len), WEFT_OK);
    CHECK_EQ(weft_connect_address(c.rank[1].worker, own, own_len, NULL, &to_member), WEFT_OK);
    expect_outcome(&c.rank[0]);
    weft_team_params_t params = {.on_ready = on_team_ready, .arg = &c.rank[0]};
    c.rank[0].ready = WEFT_IN_PROGRESS;
    CHECK_EQ(weft_team_grow(c.rank[0].team, 0, 2, &params), WEFT_OK);
    for (uint32_t number = 1; number <= 2; number++)
        send_of_joiner(COLL_WIRE_JOIN, number, address, len);
    UNTIL(&c, n_welcomed == 2);
    for (unsigned i = 0; i < 3; i++) { /* of the first, of the first again, of the second */
        memset(record, 0x11 * (int)(i + 1), sizeof record);
        send_of_joiner(COLL_WIRE_RECORD, i < 2 ? 1 : 2, record, sizeof record);
    }
    UNTIL(&c, n_records == 2 && c.rank[0].ready != WEFT_IN_PROGRESS);
    CHECK_EQ(records[MEMBER_RECORD_BYTES], 0x11);
    CHECK_EQ(records[2 * MEMBER_RECORD_BYTES], 0x33);
    crew_down(&c);
}

/* ---- counts that members ask for ------------------------------------------------------------- */

/* Blocks whose sum passes 64 bits would lie in memory that is too short for each of them. */
TEST(counts_of_other_members_that_are_too_large_end_the_team) {
    static int64_t in[8], out[8];
    enum { N = 4, ROOT = 3 };
    static const uint64_t counts[N] = {2, 2, 2, 2};
    static const weft_setting_t settings[] = {
        {"coll.per_host", "2"}, {"coll.algorithms", "gatherv=hierarchy"}, {"coll.slot", "0"}};
    crew_workers(&c, N, "self,tcp", settings, 3);
    crew_teams(&c);
    for (uint32_t r = 0; r < N; r++) {
        weft_coll_args_t args = {.kind = WEFT_COLL_GATHERV,
                                 .type = WEFT_INT64,
                                 .root = ROOT,
                                 .src = in,
                                 .dst = out,
                                 .count = 2,
                                 .dst_counts = counts};
        struct coll_call call;
        bool nothing;
        struct coll_displacements displacements = {0};
        expect_outcome(&c.rank[r]);
        CHECK_EQ(weft__coll_resolve(c.rank[r].team, &args, 0, &displacements, &call, &nothing),
                 WEFT_OK);
        CHECK_EQ(call.algorithm, ALGORITHM_GATHERV_hierarchy);
        if (r == 1) call.count = (UINT64_C(1) << 61) - 1; /* no check of a hostile member's own */
        posted(&c.rank[r], weft__collective_start(c.rank[r].team, &call, OP_OF(&c.rank[r]), NULL));
        talloc_free(displacements.owner);
    }
    UNTIL(&c, c.rank[0].outcome_calls);
    CHECK_EQ(c.rank[0].outcome, WEFT_ERR_TOO_BIG);
    crew_down(&c);
}
