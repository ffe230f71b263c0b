/* Datagrams of rdma as they are, without the window that makes them reliable. Wants a device:
 * tools/rdma-vm has two. */
#include "pair.h"

#ifdef WEFT_HAVE_RDMA
#include <transports/rdma/ud/ud.h>
#include <transports/reliable/window_local.h>

#define WANTS_A_DEVICE() \
    if (!pair_has_rdma()) SKIP("no RDMA device here")
/* What only root may do, and only to what is not used otherwise: the bed of tools/rdma-vm. */
#define WANTS_THE_BED()                                                       \
    if (access("/machine/status", F_OK) && access("/sys/class/net/v0", F_OK)) \
    SKIP("no RDMA device to take away here")

static struct ud_iface *raw_a(struct pair *p) {
    return (struct ud_iface *)p->iface_a;
}
static struct ud_iface *raw_b(struct pair *p) {
    return (struct ud_iface *)p->iface_b;
}
static struct ud_lane *lane_a(struct pair *p) {
    return (struct ud_lane *)p->a.lane;
}

static void begin_with(struct pair *p, const weft_setting_t *settings, size_t n) {
    pair_open_with(p, &weft__transport_rdma_ud, 0, settings, n);
    CHECK(!(p->iface_a->attr.caps & CAP_RELIABLE));
}

/* a is up; b will know of it by the first datagram. */
static void begin(struct pair *p) {
    begin_with(p, NULL, 0);
    CHECK_EQ(pair_dial(p, &p->a, &p->b), WEFT_OK);
    CHECK_EQ(p->a.n_open, 0);
    CHECK(pair_until(p, p->a.n_open == 1));
    CHECK_EQ(p->b.n_open, 0);
}

static weft_status_t send_msg(struct end *end, uint64_t number) {
    return end->lane->ops->am_short(end->lane, 3, number, NULL, 0);
}
static uint64_t number(const struct end *end, size_t i) {
    uint64_t n;
    memcpy(&n, end->messages[i].data, sizeof n);
    return n;
}

/* Long enough for a datagram to come, if one comes. */
static void wait_a_while(struct pair *p) {
    double end = test_now() + 0.1;
    while (test_now() < end) pair_turn(p);
}

struct filling {
    size_t len;
    uint8_t with;
};
static size_t fill(void *to, void *arg) {
    const struct filling *f = arg;
    memset(to, f->with, f->len);
    return f->len;
}

TEST(what_is_sent_arrives_as_it_was) {
    struct pair p;
    WANTS_A_DEVICE();
    begin(&p);
    const size_t most = p.iface_a->attr.max_bcopy,
                 len[] = {0, 1, 7, 100, 168, 169, 192, 500, most - 1, most};
    for (size_t i = 0; i < sizeof len / sizeof *len; i++) {
        struct filling f = {len[i], (uint8_t)(i + 1)};
        struct end *from = i % 3 == 2 ? &p.b : &p.a, *to = i % 3 == 2 ? &p.a : &p.b;
        CHECK_EQ(from->lane->ops->am_bcopy(from->lane, (uint8_t)i, fill, &f), WEFT_OK);
        CHECK(pair_until(&p, to->n_messages == 1));
        CHECK(to->messages[0].id == i && to->messages[0].len == len[i]);
        for (size_t k = 0; k < len[i]; k++) CHECK_EQ(to->messages[0].data[k], i + 1);
        pair_forget(to);
    }
    CHECK_EQ(p.b.n_open, 1);
    char text[128] = "";
    p.b.lane->ops->describe(p.b.lane, text, sizeof text);
    CHECK(strstr(text, "queue pair"));
    pair_close(&p);
}

TEST(a_full_queue_has_no_resource_and_takes_up_again) {
    struct pair p;
    WANTS_A_DEVICE();
    const weft_setting_t small = {"rdma.ud_sends", "16"};
    begin_with(&p, &small, 1);
    CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_open == 1));
    uint64_t sent = 0;
    while (send_msg(&p.a, sent) == WEFT_OK) sent++;
    CHECK_EQ(sent, 16);
    CHECK_EQ(weft__count(p.reactor_a)->rdma_ud_full, 1);
    CHECK(weft__count(p.reactor_a)->rdma_ud_signals <= 16 / 4); /* and not one a datagram */
    CHECK(pair_until(&p, send_msg(&p.a, 16) == WEFT_OK));
    CHECK(pair_until(&p, p.b.n_messages == 17));
    for (size_t i = 0; i < 17; i++) CHECK_EQ(number(&p.b, i), i);
    pair_close(&p);
}

