/* Who is let in over connected queue pairs, and what becomes of bytes that no peer would send. */
#include "../harness.h"

#ifdef WEFT_HAVE_RDMA
#include "rdma_rc.h"
#include <fcntl.h>
#include <sys/stat.h>

/* ---- who may connect ------------------------------------------------------------------------- */

TEST(a_worker_that_holds_the_users_key_is_let_in) {
    struct pair p;
    char path[128];
    struct stat s;
    WANTS_A_DEVICE();
    begin_with(&p, NULL, 0);
    pair_connect(&p);
    snprintf(path, sizeof path, "%s/.config/weft/key", home);
    CHECK(stat(path, &s) == 0 && (s.st_mode & 0777) == 0600);
    CHECK(rc_lane(p.a.lane)->hello.flags == RC_FLAG_KEYED && rc_lane(p.b.lane)->acceptor);
    CHECK(memcmp(rc_lane(p.a.lane)->hello.nonce, rc_lane(p.a.lane)->answer.nonce, RC_NONCE) != 0);
    CHECK_EQ(send_msg(&p.a, 1), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    end_of(&p);
}

/* What rdmacm says may be lost, and comes again after 4 s: the acceptor is as patient as the
 * dialer, not as one that listens over tcp. */
TEST(an_acceptor_waits_as_long_as_a_dialer) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, &(weft_setting_t){"tcp.handshake_timeout", "1ms"}, 1);
    pair_connect(&p);
    end_of(&p);
}

/* The dialer sees it first, since the acceptor proves first. */
TEST(with_another_key_a_worker_is_not_taken_for_ours) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, NULL, 0);
    CHECK_EQ(weft__rc_trust_ready(raw_b(&p)), WEFT_OK);
    raw_b(&p)->key.bytes[31] ^= 1;
    CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_AUTH);
    CHECK(pair_until(&p, raw_b(&p)->n_lanes == 0));
    CHECK(p.a.n_open == 0 && p.b.n_open == 0);
    CHECK_EQ(weft__count(p.reactor_a)->violations, 1);
    end_of(&p);
}

/* A dialer that would rather not look is found out by its own proof; until then the acceptor's
 * owner learns of no peer. */
TEST(without_a_proof_no_one_is_let_in) {
    struct pair p;
    WANTS_A_DEVICE();
    for (int byte = 0; byte < RC_PROOF; byte += RC_PROOF - 1) {
        begin_with(&p, NULL, 0);
        CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
        CHECK(pair_until(&p, !TAILQ_EMPTY(&raw_b(&p)->lanes)));
        struct rc_lane *accepted = TAILQ_FIRST(&raw_b(&p)->lanes);
        accepted->proof[byte] ^= 0x10;
        CHECK(pair_until(&p, p.a.n_down == 1));
        CHECK(pair_until(&p, raw_b(&p)->n_lanes == 0));
        CHECK_EQ(p.b.n_open, 0);
        CHECK_EQ(weft__count(p.reactor_b)->violations, 1);
        end_of(&p);
    }
}

TEST(who_has_a_key_and_who_has_none_do_not_meet) {
    struct pair p;
    WANTS_A_DEVICE();
    for (int who = 0; who < 2; who++) {
        begin_with(&p, NULL, 0);
        struct rc_iface *open = who ? raw_a(&p) : raw_b(&p);
        open->key = (struct trust_key){.trust = TRUST_ANYONE};
        open->have_key = true;
        CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
        CHECK(pair_until(&p, p.a.n_down == 1));
        CHECK_EQ(p.a.down, WEFT_ERR_AUTH);
        CHECK(p.b.n_open == 0 && raw_b(&p)->n_lanes == 0);
        end_of(&p);
    }
}

