/* Connected queue pairs of rdma beyond what all transports promise. Wants a device: tools/rdma-vm has two. */
#include "pair.h"

#ifdef WEFT_HAVE_RDMA
#include "rma_target.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <transports/rdma/rc.h>

#define WANTS_A_DEVICE() \
    if (!pair_has_rdma()) SKIP("no RDMA device here")

static struct rc_iface *raw_a(struct pair *p) {
    return (struct rc_iface *)p->iface_a;
}
static struct rc_iface *raw_b(struct pair *p) {
    return (struct rc_iface *)p->iface_b;
}

static weft_status_t say(struct end *end, uint64_t number) {
    return end->lane->ops->am_short(end->lane, 3, number, NULL, 0);
}

static char home[64];
static void begin_with(struct pair *p, const weft_setting_t *settings, size_t n) {
    strcpy(home, "/tmp/weft-rc-home-XXXXXX");
    CHECK(mkdtemp(home));
    setenv("HOME", home, 1);
    unsetenv("XDG_CONFIG_HOME");
    pair_open_with(p, &weft__transport_rdma_rc, 0, settings, n);
}
static void end_of(struct pair *p) {
    char command[96];
    pair_close(p);
    snprintf(command, sizeof command, "rm -rf %s", home);
    CHECK_EQ(system(command), 0);
}
static const weft_setting_t insecure = {"rdma.insecure", "yes"};

/* ---- who may connect ---------------------------------------------------------------------------------------------- */

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
    CHECK_EQ(say(&p.a, 1), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    end_of(&p);
}

/* The dialer sees it first, since the acceptor proves first. */
TEST(with_another_key_a_worker_is_not_taken_for_ours) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, NULL, 0);
    CHECK_EQ(rc_trust_ready(raw_b(&p)), WEFT_OK);
    raw_b(&p)->key.bytes[31] ^= 1;
    CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_AUTH);
    CHECK(pair_until(&p, raw_b(&p)->n_lanes == 0));
    CHECK(p.a.n_open == 0 && p.b.n_open == 0);
    CHECK_EQ(weft__count(p.reactor_a)->violations, 1);
    end_of(&p);
}

