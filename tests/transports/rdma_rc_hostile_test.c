/* Completions and messages that only a hostile peer causes, given to an interface whose device,
 * queues and queue pairs are doubles. A device that is here is not opened. */
#include "../harness.h"

#ifdef WEFT_HAVE_RDMA
#include <arpa/inet.h>
#include <base/alloc.h>
#include <errno.h>
#include <transports/common.h>
#include <transports/rdma/rc/rc.h>
#include <weft/weft.h>

enum { BUFFER = 8192, QP = 77 };

static struct {
    weft_context_t *context;
    struct reactor *reactor;
    struct rc_iface *iface;
    struct rc_lane *lane;
    struct rd_block block;
    uint8_t bytes[BUFFER];
    struct rd_device opened;
    struct ibv_context device;
    struct ibv_srq srq;
    struct ibv_qp qp;
    int delivered;
    size_t len;
    int posted, room; /* receives, and how many more are taken; less than 0: all */
} bed;

static int post_receives(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    for (; wr; wr = wr->next, bed.posted++) {
        *bad = wr;
        if (bed.room == 0) return ENOMEM;
        if (bed.room > 0) bed.room--;
    }
    return 0;
}

static int takes_all(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    return 0;
}

static void deliver(struct lane *lane, unsigned id, const void *data, size_t len) {
    bed.delivered++;
    bed.len = len;
}
static void no_lane(struct lane *lane) {}
static void no_loss(struct lane *lane, weft_status_t status) {}
static const struct iface_up up = {
    .am = {[0 ... LANE_AM_IDS - 1] = deliver}, .up = no_lane, .down = no_loss, .closed = no_lane};
static void quiet(weft_log_level_t level, const char *room, const char *line, void *arg) {}

/* A lane that its owner was notified of, so that no verb is called when it is found bad. */
static void begin(void) {
    memset(&bed, 0, sizeof bed);
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.log = quiet}, &bed.context), 0);
    CHECK_EQ(weft__reactor_create(bed.context, &(struct reactor_params){.seed = 1}, &bed.reactor),
             0);
    struct rc_iface *iface = bed.iface = weft__new(bed.reactor, struct rc_iface);
    iface_init(&iface->iface, NULL, &weft__transport_rdma_rc, iface->device_name, bed.reactor,
               &(struct iface_params){.up = &up});
    TAILQ_INIT(&iface->lanes);
    TAILQ_INIT(&iface->worked);
    TAILQ_INIT(&iface->starved);
    weft__slab_init(&iface->lane_slab, bed.reactor, iface, sizeof(struct rc_lane), "rc lanes");
    iface->depth = 16;
    iface->most_lanes = 1;
    iface->buffer = BUFFER;
    iface->n_receives = 64;
    bed.device.ops.post_srq_recv = post_receives;
    bed.srq.context = bed.qp.context = &bed.device;
    bed.qp.qp_num = QP;
    bed.block.bytes = bed.bytes;
    iface->device = &bed.opened;
    iface->srq = &bed.srq;
    bed.room = -1;
    CHECK_EQ(weft__rc_lane_new(iface, false, &bed.lane), 0);
    bed.lane->machine.fsm.state = RC_QP_DOWN;
    bed.lane->take = weft__rc_take_messages;
    bed.lane->qp = &bed.qp;
    LIST_INSERT_HEAD(&iface->bucket[QP % RC_BUCKETS], bed.lane, of_bucket);
}

static void end(void) {
    LIST_REMOVE(bed.lane, of_bucket);
    bed.lane->qp = NULL;
    weft__rc_lane_free(bed.lane);
    weft__reactor_progress(bed.reactor, 0);
    weft__slab_end(&bed.iface->lane_slab);
    talloc_free(bed.iface);
    weft__reactor_destroy(bed.reactor);
    CHECK_EQ(weft_context_destroy(bed.context), 0);
}

static struct ibv_wc completion(uint32_t kind, uint32_t len) {
    return (struct ibv_wc){.wr_id = (uintptr_t)&bed.block,
                           .opcode = IBV_WC_RECV,
                           .status = IBV_WC_SUCCESS,
                           .wc_flags = IBV_WC_WITH_IMM,
                           .imm_data = htonl(kind),
                           .byte_len = len,
                           .qp_num = QP};
}