static int flushes;
static void flushed(struct completion *completion, weft_status_t status) {
    flushes += status == WEFT_OK;
}
TEST(a_flush_asks_for_the_completion_that_no_one_asked_for) {
    struct pair p;
    struct completion completion = {flushed, 1, WEFT_OK};
    WANTS_A_DEVICE();
    begin(&p);
    flushes = 0;
    CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &completion), WEFT_OK);
    CHECK_EQ(send_msg(&p.a, 1), WEFT_OK);
    CHECK_EQ(weft__count(p.reactor_a)->rdma_ud_signals, 0);
    CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &completion), WEFT_IN_PROGRESS);
    CHECK_EQ(flushes, 0);
    CHECK(pair_until(&p, flushes == 1));
    CHECK(pair_until(&p, p.b.n_messages == 1));
    wait_a_while(&p);
    CHECK_EQ(p.b.n_messages, 1); /* what was sent for it is no message */
    CHECK_EQ(p.a.lane->ops->flush(p.a.lane, &completion), WEFT_OK);
    pair_close(&p);
}

/* ---- who may speak --------------------------------------------------------------------------- */

TEST(with_another_key_nothing_reaches) {
    struct pair p;
    WANTS_A_DEVICE();
    begin(&p);
    lane_a(&p)->qkey ^= 1;
    CHECK_EQ(send_msg(&p.a, 1), WEFT_OK);
    wait_a_while(&p);
    CHECK(p.b.n_open == 0 && weft__count(p.reactor_b)->rdma_ud_dropped == 0);
    lane_a(&p)->qkey ^= 1;
    CHECK_EQ(send_msg(&p.a, 2), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    CHECK_EQ(number(&p.b, 0), 2);
    pair_close(&p);
}

TEST(keys_tokens_and_numbers_differ_from_one_interface_to_the_next) {
    struct pair p;
    WANTS_A_DEVICE();
    begin(&p);
    CHECK(raw_a(&p)->qkey != raw_b(&p)->qkey);
    CHECK(raw_a(&p)->token != raw_b(&p)->token);
    CHECK(raw_a(&p)->qkey && raw_a(&p)->qkey < UINT32_C(1) << 31);
    pair_close(&p);
}

TEST(without_the_token_an_unverified_peer_remains_unknown) {
    struct pair p;
    WANTS_A_DEVICE();
    begin(&p);
    lane_a(&p)->token ^= 1;
    CHECK_EQ(send_msg(&p.a, 1), WEFT_OK);
    CHECK(pair_until(&p, weft__count(p.reactor_b)->rdma_ud_dropped == 1));
    CHECK_EQ(p.b.n_open, 0);
    lane_a(&p)->token ^= 1;
    CHECK_EQ(send_msg(&p.a, 2), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    pair_close(&p);
}

enum { FEW = 4, MANY = 10 };
TEST(unverified_peers_are_few_until_they_show_that_they_receive) {
    struct pair p;
    static struct end end[MANY];
    WANTS_A_DEVICE();
    const weft_setting_t few = {"rdma.ud_unverified", "4"};
    begin_with(&p, &few, 1);
    memset(end, 0, sizeof end);
    for (int i = 0; i < MANY; i++) {
        CHECK_EQ(pair_dial(&p, &end[i], &p.b), WEFT_OK);
        CHECK(pair_until(&p, end[i].n_open == 1));
        CHECK_EQ(send_msg(&end[i], (uint64_t)i), WEFT_OK);
        CHECK(pair_until(&p, p.b.n_messages + weft__count(p.reactor_b)->rdma_ud_dropped ==
                                 (uint64_t)i + 1));
    }
    CHECK_EQ(p.b.n_open, FEW);
    CHECK_EQ(raw_b(&p)->n_unverified, FEW);
    CHECK_EQ(send_msg(&p.b, 100), WEFT_OK); /* to the last that was let in */
    CHECK(pair_until(&p, end[FEW - 1].n_messages == 1));
    CHECK_EQ(send_msg(&end[FEW - 1], 101), WEFT_OK);
    CHECK(pair_until(&p, raw_b(&p)->n_unverified == FEW - 1));
    CHECK_EQ(send_msg(&end[FEW], 102), WEFT_OK); /* there is a place now */
    CHECK(pair_until(&p, p.b.n_open == FEW + 1));
    for (int i = 0; i < MANY; i++) pair_end_close(&end[i], true);
    pair_close(&p);
}

TEST(a_datagram_for_an_earlier_lane_makes_a_new_one) {
    struct pair p;
    WANTS_A_DEVICE();
    begin(&p);
    CHECK_EQ(send_msg(&p.a, 1), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    CHECK_EQ(send_msg(&p.b, 2), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_messages == 1));
    uint32_t before = lane_a(&p)->node.remote;
    CHECK(before != 0);
    pair_end_close(&p.b, true);
    CHECK_EQ(send_msg(&p.a, 3), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_open == 2 && p.b.n_messages == 1));
    CHECK_EQ(number(&p.b, 0), 3);
    CHECK_EQ(send_msg(&p.b, 4), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_messages == 2));
    CHECK(lane_a(&p)->node.remote != before); /* it has learned who answers now */
    CHECK_EQ(p.a.n_down, 0);
    pair_close(&p);
}