/* A dialer that would rather not look is found out by its own proof; until then the acceptor's owner hears of nobody. */
TEST(without_a_proof_nobody_is_let_in) {
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
    CHECK_EQ(p.iface_a->ops->listen(p.iface_a, "*:0", 4, NULL, &listener), WEFT_ERR_INSECURE);
    end_of(&p);
    strcpy(path, "/tmp/weft-rc-key-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, "the cluster's own key, long", 27) == 27);
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

/* ---- bytes that nobody would send ---------------------------------------------------------------------------------- */

struct stranger {
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    int heard; /* the last event; -1: none yet */
};

static void stranger_hears(struct stranger *s) {
    struct rdma_cm_event *event;
    while (rdma_get_cm_event(s->channel, &event) == 0) {
        s->heard = (int)event->event;
        rdma_ack_cm_event(event);
    }
}

/* Somebody at b's place, by rdmacm alone, who says these bytes. */
static void knock(struct pair *p, const uint8_t *said, uint8_t len, uint32_t qp_num) {
    struct stranger s = {.channel = rdma_create_event_channel(), .heard = -1};
    union rd_sockaddr to = raw_b(p)->own->at;
    CHECK(s.channel && fcntl(s.channel->fd, F_SETFL, O_NONBLOCK) == 0);
    CHECK_EQ(rdma_create_id(s.channel, &s.id, NULL, RDMA_PS_TCP), 0);
    CHECK_EQ(rdma_resolve_addr(s.id, NULL, &to.any, 2000), 0);
    CHECK(pair_until(p, (stranger_hears(&s), s.heard == RDMA_CM_EVENT_ADDR_RESOLVED)));
    CHECK_EQ(rdma_resolve_route(s.id, 2000), 0);
    CHECK(pair_until(p, (stranger_hears(&s), s.heard == RDMA_CM_EVENT_ROUTE_RESOLVED)));
    struct rdma_conn_param param = {.private_data = said, .private_data_len = len, .qp_num = qp_num};
    CHECK_EQ(rdma_connect(s.id, &param), 0);
    CHECK(pair_until(p, (stranger_hears(&s), s.heard > RDMA_CM_EVENT_ROUTE_RESOLVED)));
    rdma_destroy_id(s.id);
    rdma_destroy_event_channel(s.channel);
    CHECK(s.heard == RDMA_CM_EVENT_REJECTED || s.heard == RDMA_CM_EVENT_CONNECT_RESPONSE);
}

TEST(noise_connects_nobody_and_leaves_nothing) {
    struct pair p;
    uint8_t address[96], good[RC_HELLO_SIZE], bytes[RC_HELLO_SIZE];
    size_t len = sizeof address;
    uint64_t x = 88172645463325252u;
    WANTS_A_DEVICE();
    begin_with(&p, (weft_setting_t[]){{"connect.timeout", "8s"}}, 1);
    CHECK_EQ(p.iface_b->ops->address(p.iface_b, address, &len), WEFT_OK);
    struct rc_hello hello = {.worker = 1, .buffer = raw_b(&p)->buffer, .flags = RC_FLAG_KEYED};
    memcpy(hello.token, raw_b(&p)->token, RC_TOKEN);
    rc_hello_encode(&hello, good);
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

/* ---- what a key opens ------------------------------------------------------------------------------------------------ */

struct keyed {
    struct pair p;
    struct end other_a, other_b; /* a second lane of the same two */
    struct target t;
    struct md_mem *mem;
    struct lane_key *key;
};

static void keyed_open(struct keyed *k) {
    memset(k, 0, sizeof *k);
    begin_with(&k->p, NULL, 0);
    pair_connect(&k->p);
    CHECK_EQ(pair_dial(&k->p, &k->other_a, &k->other_b), WEFT_OK);
    CHECK(pair_until(&k->p, k->other_a.n_open == 1 && k->other_b.n_open == 1));
    target_open(&k->t, 2 * TARGET_PAGE, WEFT_MEM_ALL, true);
    CHECK_EQ(k->p.iface_b->ops->mem_register(k->p.iface_b, &k->t.region, &k->mem), WEFT_OK);
    uint8_t packed[MD_KEY_MAX];
    size_t len = k->p.iface_b->ops->key_pack(k->mem, packed);
    CHECK_EQ(k->p.a.lane->ops->key_open(k->p.a.lane, &k->t.remote, packed, len, &k->key), WEFT_OK);
    CHECK(pair_until(&k->p, k->key->status == WEFT_OK));
}

static int taken_back;
static void on_taken_back(struct completion *c, weft_status_t status) {
    taken_back++;
}

static void keyed_close(struct keyed *k) {
    struct completion completion = {on_taken_back, 1, WEFT_OK};
    taken_back = 0;
    pair_end_close(&k->p.a, false);
    pair_end_close(&k->p.b, false);
    if (k->mem && k->p.iface_b->ops->mem_revoke(k->mem, &completion) == WEFT_IN_PROGRESS)
        CHECK(pair_until(&k->p, taken_back == 1));
    CHECK_EQ(say(&k->other_a, 5), WEFT_OK); /* the other lane never noticed */
    CHECK(pair_until(&k->p, k->other_b.n_messages == 1));
    CHECK(k->other_a.n_down == 0 && k->other_b.n_down == 0);
    CHECK(target_is_as_it_should(&k->t));
    pair_end_close(&k->other_a, true);
    pair_end_close(&k->other_b, true);
    end_of(&k->p);
    target_close(&k->t);
}

/* A write past all that our side looks at. */
static void write_raw(struct end *by, uint64_t at, uint32_t rkey, size_t len) {
    struct rc_lane *lane = rc_lane(by->lane);
    static char bytes[RC_INLINE];
    memset(bytes, 0xa5, sizeof bytes);
    struct ibv_sge sge = {.addr = (uintptr_t)bytes, .length = (uint32_t)len};
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
                             .sg_list = &sge,
                             .num_sge = 1,
                             .send_flags = IBV_SEND_INLINE,
                             .wr.rdma = {.remote_addr = at, .rkey = rkey}};
    rc_post(lane, &wr, &(struct rc_work){.what = RC_PLAIN}, true);
}

static uint32_t rkey_of(const struct keyed *k) {
    return ((const struct rc_key *)k->key)->rkey;
}

TEST(what_was_granted_can_be_written_as_the_next_tests_do) {
    static struct keyed k;
    WANTS_A_DEVICE();
    keyed_open(&k);
    write_raw(&k.p.a, k.t.remote.base + 5, rkey_of(&k), 100);
    memset(target_shadow(&k.t, 5), 0xa5, 100);
    CHECK(pair_until(&k.p, target_is_as_it_should(&k.t)));
    keyed_close(&k);
}

TEST(a_write_beyond_what_was_granted_ends_its_lane_alone) {
    static struct keyed k;
    WANTS_A_DEVICE();
    const int64_t at[] = {-1, -100, 2 * TARGET_PAGE - 99, 2 * TARGET_PAGE, INT64_MAX};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        keyed_open(&k);
        write_raw(&k.p.a, k.t.remote.base + (uint64_t)at[i], rkey_of(&k), 100);
        CHECK(pair_until(&k.p, k.p.a.n_down == 1 && k.p.b.n_down == 1));
        CHECK_EQ(k.p.a.down, WEFT_ERR_REVOKED);
        keyed_close(&k);
    }
}

TEST(a_forged_key_ends_its_lane_alone) {
    static struct keyed k;
    WANTS_A_DEVICE();
    for (unsigned i = 0; i < 32; i += 5) {
        keyed_open(&k);
        write_raw(&k.p.a, k.t.remote.base, rkey_of(&k) ^ 1u << i, 100);
        CHECK(pair_until(&k.p, k.p.a.n_down == 1 && k.p.b.n_down == 1));
        CHECK_EQ(k.p.a.down, WEFT_ERR_REVOKED);
        keyed_close(&k);
    }
}

TEST(a_key_that_was_taken_back_ends_the_lane_that_still_uses_it) {
    static struct keyed k;
    struct completion completion = {on_taken_back, 1, WEFT_OK};
    WANTS_A_DEVICE();
    keyed_open(&k);
    uint32_t rkey = rkey_of(&k);
    taken_back = 0;
    CHECK_EQ(k.p.iface_b->ops->mem_revoke(k.mem, &completion), WEFT_IN_PROGRESS);
    k.mem = NULL;
    CHECK(pair_until(&k.p, taken_back == 1));
    write_raw(&k.p.a, k.t.remote.base, rkey, 100);
    CHECK(pair_until(&k.p, k.p.a.n_down == 1 && k.p.b.n_down == 1));
    keyed_close(&k);
}

/* A window is bound to the queue pair that asked for it. */
TEST(a_key_serves_on_the_connection_alone_on_which_it_came) {
    static struct keyed k;
    WANTS_A_DEVICE();
    keyed_open(&k);
    if (!raw_b(&k.p)->device->windows) {
        memset(&k.key, 0, sizeof k.key);
        keyed_close(&k);
        SKIP("this device has no memory windows");
    }
    struct end kept = k.other_a, kept_b = k.other_b;
    write_raw(&kept, k.t.remote.base, rkey_of(&k), 100);
    k.other_a = k.p.a; /* so that the innocent one is looked at in the end */
    k.other_b = k.p.b;
    k.p.a = kept;
    k.p.b = kept_b;
    k.p.a.lane->owner = &k.p.a;
    k.p.b.lane->owner = &k.p.b;
    k.other_a.lane->owner = &k.other_a;
    k.other_b.lane->owner = &k.other_b;
    CHECK(pair_until(&k.p, k.p.a.n_down == 1 && k.p.b.n_down == 1));
    CHECK_EQ(k.p.a.down, WEFT_ERR_REVOKED);
    k.other_a.lane->ops->key_close(k.key);
    keyed_close(&k);
}

/* ---- what it costs ----------------------------------------------------------------------------------------------------- */

/* As much as a lane takes; how much that was. */
static uint64_t fill_up(struct pair *p) {
    uint64_t n = 0;
    while (say(&p->a, n) == WEFT_OK) n++;
    return n;
}

static void all_there(struct pair *p, uint64_t n) {
    CHECK(pair_until(p, p->b.n_messages == n));
    for (uint64_t i = 0; i < n; i++) {
        uint64_t number;
        memcpy(&number, p->b.messages[i].data, 8);
        CHECK_EQ(number, i);
    }
}

TEST(short_messages_go_within_their_requests_and_one_in_sixteen_is_completed) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    CHECK(pair_until(&p, rc_lane(p.a.lane)->posted == rc_lane(p.a.lane)->done)); /* what connecting took */
    CHECK(raw_a(&p)->max_inline >= RC_INLINE);
    uint64_t before = weft__count(p.reactor_a)->rdma_completions;
    CHECK_EQ(raw_a(&p)->send.n, 0); /* registered memory was not needed, and is not made */
    uint64_t n = fill_up(&p);
    CHECK(n > RC_DEPTH / 2);
    all_there(&p, n);
    CHECK(pair_until(&p, weft__count(p.reactor_a)->rdma_completions - before >= n / RC_SIGNAL - 1));
    pair_turns(&p, 50);
    CHECK(weft__count(p.reactor_a)->rdma_completions - before <= n / RC_SIGNAL + 1);
    CHECK_EQ(raw_a(&p)->send.n, 0);
    struct lane *lane = p.a.lane;
    char big[300] = "too long to go within";
    weft_iov_t iov = {big, sizeof big};
    CHECK_EQ(lane->ops->am_zcopy(lane, 1, "12345678", 8, &iov, 1, NULL), WEFT_OK);
    CHECK(raw_a(&p)->send.n > 0);
    end_of(&p);
}