TEST(a_message_is_delivered) {
    begin();
    struct ibv_wc wc = completion(3, 100);
    weft__rc_took(&bed.iface->cq, &wc);
    CHECK_EQ(bed.delivered, 1);
    CHECK_EQ(bed.len, 100);
    CHECK_EQ(bed.lane->why, WEFT_OK);
    end();
}

/* What a peer wrote into a region is not in the buffer that its immediate data takes, and may be
 * longer than that. */
TEST(a_write_with_immediate_data_is_no_message) {
    static const uint32_t lens[] = {0, 100, BUFFER, BUFFER + 1, 1 << 30};
    for (size_t i = 0; i < sizeof lens / sizeof *lens; i++) {
        begin();
        struct ibv_wc wc = completion(3, lens[i]);
        wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
        weft__rc_took(&bed.iface->cq, &wc);
        CHECK_EQ(bed.delivered, 0);
        CHECK_EQ(bed.lane->why, WEFT_ERR_PROTOCOL);
        end();
    }
}

TEST(a_message_of_no_kind_or_beyond_its_buffer_is_a_violation) {
    static const struct {
        uint32_t kind, len;
    } bad[] = {{RC_N_MESSAGES, 8}, {UINT32_MAX, 8}, {256, 8}, {3, BUFFER + 1}, {3, UINT32_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        begin();
        struct ibv_wc wc = completion(bad[i].kind, bad[i].len);
        weft__rc_took(&bed.iface->cq, &wc);
        CHECK_EQ(bed.delivered, 0);
        CHECK_EQ(bed.lane->why, WEFT_ERR_PROTOCOL);
        end();
    }
    begin();
    struct ibv_wc wc = completion(3, 8);
    wc.wc_flags = 0;
    weft__rc_took(&bed.iface->cq, &wc);
    CHECK_EQ(bed.delivered, 0);
    CHECK_EQ(bed.lane->why, WEFT_ERR_PROTOCOL);
    end();
}

/* The queue pair is in error then, which a lane that sends nothing would not learn otherwise. */
TEST(a_receive_that_fails_breaks_its_lane) {
    begin();
    struct ibv_wc wc = completion(3, 8);
    wc.status = IBV_WC_LOC_LEN_ERR;
    weft__rc_took(&bed.iface->cq, &wc);
    CHECK_EQ(bed.delivered, 0);
    CHECK_EQ(bed.lane->why, WEFT_ERR_IO);
    CHECK(bed.lane->todo & RC_TODO_BREAK);
    end();
}

/* Each answer takes memory until it leaves, and the peer decides when that is. */
TEST(a_peer_asks_for_so_many_keys_at_once_and_no_more) {
    begin();
    LIST_REMOVE(bed.lane, of_bucket);
    bed.lane->qp = NULL; /* nothing leaves */
    for (uint32_t serial = 1; serial <= RC_ASKS; serial++)
        weft__rc_wanted(bed.lane, &(struct rc_want){.serial = serial, .region = 9});
    CHECK_EQ(bed.lane->why, WEFT_OK);
    weft__rc_wanted(bed.lane, &(struct rc_want){.serial = RC_ASKS + 1, .region = 9});
    CHECK_EQ(bed.lane->why, WEFT_ERR_PROTOCOL);
    LIST_INSERT_HEAD(&bed.iface->bucket[QP % RC_BUCKETS], bed.lane, of_bucket);
    end();
}

/* A region of which the bed's peer has asked for the key. */
static char keyed_memory[4096];
static struct ibv_mr keyed_mr = {
    .addr = keyed_memory, .length = sizeof keyed_memory, .lkey = 5, .rkey = 6};
static struct region keyed;

static struct md_mem *begin_with_grant(void) {
    struct md_mem *mem;
    begin();
    keyed = (struct region){.base = keyed_memory,
                            .origin = (uint64_t)(uintptr_t)keyed_memory,
                            .len = sizeof keyed_memory,
                            .id = 3,
                            .epoch = 1,
                            .mr = &keyed_mr,
                            .rights = WEFT_MEM_READ};
    bed.device.ops.post_send = takes_all;
    bed.iface->max_inline = RC_INLINE;
    bed.iface->max_grants = 4;
    CHECK_EQ(weft__rc_mem_register(&bed.iface->iface, &keyed, &mem), WEFT_OK);
    weft__rc_wanted(bed.lane, &(struct rc_want){.serial = 1,
                                                .region = keyed.id,
                                                .epoch = keyed.epoch,
                                                .rights = keyed.rights,
                                                .base = keyed.origin,
                                                .len = keyed.len});
    CHECK_EQ(bed.lane->n_grants, 1);
    return mem;
}

static void end_with_grant(struct md_mem *mem) {
    weft__rc_dropped(bed.lane, &(struct rc_word){.serial = 1});
    CHECK_EQ(bed.lane->n_grants, 0);
    CHECK_EQ(weft__rc_mem_revoke(mem, NULL), WEFT_OK);
    weft__rc_works_notify(bed.lane, WEFT_ERR_PEER_FAILED);
    end();
}

/* The answer has not left yet: there is nothing that could be let go of. */
TEST(a_key_is_not_dropped_before_it_was_granted) {
    struct md_mem *mem = begin_with_grant();
    weft__rc_dropped(bed.lane, &(struct rc_word){.serial = 1});
    CHECK_EQ(bed.lane->why, WEFT_ERR_PROTOCOL);
    weft__rc_words_flush(bed.lane);
    CHECK_EQ(bed.lane->n_grants, 1);
    end_with_grant(mem);
}

static int n_binds;
static int counts_binds(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    n_binds += wr->opcode == IBV_WR_BIND_MW;
    return 0;
}

/* A window that is bound already is not bound again, which would break the queue pair. */
TEST(a_grant_that_finds_no_room_opens_its_window_once) {
    struct md_mem *mem = begin_with_grant();
    struct ibv_mw window = {0};
    bed.device.ops.post_send = counts_binds;
    bed.lane->grants->window = &window;
    bed.iface->max_inline = 0; /* it takes memory, of which there is none */
    weft__rd_pool_init(&bed.iface->send, &bed.opened, bed.iface, 64, 1, 0);
    n_binds = 0;
    for (int i = 0; i < 3; i++) weft__rc_words_flush(bed.lane);
    CHECK_EQ(n_binds, 1);
    CHECK(bed.lane->words.first != NULL);
    bed.iface->max_inline = RC_INLINE;
    weft__rc_words_flush(bed.lane);
    CHECK_EQ(n_binds, 1);
    CHECK(bed.lane->words.first == NULL);
    bed.lane->grants->window = NULL;
    end_with_grant(mem);
}

/* ---- what the device says -------------------------------------------------------------------- */

/* As a queue does that the program fills, too. They are posted once there is room, by what is
 * received later, or when a while has passed. */
TEST(receives_that_the_queue_has_no_room_for_are_posted_later) {
    enum { BLOCKS = 3 * RC_REPOST };
    static struct rd_block block[BLOCKS];
    for (int by_timer = 0; by_timer < 2; by_timer++) {
        begin();
        bed.iface->again.fire = weft__rc_look_again;
        for (int i = 0; i < BLOCKS; i++) {
            struct ibv_wc wc = completion(3, 8);
            block[i] = (struct rd_block){.bytes = bed.bytes};
            wc.wr_id = (uintptr_t)&block[i];
            bed.room = RC_REPOST / 2 - bed.posted;
            if (i == BLOCKS - 1 && !by_timer) bed.room = -1;
            weft__rc_took(&bed.iface->cq, &wc);
        }
        CHECK_EQ(bed.delivered, BLOCKS);
        if (by_timer) {
            CHECK_EQ(bed.posted, RC_REPOST / 2);
            bed.room = -1;
            for (int i = 0; i < 20000 && bed.posted < BLOCKS; i++) {
                weft__reactor_progress(bed.reactor, 0);
                usleep(1000);
            }
        }
        CHECK_EQ(bed.posted, BLOCKS);
        weft__timer_stop(bed.reactor, &bed.iface->again);
        end();
    }
}

static unsigned n_over;
static void over(struct completion *completion, weft_status_t status) {
    CHECK_EQ(status, WEFT_ERR_PEER_FAILED);
    n_over++;
}

/* The goodbye has its time, whatever memory there is. */
TEST(a_lane_that_closes_needs_no_memory_for_its_deadline) {
    enum { TIMERS = 2000 };
    static struct timer timer[TIMERS];
    unsigned n = 0;
    begin();
    struct reactor *r = bed.reactor;
    bed.device.ops.post_send = takes_all;
    bed.iface->max_inline = RC_INLINE;
    bed.lane->machine.fsm.state = RC_QP_RTS;
    bed.lane->machine.notified = RC_NOTIFIED_UP;
    weft__timer_stop(r, &bed.lane->deadline); /* as when it came up */
    while (weft__timer_is_at_hand(r))
        CHECK_EQ(weft__timer_start(r, &timer[n++], weft__now(r) + 600 * NS_PER_S), 0);
    (void)weft__alloc_fail_at(1);
    weft__rc_lane_close(&bed.lane->lane, true);
    (void)weft__alloc_fail_at(0);
    CHECK_EQ(bed.lane->machine.fsm.state, RC_QP_SQD);
    CHECK(!(bed.lane->todo & RC_TODO_BREAK));
    CHECK(weft__timer_running(&bed.lane->deadline));
    while (n > 0) weft__timer_stop(r, &timer[--n]);
    weft__rc_works_notify(bed.lane, WEFT_ERR_PEER_FAILED);
    end();
}

/* A lane that its device left still has requests when the device is back, with other queues. */
TEST(requests_of_a_lane_end_once_though_its_device_came_back_with_other_queues) {
    static const uint32_t depths[] = {4, 16, 4096};
    enum { REQUESTS = 10 };
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        struct completion completion = {over, REQUESTS, WEFT_OK};
        begin();
        n_over = 0;
        bed.device.ops.post_send = takes_all;
        bed.lane->posted = bed.lane->done = 2000;
        for (int n = 0; n < REQUESTS; n++)
            weft__rc_post_nothing(bed.lane, &(struct rc_work){.completion = &completion});
        LIST_REMOVE(bed.lane, of_bucket);
        bed.lane->qp = NULL;
        bed.iface->depth = depths[i];
        weft__rc_works_strip(bed.lane);
        weft__rc_works_notify(bed.lane, WEFT_ERR_PEER_FAILED);
        CHECK_EQ(completion.count, 0);
        CHECK_EQ(n_over, 1);
        LIST_INSERT_HEAD(&bed.iface->bucket[QP % RC_BUCKETS], bed.lane, of_bucket);
        end();
    }
}

