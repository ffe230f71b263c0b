/* Which rings a worker looks at without being called: those that are busy, and few of the
 * others. */
#include "pair.h"
#include <endpoints/core/worker.h>
#include <transports/shm/lane/shm.h>
#include <weft/weft.h>

enum { CLIENTS = 24, HELLO = 1, ADDRESS = 512 };

static struct served {
    weft_context_t *context;
    weft_worker_t *server, *clients[CLIENTS];
    weft_ep_t *eps[CLIENTS];
    unsigned n_received;
} s;

static void on_hello(weft_ep_t *ep, weft_am_t *am, void *arg) {
    s.n_received++;
}

static const struct shm_iface *server_iface(void) {
    return (const struct shm_iface *)s.server->iface[0];
}

static void turn(void) {
    weft_worker_progress(s.server, 0);
    for (unsigned i = 0; i < CLIENTS; i++) weft_worker_progress(s.clients[i], 0);
}

static void open_all(void) {
    static const weft_setting_t settings[] = {
        {"transports", "shm"}, {"lanes.switch", "off"}, {"close.timeout", "20ms"}};
    char address[ADDRESS];
    size_t len = sizeof address;
    s = (struct served){0};
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 3},
                                 &s.context),
             WEFT_OK);
    CHECK_EQ(weft_worker_create(s.context, NULL, &s.server), WEFT_OK);
    CHECK_EQ(weft_am_handler_set(s.server, HELLO, on_hello, NULL), WEFT_OK);
    CHECK_EQ(weft_worker_address(s.server, address, &len), WEFT_OK);
    for (unsigned i = 0; i < CLIENTS; i++) {
        CHECK_EQ(weft_worker_create(s.context, NULL, &s.clients[i]), WEFT_OK);
        CHECK(weft_connect_address(s.clients[i], address, len, NULL, &s.eps[i]) >= 0);
    }
}

/* One after the other, so that no answer comes. */
static void close_all(void) {
    for (unsigned i = 0; i < CLIENTS; i++) weft_worker_destroy(s.clients[i]);
    weft_worker_destroy(s.server);
    weft_context_destroy(s.context);
}

/* Each client says hello so many times. */
static void handshake(unsigned times) {
    for (unsigned received = s.n_received; times; times--) {
        for (unsigned i = 0; i < CLIENTS; i++)
            CHECK(weft_am_send(s.eps[i], HELLO, NULL, 0, NULL, 0, NULL) >= 0);
        for (received += CLIENTS; s.n_received < received;) turn();
    }
}

TEST(busy_rings_are_attended_and_few_of_those_that_are_idle) {
    open_all();
    handshake(2 * SHM_STREAK);
    CHECK_EQ(server_iface()->rings.n, CLIENTS);
    bool fenced = server_iface()->wakeup.fenced; /* without, none can be */
    CHECK_EQ(server_iface()->rings.n_attended, fenced ? CLIENTS : 0);
    for (unsigned i = 0; i < 2 * SHM_IDLE; i++) weft_worker_progress(s.server, 0);
    CHECK_EQ(server_iface()->rings.n_attended, fenced ? SHM_IDLERS : 0);
    CHECK_EQ(server_iface()->rings.n_active, server_iface()->rings.n_attended);
    handshake(2); /* the others ring */
    handshake(2 * SHM_STREAK);
    CHECK_EQ(server_iface()->rings.n_attended, fenced ? CLIENTS : 0);
    close_all();
}

/* ---- lanes by themselves --------------------------------------------------------------------- */

static const struct shm_iface *dialer(const struct pair *p) {
    return (const struct shm_iface *)p->iface_a;
}

/* There is a place for as many rings as are counted: one that is not must not take any. */
TEST(a_ring_that_is_closed_leaves_its_place_though_its_peer_hangs) {
    enum { RINGS = 16 };
    struct pair p;
    struct end a[RINGS] = {0}, b[RINGS] = {0};
    pair_open(&p, &weft__transport_shm, 0);
    for (unsigned i = 0; i < RINGS; i++) {
        CHECK_EQ(pair_dial(&p, &a[i], &b[i]), WEFT_OK);
        CHECK(pair_until(&p, a[i].n_open == 1 && b[i].n_open == 1));
    }
    for (unsigned i = 0; i < RINGS; i++)
        for (unsigned n = 0; n < 2 * SHM_STREAK; n++) {
            CHECK_EQ(b[i].lane->ops->am_short(b[i].lane, 1, n, "", 0), WEFT_OK);
            pair_turn(&p);
        }
    CHECK_EQ(dialer(&p)->rings.n_attended, dialer(&p)->wakeup.fenced ? RINGS : 0);
    a[0].lane->ops->close(a[0].lane, true);
    for (int i = 0; i < 10; i++) weft__reactor_progress(p.reactor_a, 0);
    CHECK_EQ(a[0].n_closed, 0);
    CHECK_EQ(dialer(&p)->rings.n, RINGS - 1);
    CHECK_EQ(dialer(&p)->rings.n_attended, dialer(&p)->wakeup.fenced ? RINGS - 1 : 0);
    CHECK_EQ(dialer(&p)->rings.n_active, dialer(&p)->rings.n_attended);
    CHECK(pair_until(&p, a[0].n_closed == 1));
    for (unsigned i = 0; i < RINGS; i++) {
        pair_end_close(&a[i], true);
        pair_end_close(&b[i], true);
    }
    pair_close(&p);
}