/* They leave from registered memory, of which each is free again when its message has left. */
TEST(short_messages_go_by_a_device_that_takes_nothing_within_a_request) {
    enum { ROUNDS = 3 };
    struct pair p;
    char bytes[RC_INLINE];
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    raw_a(&p)->max_inline = 0;
    memset(bytes, 'x', sizeof bytes);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t n = fill_up(&p);
        all_there(&p, n);
        CHECK(pair_until(&p, p.a.lane->ops->am_short(p.a.lane, 4, 7, bytes, sizeof bytes - 8) == WEFT_OK));
        CHECK(pair_until(&p, p.b.n_messages == n + 1));
        CHECK(p.b.messages[n].len == sizeof bytes && !memcmp(p.b.messages[n].data + 8, bytes, sizeof bytes - 8));
        pair_forget(&p.b);
        CHECK(raw_a(&p)->send.n > 0 && raw_a(&p)->send.n <= 2 * RC_DEPTH);
    }
    end_of(&p);
}

/* The marker of a flush asks for the completion of all before it. */
TEST(a_flush_hears_of_what_nobody_asked_a_completion_for) {
    struct pair p;
    struct completion completion = {on_taken_back, 1, WEFT_OK};
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    CHECK(pair_until(&p, rc_lane(p.a.lane)->posted == rc_lane(p.a.lane)->done)); /* what connecting took */
    uint64_t before = weft__count(p.reactor_a)->rdma_completions;
    for (uint64_t i = 0; i < 3; i++) CHECK_EQ(say(&p.a, i), WEFT_OK);
    all_there(&p, 3);
    CHECK_EQ(weft__count(p.reactor_a)->rdma_completions, before);
    taken_back = 0;
    CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &completion), WEFT_IN_PROGRESS);
    CHECK(pair_until(&p, taken_back == 1));
    CHECK_EQ(weft__count(p.reactor_a)->rdma_completions, before + 1);
    CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &completion), WEFT_OK);
    end_of(&p);
}