static void gone(struct completion *completion, weft_status_t status) {
    n_over++;
}

/* A queue pair of the program goes from lane to lane, and the queue may still hold what it reported
 * of the one before. */
TEST(a_completion_of_an_earlier_lane_of_a_queue_pair_is_none_of_the_next) {
    enum { REQUESTS = 3 };
    static const uint32_t stale[] = {REQUESTS, 100, UINT32_MAX, UINT32_C(1) << 31};
    struct completion completion = {gone, REQUESTS, WEFT_OK};
    begin();
    n_over = 0;
    bed.device.ops.post_send = takes_all;
    for (int n = 0; n < REQUESTS; n++)
        weft__rc_post_nothing(bed.lane, &(struct rc_work){.completion = &completion});
    for (size_t i = 0; i < sizeof stale / sizeof *stale; i++) {
        weft__rc_sent(bed.lane, stale[i], IBV_WC_SUCCESS);
        CHECK_EQ(bed.lane->done, 0);
        CHECK_EQ(n_over, 0);
    }
    weft__rc_sent(bed.lane, REQUESTS - 1, IBV_WC_SUCCESS);
    CHECK_EQ(bed.lane->done, REQUESTS);
    CHECK_EQ(n_over, 1);
    weft__rc_sent(bed.lane, REQUESTS - 1, IBV_WC_SUCCESS); /* nothing is under way */
    weft__rc_sent(bed.lane, 100, IBV_WC_SUCCESS);
    CHECK_EQ(bed.lane->done, REQUESTS);
    end();
}

