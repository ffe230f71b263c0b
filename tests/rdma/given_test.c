/* A program with verbs objects of its own, which a worker's transports use (weft/resource.h). */
#include "bed.h"

#include <weft/resource.h>

#ifdef WEFT_HAVE_RDMA
#include <endpoints/memory/memory.h>
#include <sys/socket.h>
#include <tests/support/ending_team.h>
#include <tests/support/ending_worker.h>
#include <transports/rdma/rc/rc.h>

enum { PAIRS = 3, OWN_NUMBER = 77, DEPTH = 128, RECEIVES = 128 };

struct objects {
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq;
    struct ibv_qp *qp[PAIRS], *own;
    int own_completions, events;
    uint32_t own_wrong;
};

static struct ibv_qp *new_pair(struct objects *o, struct ibv_srq *srq) {
    struct ibv_qp_init_attr init = {.send_cq = o->cq,
                                    .recv_cq = o->cq,
                                    .srq = srq,
                                    .cap = {DEPTH, 8, 9, 1, 64},
                                    .qp_type = IBV_QPT_RC};
    struct ibv_qp *qp = ibv_create_qp(o->pd, &init);
    CHECK(qp != NULL);
    return qp;
}

static void objects_up(struct objects *o, const char *device) {
    int n = 0;
    memset(o, 0, sizeof *o);
    CHECK_EQ(weft__rd_verbs_load(), 0);
    struct ibv_device **list = ibv_get_device_list(&n);
    for (int i = 0; i < n; i++)
        if (strcmp(ibv_get_device_name(list[i]), device) == 0)
            o->context = ibv_open_device(list[i]);
    ibv_free_device_list(list);
    CHECK(o->context != NULL);
    o->pd = ibv_alloc_pd(o->context);
    o->channel = ibv_create_comp_channel(o->context);
    o->cq = ibv_create_cq(o->context, 1024, NULL, o->channel, 0);
    struct ibv_srq_init_attr attr = {.attr = {.max_wr = RECEIVES, .max_sge = 1}};
    o->srq = ibv_create_srq(o->pd, &attr);
    CHECK(o->pd && o->channel && o->cq && o->srq);
    for (int i = 0; i < PAIRS; i++) o->qp[i] = new_pair(o, o->srq);
    o->own = new_pair(o, NULL);
}

/* All of it goes: nothing of the library is left in the domain, or on a queue. */
static void objects_down(struct objects *o) {
    for (int i = 0; i < PAIRS; i++) CHECK_EQ(ibv_destroy_qp(o->qp[i]), 0);
    CHECK_EQ(ibv_destroy_qp(o->own), 0);
    CHECK_EQ(ibv_destroy_srq(o->srq), 0);
    CHECK_EQ(ibv_destroy_cq(o->cq), 0);
    CHECK_EQ(ibv_destroy_comp_channel(o->channel), 0);
    CHECK_EQ(ibv_dealloc_pd(o->pd), 0);
    CHECK_EQ(ibv_close_device(o->context), 0);
}

static int in_state(const struct objects *o, enum ibv_qp_state state) {
    int n = 0;
    for (int i = 0; i < PAIRS; i++) {
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        CHECK_EQ(ibv_query_qp(o->qp[i], &attr, IBV_QP_STATE, &init), 0);
        n += attr.qp_state == state;
    }
    return n;
}

static void on_completion(const void *completion, void *arg) {
    const struct ibv_wc *wc = completion;
    struct objects *o = arg;
    o->own_completions++;
    o->own_wrong += wc->qp_num != o->own->qp_num || wc->wr_id != OWN_NUMBER;
}
static void on_event(const void *event, void *arg) {
    ((struct objects *)arg)->events++;
}