/* ---- bytes that no peer would send ----------------------------------------------------------- */

/* By a queue pair that is used for nothing else, past all that would make a frame of it. */
static void throw(struct ud_iface * by, struct ud_path *at, struct ud_iface *to, const void *bytes,
                  size_t len) {
    struct ibv_sge sge = {(uintptr_t)bytes, (uint32_t)len, 0};
    struct ibv_send_wr wr = {.wr_id = UINT64_MAX, /* of no epoch */
                             .sg_list = &sge,
                             .num_sge = 1,
                             .opcode = IBV_WR_SEND,
                             .send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED},
                       *bad;
    wr.wr.ud.ah = at->ah;
    wr.wr.ud.remote_qpn = to->qpn;
    wr.wr.ud.remote_qkey = to->qkey;
    while (ibv_post_send(by->qp, &wr, &bad)) weft__reactor_progress(by->iface.reactor, 0);
}

TEST(noise_is_dropped_and_counted) {
    struct pair p;
    struct iface *third = NULL;
    struct ud_path *path = NULL;
    WANTS_A_DEVICE();
    begin(&p);
    CHECK_EQ(send_msg(&p.a, 1), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    CHECK_EQ(pair_iface(&p, p.reactor_a, 0xc3, &third), WEFT_OK);
    struct ud_iface *by = (struct ud_iface *)third;
    CHECK_EQ(weft__ud_path_hold(&by->paths, &raw_b(&p)->device->place, 0, &path), WEFT_OK);
    uint8_t good[UD_HEAD_MOST], bytes[UD_HEAD_MOST + 8];
    weft__ud_frame_encode(&(struct ud_frame){.kind = UD_HANDSHAKE,
                                             .id = 3,
                                             .from = 5,
                                             .qkey = 9,
                                             /* else it would be let in */
                                             .token = raw_b(&p)->token ^ 1,
                                             .mine = 7},
                          good);
    uint64_t thrown = 0, x = 88172645463325252u;
    for (size_t cut = 0; cut <= sizeof good; cut++, thrown++) throw(by, path, raw_b(&p), good, cut);
    for (size_t bit = 0; bit < 8 * 16; bit++, thrown++) { /* all but the token */
        memcpy(bytes, good, sizeof good);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        throw(by, path, raw_b(&p), bytes, sizeof good);
        pair_turn(&p);
    }
    for (int n = 0; n < 500; n++, thrown++) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)((x = x * 6364136223846793005u + 1) >> 56);
        if (n & 1) bytes[0] = UD_VERSION, bytes[1] = UD_MESSAGE, bytes[3] = 0;
        throw(by, path, raw_b(&p), bytes, sizeof bytes);
        pair_turn(&p);
    }
    CHECK(pair_until(&p, weft__count(p.reactor_b)->rdma_ud_dropped == thrown));
    CHECK(p.b.n_open == 1 && p.b.n_messages == 1);
    CHECK_EQ(weft__count(p.reactor_b)->rdma_ud_resets, 0);
    CHECK_EQ(send_msg(&p.a, 2), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 2));
    weft__ud_path_drop(&by->paths, path, 0);
    third->ops->close(third);
    pair_close(&p);
}

/* ---- resources ------------------------------------------------------------------------------- */