/* What the device counted, where it does ("send_rnr_err": times when it told a peer to wait). */
static long hardware_counter(const char *name) {
    char path[160];
    long value = -1;
    snprintf(path, sizeof path, "/sys/class/infiniband/rxe0/ports/1/hw_counters/%s", name);
    FILE *f = fopen(path, "r");
    if (!f) return -1;
    if (fscanf(f, "%ld", &value) != 1) value = -1;
    fclose(f);
    return value;
}

/* b does not look, and has room for sixteen: the hardware asks a to wait, for as long as it takes. */
TEST(who_has_no_receives_left_is_waited_for) {
    struct pair p;
    WANTS_A_DEVICE();
    const weft_setting_t few[] = {insecure, {"rdma.receives", "16"}};
    begin_with(&p, few, 2);
    pair_connect(&p);
    long before = hardware_counter("send_rnr_err");
    uint64_t n = fill_up(&p);
    CHECK(n > 2 * 16);
    bool waits = before < 0;
    for (double until = pair_seconds() + test_patience(2); !waits && pair_seconds() < until;) {
        weft__reactor_progress(p.reactor_a, 0);
        waits = hardware_counter("send_rnr_err") > before;
    }
    CHECK_EQ(p.b.n_messages, 0);
    CHECK(waits);
    all_there(&p, n);
    CHECK(p.a.n_down == 0 && p.b.n_down == 0);
    end_of(&p);
}