static void not_for_the_program(const void *completion, void *arg) {
    ++*(unsigned *)arg;
}

/* What its own queue pairs report is the program's, and nothing else. */
TEST(a_send_of_a_lane_that_is_gone_is_not_reported_to_the_program) {
    struct ibv_cq queue = {0};
    struct ibv_qp *pairs[] = {&bed.qp};
    unsigned reported = 0;
    begin();
    const struct given given = {.pd = &(struct ibv_pd){0},
                                .cq = &queue,
                                .qp = pairs,
                                .n_qp = 1,
                                .completion = not_for_the_program,
                                .arg = &reported};
    bed.opened.given = &given;
    LIST_REMOVE(bed.lane, of_bucket);
    struct ibv_wc wc = {.wr_id = UINT64_C(1) << 63 | 7, .qp_num = QP};
    weft__rc_took(&bed.iface->cq, &wc);
    CHECK_EQ(reported, 0);
    wc.qp_num = QP + 1;
    weft__rc_took(&bed.iface->cq, &wc);
    CHECK_EQ(reported, 1);
    bed.opened.given = NULL;
    LIST_INSERT_HEAD(&bed.iface->bucket[QP % RC_BUCKETS], bed.lane, of_bucket);
    end();
}

/* Between a message that found no memory and the job that breaks its lane, the owner may pause it.
 * What comes behind the lost message is not delivered for that. */