TEST(an_address_that_was_guessed_is_refused) {
    struct pair p;
    uint8_t address[RC_ADDRESS_SIZE];
    size_t len = sizeof address;
    struct lane *lane = NULL;
    WANTS_A_DEVICE();
    begin_with(&p, NULL, 0);
    CHECK_EQ(p.iface_b->ops->address(p.iface_b, address, &len), WEFT_OK);
    address[12 + RC_TOKEN - 1] ^= 1;
    CHECK_EQ(p.iface_a->ops->connect(p.iface_a, address, len, &lane), WEFT_OK);
    lane->owner = &p.a;
    p.a.lane = lane;
    CHECK(pair_until(&p, p.a.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_REFUSED);
    CHECK(p.b.n_open == 0 && raw_b(&p)->n_lanes == 0);
    end_of(&p);
}

TEST(to_listen_where_anybody_comes_wants_a_key_for_it) {
    struct pair p;
    struct tl_listener *listener;
    char path[96];
    WANTS_A_DEVICE();
    begin_with(&p, NULL, 0);
    CHECK_EQ(p.iface_a->ops->listen(p.iface_a, "*:0", &(struct listen_how){.backlog = 4}, NULL,
                                    &listener),
             WEFT_ERR_INSECURE);
    end_of(&p);
    strcpy(path, "/tmp/weft-rc-key-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, "the cluster's own key, long enough", 34) == 34);
    close(fd);
    const weft_setting_t keyed = {"tcp.key_file", path};
    for (int i = 0; i < 2; i++) {
        begin_with(&p, i ? &keyed : &insecure, 1);
        p.flags = PAIR_BY_URI;
        pair_connect(&p);
        CHECK_EQ(rc_lane(p.b.lane)->hello.flags, i ? RC_FLAG_KEYED : 0);
        end_of(&p);
    }
    CHECK_EQ(unlink(path), 0);
}

/* ---- bytes that no peer would send ----------------------------------------------------------- */

struct unverified {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    int received; /* the last event; -1: none yet */
};

static void unverified_receives(struct unverified *s) {
    struct rdma_cm_event *event;
    while (rdma_get_cm_event(s->channel, &event) == 0) {
        s->received = (int)event->event;
        rdma_ack_cm_event(event);
    }
}

/* A peer at b's place, by rdmacm alone, which sends these bytes. */
static void knock(struct pair *p, const uint8_t *sent, uint8_t len, uint32_t qp_num) {
    struct unverified s = {.channel = rdma_create_event_channel(), .received = -1};
    union rd_sockaddr to = raw_b(p)->own->at;
    CHECK(s.channel && fcntl(s.channel->fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK_EQ(rdma_create_id(s.channel, &s.id, NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_resolve_addr(s.id, NULL, &to.any, 2000), 0);
    CHECK(pair_until(p, (unverified_receives(&s), s.received == RDMA_CM_EVENT_ADDR_RESOLVED)));
    CHECK_EQ(rdma_resolve_route(s.id, 2000), 0);
    CHECK(pair_until(p, (unverified_receives(&s), s.received == RDMA_CM_EVENT_ROUTE_RESOLVED)));
    struct rdma_conn_param param = {
        .private_data = sent, .private_data_len = len, .qp_num = qp_num};
    CHECK_EQ(rdma_connect(s.id, &param), 0);
    CHECK(pair_until(p, (unverified_receives(&s), s.received > RDMA_CM_EVENT_ROUTE_RESOLVED)));
    rdma_destroy_id(s.id);
    rdma_destroy_event_channel(s.channel);
    CHECK(s.received == RDMA_CM_EVENT_REJECTED || s.received == RDMA_CM_EVENT_CONNECT_RESPONSE);
}

TEST(noise_connects_no_one_and_leaves_nothing) {
    struct pair p;
    uint8_t address[96], good[RC_HELLO_SIZE], bytes[RC_HELLO_SIZE];
    size_t len = sizeof address;
    uint64_t x = 88172645463325252u;
    char timeout[16];
    WANTS_A_DEVICE();
    snprintf(timeout, sizeof timeout, "%dms", (int)(1e3 * test_timeout(2)));
    begin_with(&p, &(weft_setting_t){"connect.timeout", timeout}, 1);
    CHECK_EQ(p.iface_b->ops->address(p.iface_b, address, &len), WEFT_OK);
    struct rc_hello hello = {.worker = 1, .buffer = raw_b(&p)->buffer, .flags = RC_FLAG_KEYED};
    memcpy(hello.token, raw_b(&p)->token, RC_TOKEN);
    weft__rc_hello_encode(&hello, good);
    for (uint8_t cut = 0; cut < 56; cut += 11) knock(&p, good, cut, 0);
    for (int n = 0; n < 12; n++) {
        memcpy(bytes, good, sizeof good);
        for (size_t i = n < 6 ? 0 : 4; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)((x = x * 6364136223846793005u + 1) >> 56);
        knock(&p, bytes, sizeof bytes, (uint32_t)x & RC_PSN);
    }
    CHECK_EQ(raw_b(&p)->n_lanes, 0);
    knock(&p, good, sizeof good, 77); /* the first word is right, and no other follows */
    CHECK_EQ(p.b.n_open, 0);
    CHECK(pair_until(&p, raw_b(&p)->n_lanes == 0)); /* connect.timeout */
    pair_connect(&p);
    end_of(&p);
}

#else
TEST(a_worker_that_holds_the_users_key_is_let_in) {
    SKIP("built without rdma");
}
#endif