TEST(what_was_accepted_leaves_before_a_lane_closes) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    uint64_t n = fill_up(&p);
    p.a.lane->ops->close(p.a.lane, true);
    CHECK_EQ(rc_lane(p.a.lane)->machine.fsm.state, RC_QP_SQD);
    CHECK(say(&p.a, n) < 0);
    CHECK(pair_until(&p, p.a.n_closed == 1));
    all_there(&p, n);
    CHECK(pair_until(&p, p.b.n_down == 1));
    CHECK_EQ(p.b.down, WEFT_ERR_PEER_CLOSED);
    CHECK(raw_a(&p)->n_lanes == 0);
    end_of(&p);
}

TEST(as_many_queue_pairs_as_were_configured_are_said_to_be_scarce) {
    struct pair p;
    static struct end a[3], b[3];
    WANTS_A_DEVICE();
    const weft_setting_t two[] = {insecure, {"rdma.queue_pairs", "2"}};
    begin_with(&p, two, 2);
    memset(a, 0, sizeof a), memset(b, 0, sizeof b);
    CHECK_EQ(p.iface_a->attr.scarce, 2);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pair_dial(&p, &a[i], &b[i]), WEFT_OK);
        CHECK(pair_until(&p, a[i].n_open == 1 && b[i].n_open == 1));
        CHECK(a[i].lane->scarce && b[i].lane->scarce);
    }
    CHECK_EQ(pair_dial(&p, &a[2], &b[2]), WEFT_ERR_QUOTA);
    pair_end_close(&a[0], true);
    pair_end_close(&b[0], true);
    CHECK_EQ(pair_dial(&p, &a[2], &b[2]), WEFT_OK);
    CHECK(pair_until(&p, a[2].n_open == 1 && b[2].n_open == 1));
    for (int i = 1; i < 3; i++) pair_end_close(&a[i], true), pair_end_close(&b[i], true);
    end_of(&p);
}

/* ---- what the device says ------------------------------------------------------------------------------------------------ */

static void fatal(struct end *end) {
    struct rc_iface *iface = rc_iface_of(rc_lane(end->lane));
    struct ibv_async_event event = {.element.qp = rc_lane(end->lane)->qp, .event_type = IBV_EVENT_QP_FATAL};
    iface->user.event(&iface->user, &event);
}

/* Software never says so of a queue pair: here the word alone is forged, and once the queue pair is broken indeed. */
TEST(a_queue_pair_that_is_lost_ends_its_lane_alone) {
    struct pair p;
    static struct end other_a, other_b;
    WANTS_A_DEVICE();
    for (int how = 0; how < 2; how++) {
        begin_with(&p, &insecure, 1);
        pair_connect(&p);
        memset(&other_a, 0, sizeof other_a), memset(&other_b, 0, sizeof other_b);
        CHECK_EQ(pair_dial(&p, &other_a, &other_b), WEFT_OK);
        CHECK(pair_until(&p, other_a.n_open == 1 && other_b.n_open == 1));
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
        if (how == 0)
            fatal(&p.a);
        else
            CHECK_EQ(ibv_modify_qp(rc_lane(p.a.lane)->qp, &attr, IBV_QP_STATE), 0);
        CHECK_EQ(p.a.n_down, 0); /* never inside of it */
        if (how == 1)
            CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &(struct completion){on_taken_back, 1, WEFT_OK}), WEFT_OK);
        if (how == 1) CHECK_EQ(say(&p.a, 1), WEFT_OK);
        for (uint64_t i = 0; how == 1 && i < RC_SIGNAL; i++) (void)say(&p.a, i);
        CHECK(pair_until(&p, p.a.n_down == 1 && p.b.n_down == 1));
        CHECK_EQ(say(&other_a, 5), WEFT_OK);
        CHECK(pair_until(&p, other_b.n_messages == 1));
        CHECK(other_a.n_down + other_b.n_down == 0);
        pair_end_close(&other_a, true);
        pair_end_close(&other_b, true);
        end_of(&p);
    }
}

/* The other words that software never says: forged as well. */
static void forge(struct rc_iface *iface, struct ibv_async_event event) {
    rd_device_says(iface->device, &event);
}

TEST(where_a_device_has_a_last_word_its_queue_pair_waits_for_it) {
    struct pair p;
    WANTS_A_DEVICE();
    const weft_setting_t patient[] = {insecure, {"close.timeout", "100s"}};
    begin_with(&p, patient, 2);
    raw_a(&p)->software = false;
    pair_connect(&p);
    struct rc_lane *lane = rc_lane(p.a.lane);
    struct ibv_async_event last = {.element.qp = lane->qp, .event_type = IBV_EVENT_QP_LAST_WQE_REACHED};
    lane->lane.ops->close(&lane->lane, true);
    CHECK(pair_until(&p, lane->machine.fsm.state == RC_QP_SPENT && lane->marked && lane->posted == lane->done));
    pair_turns(&p, 100);
    CHECK(p.a.n_closed == 0 && lane->qp);
    forge(raw_a(&p), last);
    CHECK(pair_until(&p, p.a.n_closed == 1));
    CHECK_EQ(raw_a(&p)->n_lanes, 0);
    end_of(&p);
}