TEST(address_handles_are_shared_and_bounded) {
    struct pair p;
    static struct end end[5];
    WANTS_A_DEVICE();
    const weft_setting_t one = {"rdma.ud_address_handles", "1"};
    begin_with(&p, &one, 1);
    memset(end, 0, sizeof end);
    for (int i = 0; i < 5; i++) CHECK_EQ(pair_dial(&p, &end[i], &p.b), WEFT_OK);
    CHECK_EQ(raw_a(&p)->paths.n, 1);
    struct ud_address other = {raw_b(&p)->device->place, 5, 5, 5};
    uint8_t bytes[UD_ADDRESS];
    other.place.gid[15] ^= 3; /* 10.77.0.2 of the bed */
    struct lane *lane = NULL;
    weft__ud_address_encode(&other, bytes);
    CHECK_EQ(p.iface_a->ops->connect(p.iface_a, bytes, sizeof bytes, &lane), WEFT_ERR_QUOTA);
    for (int i = 0; i < 5; i++) pair_end_close(&end[i], false);
    weft_status_t st = p.iface_a->ops->connect(p.iface_a, bytes, sizeof bytes, &lane);
    CHECK(st != WEFT_ERR_QUOTA); /* the idle one made room, wherever the other is */
    CHECK(raw_a(&p)->paths.n <= 1);
    if (st == WEFT_OK) {
        lane->owner = &end[0];
        end[0].lane = lane;
        pair_end_close(&end[0], false);
    }
    pair_close(&p);
}

/* ---- a window around it ---------------------------------------------------------------------- */

static weft_status_t open_window(struct reactor *r, const struct iface_params *params,
                                 struct iface **iface_p) {
    return weft__window_iface_open(r, &weft__transport_rdma_ud, params, iface_p);
}
static const struct transport windowed = {.name = "rdma_ud", .open = open_window};

static struct ud_iface *below(struct iface *iface) {
    return (struct ud_iface *)((struct window_iface *)iface)->raw;
}

/* Of a's lane under its window. */
static struct ud_path *lane_path(struct pair *p) {
    return (struct ud_path *)((struct ud_lane *)((struct window_lane *)p->a.lane)->raw)->node.path;
}

static void in_order(struct end *end, uint8_t id, const void *data, size_t len) {
    uint64_t n, *next = end->arg;
    if (len != 8) return;
    memcpy(&n, data, 8);
    *next = n == *next ? n + 1 : UINT64_MAX / 2; /* never again */
}

static void ruin(struct ud_iface *iface) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
    CHECK_EQ(ibv_modify_qp(iface->qp, &attr, IBV_QP_STATE), 0);
}

TEST(a_queue_pair_that_breaks_is_raised_again_and_nothing_is_lost) {
    struct pair p;
    enum { ALL = 3000, EACH = 500 };
    uint64_t sent = 0, next = 0, ruined = 0;
    WANTS_A_DEVICE();
    pair_open(&p, &windowed, 0);
    pair_connect(&p);
    p.b.on_message = in_order;
    p.b.arg = &next;
    double give_up = test_now() + test_timeout(30);
    while (next < ALL && test_now() < give_up) {
        if (next / EACH >= ruined) ruin(below(ruined++ % 2 ? p.iface_a : p.iface_b));
        while (sent < ALL && sent < next + EACH && send_msg(&p.a, sent) == WEFT_OK) sent++;
        pair_turn(&p);
    }
    CHECK_EQ(next, ALL);
    CHECK_EQ(ruined, ALL / EACH);
    CHECK_EQ(weft__count(p.reactor_a)->rdma_ud_resets, ruined / 2);
    CHECK_EQ(weft__count(p.reactor_b)->rdma_ud_resets, ruined / 2);
    CHECK_EQ(p.a.n_down + p.b.n_down, 0);
    pair_close(&p);
}

enum { THOUSAND = 1000 };
TEST(a_thousand_lanes_of_one_queue_pair_do_not_mix) {
    struct pair p;
    static struct end a[THOUSAND];
    static uint64_t next[THOUSAND];
    WANTS_A_DEVICE();
    pair_open(&p, &windowed, 0);
    memset(a, 0, sizeof a);
    memset(next, 0, sizeof next);
    struct end b = {.pair = &p};
    for (int i = 0; i < THOUSAND; i++) {
        CHECK_EQ(pair_dial(&p, &a[i], &b), WEFT_OK);
        CHECK(pair_until(&p, a[i].n_open == 1 && b.n_open == i + 1));
    }
    CHECK_EQ(below(p.iface_a)->paths.n, 1);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < THOUSAND; i++) CHECK_EQ(send_msg(&a[i], (uint64_t)i), WEFT_OK);
    CHECK(pair_until(&p, b.n_messages == 3 * THOUSAND));
    for (size_t i = 0; i < b.n_messages; i++) next[number(&b, i)]++;
    for (int i = 0; i < THOUSAND; i++) CHECK_EQ(next[i], 3);
    for (int i = 0; i < THOUSAND; i++) a[i].lane->ops->close(a[i].lane, true);
    int closed = 0;
    double give_up = test_now() + test_timeout(60);
    while (closed < THOUSAND && test_now() < give_up) {
        pair_turn(&p);
        for (closed = 0; closed < THOUSAND && a[closed].n_closed; closed++) continue;
    }
    CHECK_EQ(closed, THOUSAND);
    CHECK(pair_until(&p, b.n_down == THOUSAND));
    pair_forget(&b);
    pair_close(&p);
}