/* A receive of the program's own pair that is flushed: a completion on the shared queue. */
static void cause_own_completion(struct objects *o) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct ibv_recv_wr receive = {.wr_id = OWN_NUMBER}, *bad;
    CHECK_EQ(ibv_modify_qp(o->own, &attr,
                           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
             0);
    CHECK_EQ(ibv_post_recv(o->own, &receive, &bad), 0);
    attr.qp_state = IBV_QPS_ERR;
    CHECK_EQ(ibv_modify_qp(o->own, &attr, IBV_QP_STATE), 0);
}

/* ---- a worker that works by them ------------------------------------------------------------- */

struct scene {
    struct objects objects;
    struct bed bed;
    weft_context_t *context;
    weft_worker_t *worker;
    weft_resource_t *resource;
    int lost;
};

static void on_lost(void *object, weft_status_t status, void *arg) {
    ((struct scene *)arg)->lost += status == WEFT_ERR_RESOURCE_LOST;
}

static void given_up(struct scene *g, bool all) {
    weft_setting_t settings[] = {
        {"rdma.device", "rxe0"}, {"rdma.insecure", "yes"}, {"rdma.receives", "128"}};
    memset(g, 0, sizeof *g);
    objects_up(&g->objects, "rxe0");
    weft_context_params_t params = {.settings = settings, .n_settings = 3, .associated = 1};
    CHECK_EQ(weft_context_create(&params, &g->context), 0);
    weft_worker_params_t stub = {.transports = "rdma_rc", .associated = 1};
    CHECK_EQ(weft_worker_create(g->context, &stub, &g->worker), 0);
    struct objects *o = &g->objects;
    weft_verbs_t verbs = {on_completion, on_event, o};
    weft_resource_value_t values[] = {
        {WEFT_RES_WORKER_PD, &o->pd, sizeof o->pd},    {WEFT_RES_WORKER_CQ, &o->cq, sizeof o->cq},
        {WEFT_RES_WORKER_SRQ, &o->srq, sizeof o->srq}, {WEFT_RES_WORKER_QP, o->qp, sizeof o->qp},
        {WEFT_RES_WORKER_VERBS, &verbs, sizeof verbs},
    };
    weft_resource_params_t described = {
        .kind = WEFT_RESOURCE_VERBS, .values = values, .n_values = all ? 5 : 1};
    CHECK_EQ(weft_resource_describe(&described, &g->resource), 0);
    weft_associate_params_t with = {.resource = g->resource, .on_lost = on_lost, .arg = g};
    CHECK_EQ(weft_associate_resources(g->context, WEFT_OBJECT_WORKER, &with, g->worker), 0);
    struct two *t = &g->bed.t;
    t->a = g->worker;
    t->b = bed_worker(t, &g->bed.context_b, "rdma_rc", "rxe1", (weft_setting_t){0});
    two_dial(t);
    UNTIL(t, t->ready && t->back);
}

/* A message each way, large enough for a rendezvous. */
static void messages_cross(struct scene *g) {
    static char out[2][300000], in[2][300000];
    struct two *t = &g->bed.t;
    struct tally received = {0}, sent = {0};
    for (int i = 0; i < 2; i++) {
        memset(out[i], 'a' + i, sizeof out[i]);
        weft_iov_t to = {in[i], sizeof in[i]}, from = {out[i], sizeof out[i]};
        CHECK_EQ(weft_tag_recv(i ? t->a : t->b, 5, ~0ull, &to, 1, NULL, OP(&received)),
                 WEFT_IN_PROGRESS);
        weft_status_t st = weft_tag_send(i ? t->back : t->ep, 5, &from, 1, OP(&sent));
        CHECK(st >= 0);
        sent.calls += st == WEFT_OK;
    }
    UNTIL(t, received.calls == 2 && sent.calls == 2);
    CHECK_EQ(received.status, 0);
    CHECK(memcmp(in, out, sizeof in) == 0);
}

static void given_down(struct scene *g) {
    struct two *t = &g->bed.t;
    t->a = NULL;
    weft_worker_destroy(t->b);
    CHECK_EQ(weft_resource_release(g->resource), 0);
    weft_worker_destroy(g->worker);
    CHECK_EQ(weft_context_destroy(g->context), 0);
    CHECK_EQ(weft_context_destroy(g->bed.context_b), 0);
    objects_down(&g->objects);
}

