/* operations.def, held against the transports: what their attributes claim, what their lanes
 * have, what their keys serve. */
#include "pair.h"
#include "rma_target.h"
#include <transports/reliable/window_lane.h>
#include <transports/sim/sim.h>

enum cell { NATIVE, MESSAGE, REFUSED };
enum column { SELF, SHM, SHM_VM, TCP, SIM, RC, UD, N_COLUMNS };

struct row {
    const char *name;
    uint32_t cap;
    bool (*there)(const struct lane_ops *ops);
    enum cell cell[N_COLUMNS];
};
#define base_THERE(name) ops->name
#define bulk_THERE(name) HAS_OP(ops, bulk, name)
#define rma_THERE(name)  HAS_OP(ops, rma, name)
#define conn_THERE(name) HAS_OP(ops, conn, name)
#define OPERATION(table, name, cap, ...)                              \
    static bool name##_##cap##_is_there(const struct lane_ops *ops) { \
        return table##_THERE(name);                                   \
    }
#include "operations.def"
#undef OPERATION
static const struct row rows[] = {
#define OPERATION(table, name, cap, ...) {#name, CAP_##cap, name##_##cap##_is_there, {__VA_ARGS__}},
#include "operations.def"
#undef OPERATION
};

static bool has(const struct lane *lane, const struct row *row) {
    return row->there(lane->ops);
}

enum { BY_KEY = CAP_PUT | CAP_GET | CAP_ATOMIC | CAP_ATOMIC_DEVICE };

/* What a key to these rights serves; everything, where there are none. */
static uint32_t served(struct pair *p, struct target *t, unsigned rights) {
    uint8_t packed[MD_KEY_MAX];
    struct md_mem *mem;
    struct lane_key *key;
    if (!(p->iface_b->attr.caps & CAP_PUT)) return ~0u;
    t->region.rights = t->remote.rights = rights;
    CHECK_EQ(p->iface_b->ops->mem->mem_register(p->iface_b, &t->region, &mem), WEFT_OK);
    size_t len = p->iface_b->ops->mem->key_pack(mem, packed);
    CHECK_EQ(p->a.lane->ops->rma->key_open(p->a.lane, &t->remote, packed, len, &key), WEFT_OK);
    CHECK(pair_until(p, key->status == WEFT_OK));
    uint32_t caps = key->caps | ~(uint32_t)BY_KEY;
    p->a.lane->ops->rma->key_close(key);
    CHECK(pair_until(p, mem->n_open == 0));
    CHECK_EQ(p->iface_b->ops->mem->mem_revoke(mem, NULL), WEFT_OK);
    return caps;
}

static void make_network(struct reactor_clock *clock) {
    weft__sim_use(weft__sim_create(clock, 1, &weft__sim_reliable));
}

static void is_as_written(enum column column, const struct transport *transport, unsigned flags,
                          const char *way) {
    struct pair p;
    struct target t;
    unsigned wrong = 0;
    pair_clock_made = make_network;
    const weft_setting_t settings[] = {
        {"shm.rma", way}, {"shm.copy", "vm"}, {"rdma.insecure", "yes"}};
    pair_open_with(&p, transport, flags, settings, 3);
    pair_connect(&p);
    target_open(&t, TARGET_PAGE, WEFT_MEM_ALL, false);
    uint32_t key_caps = served(&p, &t, WEFT_MEM_ALL);
    uint32_t device_caps = served(&p, &t, WEFT_MEM_ALL | WEFT_MEM_ATOMIC_DEVICE);
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        uint32_t by_key = row->cap == CAP_ATOMIC_DEVICE ? device_caps : key_caps;
        bool claims = p.iface_a->attr.caps & by_key & row->cap,
             native = row->cell[column] == NATIVE;
        /* What is claimed is there; what is never claimed is not. */
        bool there = has(p.a.lane, row) && has(p.b.lane, row);
        if (claims == native && (there || !native)) continue;
        printf("  %s: claimed %d, there %d\n", row->name, claims, there);
        wrong++;
    }
    CHECK_EQ(wrong, 0);
    CHECK(!(device_caps & CAP_ATOMIC) || !(p.iface_b->attr.caps & CAP_PUT));
    pair_close(&p);
    target_close(&t);
}

TEST(self_does_what_the_table_lists) {
    is_as_written(SELF, &weft__transport_self, PAIR_ONE_REACTOR, "auto");
}
TEST(shm_does_what_the_table_lists) {
    is_as_written(SHM, &weft__transport_shm, 0, "auto");
}
TEST(shm_by_process_vm_does_what_the_table_lists) {
    is_as_written(SHM_VM, &weft__transport_shm, 0, "vm");
}
TEST(tcp_does_what_the_table_lists) {
    is_as_written(TCP, &weft__transport_tcp, 0, "auto");
}
TEST(sim_does_what_the_table_lists) {
    is_as_written(SIM, &weft__transport_sim, PAIR_VIRTUAL, "auto");
}

#ifdef WEFT_HAVE_RDMA
static weft_status_t open_window(struct reactor *r, const struct iface_params *params,
                                 struct iface **iface_p) {
    return weft__window_iface_open(r, &weft__transport_rdma_ud, params, iface_p);
}
static const struct transport rdma_ud_window = {.name = "rdma_ud", .open = open_window};
TEST(rdma_rc_does_what_the_table_lists) {
    if (!pair_has_rdma()) SKIP("no RDMA device here");
    is_as_written(RC, &weft__transport_rdma_rc, 0, "auto");
}
TEST(rdma_ud_does_what_the_table_lists) {
    if (!pair_has_rdma()) SKIP("no RDMA device here");
    is_as_written(UD, &rdma_ud_window, 0, "auto");
}
#endif

/* A capability bit has a row, or is no operation's. */
TEST(every_capability_of_an_operation_has_a_row) {
    uint32_t listed = CAP_RELIABLE | CAP_CONNECT_TO_IFACE | CAP_LISTEN | CAP_MAP | CAP_WAKEUP |
                      CAP_PEER_DEATH | CAP_INTER_NODE | CAP_DEVICE_MEMORY | CAP_DEVICE_IPC;
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) listed |= rows[i].cap;
    CHECK_EQ(listed, (1u << N_TRANSPORT_CAPS) - 1);
}