/* ---- what the device does -------------------------------------------------------------------- */

/* Which is the first to be found when it was taken away and made again? */
static const weft_setting_t first = {"rdma.device", "rxe0"};

TEST(a_port_that_goes_down_takes_the_lanes_and_comes_back_with_none) {
    struct pair p;
    WANTS_A_DEVICE();
    WANTS_THE_BED();
    pair_open_with(&p, &windowed, 0, &first, 1);
    pair_connect(&p);
    CHECK_EQ(system("tests/rdma/port 0 down"), 0);
    bool down = pair_until(&p, p.a.n_down == 1 && p.b.n_down == 1);
    CHECK_EQ(system("tests/rdma/port 0 up"), 0);
    CHECK(down);
    CHECK_EQ(p.a.down, WEFT_ERR_IO);
    CHECK(strstr(p.a.why, "the port of this side's RDMA device went down"));
    pair_end_close(&p.a, true);
    pair_end_close(&p.b, true);
    CHECK(pair_until(&p, below(p.iface_a)->fsm.state == UD_QP_RUNNING));
    CHECK(pair_until(&p, below(p.iface_b)->fsm.state == UD_QP_RUNNING));
    p.a.n_open = p.b.n_open = 0;
    pair_connect(&p);
    CHECK_EQ(send_msg(&p.a, 1), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    pair_close(&p);
}

/* While a handle by it lives, the old place in the table is not free. */
TEST(an_address_that_comes_back_elsewhere_is_found_and_nothing_is_lost) {
    struct pair p;
    struct ud_path *path = NULL;
    WANTS_A_DEVICE();
    WANTS_THE_BED();
    CHECK_EQ(system("ip address del 10.77.0.1/24 dev v0; " /* else it would be preferred */
                    "while grep -qs 0a4d:0001 /sys/class/infiniband/rxe0/ports/1/gids/?; do sleep "
                    "0.1; done"),
             0);
    pair_open_with(&p, &windowed, 0, &first, 1);
    pair_connect(&p);
    struct ud_iface *a = below(p.iface_a);
    struct rd_place other = a->device->place;
    other.gid[15] ^= 3; /* fd77::2 */
    uint8_t before = a->device->gid_index;
    bool v4 = a->v4;
    CHECK_EQ(system("ip address del fd77::1/64 dev v0; tests/rdma/port 0 up"), 0);
    CHECK(!v4);
    CHECK(pair_until(&p, a->device->gid_index != before));
    CHECK_EQ(send_msg(&p.a, 1), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1 && a->fsm.state == UD_QP_RUNNING));
    CHECK_EQ(a->paths.gid_index, a->device->gid_index);
    CHECK_EQ(lane_path(&p)->gid_index, a->device->gid_index);
    CHECK_EQ(weft__ud_path_hold(&a->paths, &other, 0, &path), WEFT_OK);
    weft__ud_path_drop(&a->paths, path, 0);
    CHECK_EQ(p.a.n_down + p.b.n_down, 0);
    pair_close(&p);
}

/* a connects to b again, by what b's address is now. */
static void serves_again(struct pair *p) {
    uint8_t address[96];
    size_t len = sizeof address;
    CHECK_EQ(p->iface_a->ops->address(p->iface_a, address, &len), WEFT_OK);
    CHECK_EQ(below(p->iface_a)->fsm.state, UD_QP_RUNNING);
    pair_end_close(&p->a, true);
    pair_end_close(&p->b, true);
    pair_forget(&p->b);
    p->a.n_open = p->b.n_open = 0;
    pair_connect(p);
    CHECK_EQ(send_msg(&p->a, 3), WEFT_OK);
    CHECK(pair_until(p, p->b.n_messages == 1));
    CHECK_EQ(number(&p->b, 0), 3);
}