/* Two lanes of a's, on which it has the last word of `event`; then a new one. */
static void all_lanes_end(struct ibv_async_event (*event)(const struct rc_iface *iface), weft_status_t why) {
    struct pair p;
    static struct end a[2], b[2];
    struct completion completion = {on_taken_back, 1, WEFT_OK};
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    memset(a, 0, sizeof a), memset(b, 0, sizeof b);
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(pair_dial(&p, &a[i], &b[i]), WEFT_OK);
        CHECK(pair_until(&p, a[i].n_open == 1 && b[i].n_open == 1));
    }
    taken_back = 0;
    CHECK_EQ(say(&a[0], 1), WEFT_OK);
    CHECK_EQ(a[0].lane->ops->flush(a[0].lane, &completion), WEFT_IN_PROGRESS);
    forge(raw_a(&p), event(raw_a(&p)));
    CHECK(a[0].n_down + a[1].n_down == 0 && taken_back == 0); /* never inside of it */
    CHECK(pair_until(&p, a[0].n_down == 1 && a[1].n_down == 1 && taken_back == 1));
    CHECK(a[0].down == why && a[1].down == why);
    CHECK(say(&a[0], 2) < 0);
    CHECK(pair_until(&p, b[0].n_down == 1 && b[1].n_down == 1));
    pair_connect(&p); /* with new queues */
    CHECK_EQ(say(&p.a, 3), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    for (int i = 0; i < 2; i++) pair_end_close(&a[i], true), pair_end_close(&b[i], true);
    end_of(&p);
}

static struct ibv_async_event cq_err(const struct rc_iface *iface) {
    return (struct ibv_async_event){.element.cq = iface->cq.cq, .event_type = IBV_EVENT_CQ_ERR};
}
TEST(a_completion_queue_that_is_lost_ends_all_its_lanes_and_is_made_anew) {
    all_lanes_end(cq_err, WEFT_ERR_IO);
}

static struct ibv_async_event device_fatal(const struct rc_iface *iface) {
    return (struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL};
}
TEST(a_device_that_fails_ends_all_lanes_and_is_opened_anew) {
    all_lanes_end(device_fatal, WEFT_ERR_PEER_FAILED);
}

/* An acceptor that leaves at once, before its rdmacm knows of the dialer: a refusal, which comes too late to be one. */
TEST(a_refusal_of_a_connection_that_stands_is_its_end_and_no_violation) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, &insecure, 1);
    pair_connect(&p);
    struct rdma_cm_event event = {.event = RDMA_CM_EVENT_REJECTED, .status = 28};
    CHECK_EQ(say(&p.b, 1), WEFT_OK);
    rc_lane(p.a.lane)->cm.event(&rc_lane(p.a.lane)->cm, &event);
    CHECK(pair_until(&p, p.a.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_PEER_FAILED);
    CHECK_EQ(weft__count(p.reactor_a)->violations, 0);
    end_of(&p);
}

#define WANTS_THE_BED()                                                       \
    if (access("/machine/status", F_OK) && access("/sys/class/net/v0", F_OK)) \
    SKIP("no RDMA device to take away here")

TEST(a_port_that_is_down_ends_what_is_sent) {
    struct pair p;
    WANTS_A_DEVICE();
    WANTS_THE_BED();
    const weft_setting_t at_rxe0[] = {insecure, {"rdma.device", "rxe0"}};
    begin_with(&p, at_rxe0, 2);
    pair_connect(&p);
    CHECK_EQ(system("tests/rdma/port 0 down"), 0);
    for (uint64_t i = 0; i < RC_SIGNAL; i++) (void)say(&p.a, i);
    bool down = pair_until(&p, p.a.n_down == 1);
    CHECK_EQ(system("tests/rdma/port 0 up"), 0);
    CHECK(down);
    CHECK(p.a.down < 0);
    end_of(&p);
}

#else
TEST(a_worker_that_holds_the_users_key_is_let_in) {
    SKIP("built without rdma");
}
#endif
