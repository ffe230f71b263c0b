/* Which rings a worker looks at without being called: those that are busy, and few of the others. */
#include <endpoints/worker.h>
#include <tests/harness.h>
#include <transports/shm/shm.h>
#include <weft/weft.h>

enum { CLIENTS = 24, HELLO = 1, ADDRESS = 512 };

static struct served {
    weft_context_t *context;
    weft_worker_t *server, *clients[CLIENTS];
    weft_ep_t *eps[CLIENTS];
    unsigned n_heard;
} s;

static void on_hello(weft_ep_t *ep, weft_am_t *am, void *arg) {
    s.n_heard++;
}

static const struct shm_iface *server_iface(void) {
    return (const struct shm_iface *)s.server->iface[0];
}

static void turn(void) {
    weft_worker_progress(s.server, 0);
    for (unsigned i = 0; i < CLIENTS; i++) weft_worker_progress(s.clients[i], 0);
}

static void open_all(void) {
    static const weft_setting_t settings[] = {{"transports", "shm"}, {"lanes.switch", "off"}};
    char address[ADDRESS];
    size_t len = sizeof address;
    s = (struct served){0};
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 2}, &s.context),
             WEFT_OK);
    CHECK_EQ(weft_worker_create(s.context, NULL, &s.server), WEFT_OK);
    CHECK_EQ(weft_am_handler_set(s.server, HELLO, on_hello, NULL), WEFT_OK);
    CHECK_EQ(weft_worker_address(s.server, address, &len), WEFT_OK);
    for (unsigned i = 0; i < CLIENTS; i++) {
        CHECK_EQ(weft_worker_create(s.context, NULL, &s.clients[i]), WEFT_OK);
        CHECK(weft_connect_address(s.clients[i], address, len, NULL, &s.eps[i]) >= 0);
    }
}

static void close_all(void) {
    for (unsigned i = 0; i < CLIENTS; i++) weft_worker_destroy(s.clients[i]);
    weft_worker_destroy(s.server);
    weft_context_destroy(s.context);
}

/* Each client says hello so many times. */
static void greet(unsigned times) {
    for (unsigned heard = s.n_heard; times; times--) {
        for (unsigned i = 0; i < CLIENTS; i++) CHECK(weft_am_send(s.eps[i], HELLO, NULL, 0, NULL, 0, NULL) >= 0);
        for (heard += CLIENTS; s.n_heard < heard;) turn();
    }
}

TEST(busy_rings_are_attended_and_few_of_those_that_are_idle) {
    open_all();
    greet(2 * SHM_STREAK);
    CHECK_EQ(server_iface()->n_rings, CLIENTS);
    bool fenced = server_iface()->fenced; /* without, none can be */
    CHECK_EQ(server_iface()->n_attended, fenced ? CLIENTS : 0);
    for (unsigned i = 0; i < 2 * SHM_IDLE; i++) weft_worker_progress(s.server, 0);
    CHECK_EQ(server_iface()->n_attended, fenced ? SHM_IDLERS : 0);
    CHECK_EQ(server_iface()->n_active, server_iface()->n_attended);
    greet(2); /* the others ring */
    greet(2 * SHM_STREAK);
    CHECK_EQ(server_iface()->n_attended, fenced ? CLIENTS : 0);
    close_all();
}