/* Software never says so: the words are forged. */
static void ends_all_lanes(void (*spoil)(struct ud_iface *iface), const char *why) {
    struct pair p;
    struct lane *lane = NULL;
    uint8_t address[96], before[96], after[96];
    size_t len = sizeof address, of_a = sizeof before;
    WANTS_A_DEVICE();
    pair_open(&p, &windowed, 0);
    pair_connect(&p);
    CHECK_EQ(p.iface_b->ops->address(p.iface_b, address, &len), WEFT_OK);
    CHECK_EQ(p.iface_a->ops->address(p.iface_a, before, &of_a), WEFT_OK);
    CHECK_EQ(send_msg(&p.a, 1), WEFT_OK);
    spoil(below(p.iface_a));
    CHECK_EQ(p.a.n_down, 0); /* never inside of it */
    if (ud_qp_is_dead(&below(p.iface_a)->fsm))
        CHECK_EQ(p.iface_a->ops->connect(p.iface_a, address, len, &lane), WEFT_ERR_UNREACHABLE);
    CHECK(pair_until(&p, p.a.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_IO);
    CHECK(strstr(p.a.why, why));
    CHECK_EQ(below(p.iface_a)->fsm.state, UD_QP_DEAD);
    CHECK(send_msg(&p.a, 2) < 0);
    CHECK_EQ(p.b.n_down, 0);
    serves_again(&p);
    CHECK_EQ(p.iface_a->ops->address(p.iface_a, after, &of_a), WEFT_OK);
    /* who knows it as it was does not reach what is there now */
    CHECK(memcmp(before, after, of_a) != 0);
    pair_close(&p);
}

static void forge(struct ud_iface *iface, struct ibv_async_event event) {
    weft__rd_device_reports(iface->device, &event);
}

static void cq_err(struct ud_iface *iface) {
    forge(iface,
          (struct ibv_async_event){.element.cq = iface->cq.cq, .event_type = IBV_EVENT_CQ_ERR});
}
TEST(a_completion_queue_that_is_lost_takes_all_lanes_and_is_made_again) {
    ends_all_lanes(cq_err, "queue pair cannot be used");
}

/* The context that this is of is closed, and another is opened. */
static int no_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc) {
    return -EIO;
}
static void spoil_polls(struct ud_iface *iface) {
    iface->device->context->ops.poll_cq = no_poll;
}
TEST(a_completion_queue_that_cannot_be_polled_is_lost) {
    ends_all_lanes(spoil_polls, "queue pair cannot be used");
}

static void device_fatal(struct ud_iface *iface) {
    forge(iface, (struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL});
}
TEST(a_device_that_fails_takes_all_lanes_and_is_opened_again) {
    ends_all_lanes(device_fatal, "RDMA device was removed");
}

TEST(a_device_that_is_taken_away_takes_everything_and_blocks_no_one) {
    struct pair p;
    uint8_t address[96];
    size_t len = sizeof address;
    WANTS_A_DEVICE();
    WANTS_THE_BED();
    pair_open_with(&p, &windowed, 0, &first, 1);
    pair_connect(&p);
    CHECK_EQ(send_msg(&p.a, 1), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    CHECK_EQ(p.iface_b->ops->address(p.iface_b, address, &len), WEFT_OK);
    CHECK_EQ(system("(rdma link delete rxe0; echo $? >/tmp/rdma_ud_deleted) &"), 0);
    CHECK(pair_until(&p, p.a.n_down == 1 && p.b.n_down == 1));
    CHECK(pair_until(&p, access("/tmp/rdma_ud_deleted", F_OK) == 0));
    struct lane *lane = NULL;
    CHECK_EQ(p.iface_a->ops->connect(p.iface_a, address, len, &lane), WEFT_ERR_UNREACHABLE);
    CHECK_EQ(p.iface_a->ops->address(p.iface_a, address, &len), WEFT_ERR_UNREACHABLE);
    CHECK(send_msg(&p.a, 2) < 0);
    CHECK_EQ(system("rm /tmp/rdma_ud_deleted; rdma link add rxe0 type rxe netdev v0"), 0);
    /* there it is again */
    CHECK(pair_until(&p, p.iface_a->ops->address(p.iface_a, address, &len) == WEFT_OK));
    CHECK(pair_until(&p, p.iface_b->ops->address(p.iface_b, address, &len) == WEFT_OK));
    serves_again(&p);
    pair_close(&p);
    pair_open_with(&p, &windowed, 0, &first, 1); /* and for others */
    pair_connect(&p);
    pair_close(&p);
}
#else
TEST(what_is_sent_arrives_as_it_was) {
    SKIP("built without rdma");
}
#endif