TEST(rdma_rc_works_by_queue_pairs_of_the_program_and_gives_them_back) {
    struct scene g;
    struct tally done = {0};
    WANTS_THE_BED();
    given_up(&g, true);
    CHECK_EQ(in_state(&g.objects, IBV_QPS_RTS), 1);
    messages_cross(&g);
    cause_own_completion(&g.objects);
    UNTIL(&g.bed.t, g.objects.own_completions == 1);
    CHECK_EQ(g.objects.own_wrong, 0);
    messages_cross(&g);
    CHECK_EQ(weft_disassociate_resources(g.resource, g.worker, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&g.bed.t, done.calls);
    CHECK_EQ(in_state(&g.objects, IBV_QPS_RESET), PAIRS);
    CHECK_EQ(weft_worker_flush(g.worker, NULL), WEFT_ERR_DISASSOCIATED);
    given_down(&g);
}

TEST(rdma_rc_registers_in_the_protection_domain_of_the_program) {
    struct scene g;
    struct tally done = {0};
    WANTS_THE_BED();
    given_up(&g, false);
    CHECK_EQ(in_state(&g.objects, IBV_QPS_RESET), PAIRS); /* it has made its own */
    messages_cross(&g);
    CHECK(ibv_dealloc_pd(g.objects.pd) != 0); /* in use */
    CHECK_EQ(weft_disassociate_resources(g.resource, g.worker, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&g.bed.t, done.calls);
    given_down(&g);
}

/* The program's queue pairs take 9 pieces in a request. */
TEST(a_message_of_more_pieces_than_its_queue_pairs_take_crosses) {
    enum { PIECES = 16, PIECE = 1000 };
    static char out[PIECES][2 * PIECE], in[PIECES * PIECE];
    struct scene g;
    struct tally done = {0}, sent = {0}, received = {0};
    weft_op_t eager = {.done = tally, .arg = &sent, .flags = WEFT_AM_EAGER};
    weft_iov_t from[PIECES], to = {in, sizeof in};
    WANTS_THE_BED();
    given_up(&g, true);
    struct two *t = &g.bed.t;
    for (int i = 0; i < PIECES; i++) {
        memset(out[i], 'a' + i, PIECE);
        from[i] = (weft_iov_t){out[i], PIECE};
    }
    CHECK_EQ(weft_tag_recv(t->b, 5, ~0ull, &to, 1, NULL, OP(&received)), WEFT_IN_PROGRESS);
    weft_status_t st = weft_tag_send(t->ep, 5, from, PIECES, &eager);
    CHECK(st >= 0);
    UNTIL(t, received.calls == 1 && (st == WEFT_OK || sent.calls == 1));
    CHECK_EQ(received.status, 0);
    CHECK_EQ(t->errors, 0);
    for (int i = 0; i < PIECES; i++) CHECK(memcmp(in + (size_t)i * PIECE, out[i], PIECE) == 0);
    CHECK_EQ(weft_disassociate_resources(g.resource, g.worker, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(t, done.calls);
    given_down(&g);
}

/* ---- memory that the program registered ------------------------------------------------------ */

enum { MEMORY = 65536 };

static weft_status_t associate_memory(struct scene *g, struct ibv_mr *mr, void *base, uint64_t len,
                                      weft_mem_t *mem, weft_resource_t **resource_p) {
    weft_resource_value_t values[] = {{WEFT_RES_MEMORY_BASE, &base, sizeof base},
                                      {WEFT_RES_MEMORY_LENGTH, &len, sizeof len},
                                      {WEFT_RES_MEMORY_MR, &mr, sizeof mr}};
    weft_resource_params_t described = {
        .kind = WEFT_RESOURCE_MEMORY, .values = values, .n_values = 3};
    CHECK_EQ(weft_resource_describe(&described, resource_p), 0);
    return weft_associate_resources(g->context, WEFT_OBJECT_MEMORY,
                                    &(weft_associate_params_t){.resource = *resource_p}, mem);
}

/* What the transport of the worker's region registered, or was given. */
static const struct ibv_mr *used_mr(const weft_mem_t *mem) {
    const struct md_mem *md = mem->md[0];
    return md ? ((const struct rc_mem *)md)->mr : NULL;
}

TEST(memory_that_the_program_registered_is_not_registered_again) {
    static char memory[MEMORY], from[MEMORY], to[MEMORY];
    struct scene g;
    struct tally done = {0}, put = {0}, got = {0}, sent = {0}, received = {0};
    char key[WEFT_RKEY_MAX];
    size_t len = sizeof key;
    weft_mem_t *mem;
    weft_rkey_t *rkey;
    weft_resource_t *resource;
    WANTS_THE_BED();
    given_up(&g, false);
    struct two *t = &g.bed.t;
    struct ibv_mr *mr =
        ibv_reg_mr(g.objects.pd, memory, MEMORY,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
                       IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND);
    CHECK(mr != NULL);
    weft_mem_params_t params = {.rights = WEFT_MEM_ALL, .associated = 1};
    CHECK_EQ(weft_mem_register(g.worker, NULL, 0, &params, &mem), 0);
    CHECK_EQ(associate_memory(&g, mr, memory, MEMORY, mem, &resource), 0);
    CHECK(used_mr(mem) == mr); /* at once, so sends from it use the lkey */

    CHECK_EQ(weft_mem_pack(mem, key, &len), 0);
    CHECK_EQ(weft_rkey_unpack(t->back, key, len, &rkey), 0);
    memset(from, 'p', MEMORY);
    weft_iov_t in = {to, MEMORY}, own = {memory, MEMORY};
    weft_rkey_info_t info;
    CHECK_EQ(weft_rkey_describe(rkey, &info), 0);
    CHECK(weft_put(t->back, from, MEMORY, info.base, rkey, OP(&put)) >= 0);
    UNTIL(t, memcmp(memory, from, MEMORY) == 0);
    CHECK(weft_get(t->back, to, MEMORY, info.base, rkey, OP(&got)) >= 0);
    UNTIL(t, memcmp(to, from, MEMORY) == 0);
    CHECK_EQ(weft_tag_recv(t->b, 4, ~0ull, &in, 1, NULL, OP(&received)), WEFT_IN_PROGRESS);
    weft_op_t large = {.done = tally, .arg = &sent};
    CHECK(weft_tag_send(t->ep, 4, &own, 1, &large) >= 0);
    UNTIL(t, received.calls == 1);
    CHECK(used_mr(mem) == mr);
    weft_rkey_release(rkey);

    weft_status_t st = weft_disassociate_resources(resource, mem, OP(&done));
    UNTIL(t, st == WEFT_OK || done.calls == 1);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    CHECK_EQ(ibv_dereg_mr(mr), 0); /* it was the program's all along, and is there yet */
    done.calls = 0;
    CHECK_EQ(weft_disassociate_resources(g.resource, g.worker, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(t, done.calls);
    given_down(&g);
}

TEST(a_registration_that_does_not_fit_is_refused) {
    static char memory[MEMORY];
    struct scene g;
    struct tally done = {0};
    weft_mem_t *mem;
    weft_resource_t *resource;
    WANTS_THE_BED();
    given_up(&g, false);
    struct ibv_pd *other = ibv_alloc_pd(g.objects.context);
    struct ibv_mr *foreign = ibv_reg_mr(other, memory, MEMORY, IBV_ACCESS_LOCAL_WRITE);
    struct ibv_mr *half = ibv_reg_mr(g.objects.pd, memory, MEMORY / 2, IBV_ACCESS_LOCAL_WRITE);
    CHECK(other && foreign && half);
    weft_mem_params_t params = {.rights = WEFT_MEM_READ, .associated = 1};
    CHECK_EQ(weft_mem_register(g.worker, NULL, 0, &params, &mem), 0);
    CHECK_EQ(associate_memory(&g, foreign, memory, MEMORY, mem, &resource), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(associate_memory(&g, half, memory, MEMORY, mem, &resource), WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_resource_release(resource), 0);
    CHECK_EQ(weft_mem_pack(mem, memory, &(size_t){0}), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_mem_release(mem, NULL), 0);
    CHECK(ibv_dereg_mr(foreign) == 0 && ibv_dereg_mr(half) == 0 && ibv_dealloc_pd(other) == 0);
    CHECK_EQ(weft_disassociate_resources(g.resource, g.worker, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&g.bed.t, done.calls);
    given_down(&g);
}

TEST(soft_roce_imports_no_domain) {
    struct scene g;
    struct tally done = {0};
    weft_resource_t *imported = NULL;
    int pair[2];
    WANTS_THE_BED();
    given_up(&g, false);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    CHECK_EQ(weft_resource_send(g.resource, pair[1]), 0);
    CHECK_EQ(weft_resource_receive(g.bed.t.b, pair[0], &imported), WEFT_ERR_UNSUPPORTED);
    CHECK(imported == NULL && close(pair[0]) == 0 && close(pair[1]) == 0);
    CHECK_EQ(weft_disassociate_resources(g.resource, g.worker, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(&g.bed.t, done.calls);
    given_down(&g);
}

TEST(verbs_objects_that_are_lost_end_the_operations_over_them) {
    struct scene g;
    struct tally sent = {0}, received = {0};
    static char bytes[1 << 20];
    char in[8];
    WANTS_THE_BED();
    given_up(&g, true);
    struct two *t = &g.bed.t;
    weft_op_t op = {.done = tally, .arg = &sent, .flags = WEFT_AM_RENDEZVOUS};
    CHECK_EQ(weft_tag_recv(t->a, 9, ~0ull, &(weft_iov_t){in, 8}, 1, NULL, OP(&received)),
             WEFT_IN_PROGRESS);
    CHECK_EQ(weft_tag_send(t->ep, 3, &(weft_iov_t){bytes, sizeof bytes}, 1, &op), WEFT_IN_PROGRESS);
    for (int i = 0; i < 50; i++) two_turn(t);
    weft_resource_lose(g.resource);
    weft_resource_info_t info = {.n_users = 1};
    UNTIL(t, weft_resource_info(g.resource, &info) == 0 && info.n_users == 0);
    CHECK(g.lost == 1 && sent.calls == 1 && received.calls == 1);
    CHECK_EQ(sent.status, WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(received.status, WEFT_ERR_RESOURCE_LOST);
    CHECK_EQ(in_state(&g.objects, IBV_QPS_RESET), PAIRS);
    given_down(&g);
}

static const char *state_of(const struct scene *g) {
    return weft_association_state(g->context, WEFT_OBJECT_WORKER, g->worker);
}

/* Nothing of the library is in use, and nothing goes on without other objects. */
static void rests(struct scene *g) {
    CHECK_EQ(strcmp(state_of(g), "DISASSOCIATED"), 0);
    CHECK_EQ(weft_worker_progress(g->worker, 0), WEFT_ERR_DISASSOCIATED);
    CHECK_EQ(in_state(&g->objects, IBV_QPS_RESET), PAIRS);
    CHECK_EQ(g->lost, 0);
}

TEST(verbs_objects_that_are_returned_are_disassociated_for_each_call_and_operation) {
    static struct ending ending;
    struct scene g;
    struct tally done = {0};
    WANTS_THE_BED();
    for (int all = 0; all < 2; all++) {
        given_up(&g, all);
        struct two *t = &g.bed.t;
        ending_begin(&ending, g.worker, t->ep);
        for (int i = 0; i < 50; i++) two_turn(t);
        done.calls = 0;
        CHECK_EQ(weft_disassociate_resources(g.resource, g.worker, CLOSE_OP(&done)),
                 WEFT_ERR_UNSUPPORTED);
        CHECK_EQ(weft_disassociate_resources(g.resource, g.worker, OP(&done)), WEFT_IN_PROGRESS);
        ending_calls_return(&ending, WEFT_ERR_DISASSOCIATED);
        UNTIL(t, done.calls);
        CHECK_EQ(done.status, WEFT_OK);
        ending_ended(&ending, WEFT_ERR_DISASSOCIATED);
        rests(&g);
        UNTIL(t, t->back_errors);
        given_down(&g);
    }
}

/* An endpoint and a team are the program's, over a worker in associated mode. */
TEST(verbs_objects_that_are_withdrawn_end_the_endpoint_and_the_team_over_them) {
    static struct ending ending;
    static struct ending_team in_team;
    struct scene g;
    struct tally done = {0};
    WANTS_THE_BED();
    given_up(&g, true);
    struct two *t = &g.bed.t;
    ending_begin(&ending, g.worker, t->ep);
    ending_team_begin(&in_team, g.worker, t->b);
    UNTIL(t, ending_team_is_ready(&in_team));
    ending_team_waits(&in_team);
    for (int i = 0; i < 50; i++) two_turn(t);
    CHECK_EQ(weft_disassociate_resources(g.resource, g.worker, NULL), WEFT_ERR_BUSY);
    CHECK_EQ(strcmp(state_of(&g), "READY"), 0);
    CHECK_EQ(weft_resource_withdraw(g.resource, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(t, done.calls);
    CHECK_EQ(done.status, WEFT_OK);
    ending_ended(&ending, WEFT_ERR_DISASSOCIATED);
    ending_team_ended(&in_team, WEFT_ERR_DISASSOCIATED);
    rests(&g);
    weft_resource_info_t info;
    CHECK_EQ(weft_resource_info(g.resource, &info), 0);
    CHECK(info.n_users == 0 && info.status == WEFT_ERR_DISASSOCIATED);
    UNTIL(t, weft_barrier(in_team.team[1], NULL) == WEFT_ERR_PEER_FAILED);
    CHECK_EQ(weft_team_close(in_team.team[1], OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(t, done.calls == 2);
    given_down(&g);
}

/* In associated mode themselves: their resource is the endpoint that stands over the objects. */
TEST(what_is_associated_over_verbs_objects_ends_before_them) {
    struct scene g;
    struct tally done = {0};
    weft_ep_t *ep;
    weft_team_t *team;
    WANTS_THE_BED();
    given_up(&g, true);
    struct two *t = &g.bed.t;
    weft_ep_t *over[1] = {t->ep}, *alone[1] = {NULL}, *back = t->back;
    weft_resource_value_t value = {WEFT_RES_ENDPOINT_SET, over, sizeof over},
                          own = {WEFT_RES_ENDPOINT_SET, alone, sizeof alone};
    weft_resource_params_t params = {
        .kind = WEFT_RESOURCE_ENDPOINTS, .values = &value, .n_values = 1};
    weft_resource_t *of_ep, *of_team;
    CHECK_EQ(weft_resource_describe(&params, &of_ep), 0);
    params.values = &own;
    CHECK_EQ(weft_resource_describe(&params, &of_team), 0);
    CHECK_EQ(weft_connect(g.worker, NULL, &(weft_ep_params_t){.associated = 1}, &ep), 0);
    CHECK_EQ(weft_team_create(g.worker, &(weft_team_params_t){.associated = 1}, &team), 0);
    weft_associate_params_t by_ep = {.resource = of_ep}, by_team = {.resource = of_team};
    CHECK_EQ(weft_associate_resources(g.context, WEFT_OBJECT_ENDPOINT, &by_ep, ep), 0);
    CHECK_EQ(weft_associate_resources(g.context, WEFT_OBJECT_TEAM, &by_team, team), 0);
    UNTIL(t, weft_barrier(team, NULL) != WEFT_ERR_BUSY);
    CHECK_EQ(weft_disassociate_resources(g.resource, g.worker, NULL), WEFT_ERR_BUSY);
    CHECK_EQ(weft_disassociate_resources(of_ep, ep, OP(&done)), WEFT_IN_PROGRESS);
    CHECK_EQ(weft_disassociate_resources(of_team, team, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(t, done.calls == 2);
    CHECK_EQ(strcmp(weft_association_state(g.context, WEFT_OBJECT_ENDPOINT, ep), "DISASSOCIATED"),
             0);
    CHECK_EQ(strcmp(weft_association_state(g.context, WEFT_OBJECT_TEAM, team), "DISASSOCIATED"), 0);
    CHECK_EQ(weft_ep_flush(ep, NULL), WEFT_ERR_DISASSOCIATED);
    CHECK_EQ(weft_barrier(team, NULL), WEFT_ERR_DISASSOCIATED);
    CHECK_EQ(strcmp(state_of(&g), "READY"), 0);
    t->back = back; /* not the half of the one that has ended */
    messages_cross(&g);
    CHECK_EQ(weft_disassociate_resources(g.resource, g.worker, OP(&done)), WEFT_IN_PROGRESS);
    UNTIL(t, done.calls == 3);
    rests(&g);
    CHECK_EQ(weft_resource_release(of_ep), 0);
    CHECK_EQ(weft_resource_release(of_team), 0);
    given_down(&g);
}

/* What does not fit is refused, and leaves the worker as it was; also where another transport of
 * the worker does without it. */
static void misfits_are_refused(const char *transports) {
    struct scene g = {.lost = 0};
    weft_setting_t settings[] = {{"rdma.device", "rxe0"}, {"rdma.insecure", "yes"}};
    WANTS_THE_BED();
    struct objects *o = &g.objects;
    objects_up(o, "rxe0");
    weft_context_params_t params = {.settings = settings, .n_settings = 2, .associated = 1};
    CHECK_EQ(weft_context_create(&params, &g.context), 0);
    weft_worker_params_t stub = {.transports = transports, .associated = 1};
    CHECK_EQ(weft_worker_create(g.context, &stub, &g.worker), 0);
    struct ibv_qp *foreign[1] = {o->own}; /* without the SRQ */
    weft_resource_value_t values[] = {
        {WEFT_RES_WORKER_PD, &o->pd, sizeof o->pd},
        {WEFT_RES_WORKER_CQ, &o->cq, sizeof o->cq},
        {WEFT_RES_WORKER_SRQ, &o->srq, sizeof o->srq},
        {WEFT_RES_WORKER_QP, foreign, sizeof foreign},
    };
    weft_resource_params_t described = {
        .kind = WEFT_RESOURCE_VERBS, .values = values, .n_values = 4};
    CHECK_EQ(weft_resource_describe(&described, &g.resource), 0);
    weft_associate_params_t with = {.resource = g.resource};
    CHECK_EQ(weft_associate_resources(g.context, WEFT_OBJECT_WORKER, &with, g.worker),
             WEFT_ERR_UNSUPPORTED);
    CHECK_EQ(weft_worker_flush(g.worker, NULL), WEFT_ERR_NOT_ASSOCIATED);
    CHECK_EQ(weft_resource_release(g.resource), 0);
    weft_worker_destroy(g.worker);
    CHECK_EQ(weft_context_destroy(g.context), 0);
    objects_down(o);
}

TEST(verbs_objects_that_do_not_fit_are_refused) {
    misfits_are_refused("rdma_rc");
}

TEST(verbs_objects_that_do_not_fit_are_refused_beside_datagrams) {
    misfits_are_refused("rdma_rc,rdma_ud");
}

TEST(verbs_objects_that_do_not_fit_are_refused_beside_shared_memory) {
    misfits_are_refused("rdma_rc,shm");
}
#else
TEST(rdma_rc_works_by_queue_pairs_of_the_program_and_gives_them_back) {
    SKIP("no RDMA device here");
}
#endif