TEST(a_lane_that_breaks_is_not_paused) {
    begin();
    struct ibv_wc wc = completion(3, 8);
    bed.lane->take = weft__rc_take_nothing;
    CHECK_EQ(weft__rc_pause(&bed.lane->lane, true), WEFT_OK);
    weft__rc_took(&bed.iface->cq, &wc);
    weft__rc_receive_rest(bed.lane);
    CHECK_EQ(bed.delivered, 0);
    end();
}

/* The device reads the memory by its registration until the request is over. */
TEST(a_region_from_which_is_being_sent_is_revoked_when_that_is_over) {
    static char memory[4096];
    struct completion revoked = {gone, 1, WEFT_OK}, sent = {gone, 1, WEFT_OK};
    struct ibv_mr mr = {.addr = memory, .length = sizeof memory, .lkey = 5};
    const struct region region = {
        .base = memory, .len = sizeof memory, .id = 3, .mr = &mr, .rights = WEFT_MEM_READ};
    struct md_mem *mem;
    uint32_t lkey = 0;
    begin();
    n_over = 0;
    bed.device.ops.post_send = takes_all;
    weft__slab_init(&bed.iface->op_slab, bed.reactor, bed.iface, sizeof(struct rc_op), "rc ops");
    CHECK_EQ(weft__rc_mem_register(&bed.iface->iface, &region, &mem), WEFT_OK);
    struct rc_op *op = weft__slab_take(&bed.iface->op_slab);
    CHECK_EQ(weft__rc_local_key(bed.lane, op, memory + 7, 100, false, &lkey), WEFT_OK);
    CHECK_EQ(lkey, 5);
    op->completion = &sent;
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};
    weft__rc_post(bed.lane, &wr, &(struct rc_work){.op = op}, true);
    CHECK_EQ(weft__rc_mem_revoke(mem, &revoked), WEFT_IN_PROGRESS);
    CHECK_EQ(n_over, 0);
    weft__rc_sent(bed.lane, 0, IBV_WC_SUCCESS);
    CHECK_EQ(revoked.count, 0);
    CHECK_EQ(n_over, 2);
    CHECK_EQ(weft__rc_mem_register(&bed.iface->iface, &region, &mem), WEFT_OK);
    CHECK_EQ(weft__rc_mem_revoke(mem, &revoked), WEFT_OK);
    weft__reactor_progress(bed.reactor, 0);
    weft__slab_end(&bed.iface->op_slab);
    end();
}
#else
TEST(a_message_is_delivered) {
    SKIP("built without rdma");
}
#endif
