/* Rails to the several addresses of a peer: on loopback, and over pairs of interfaces between
 * two network namespaces. */
#define _GNU_SOURCE
#include <tests/support/nets.h>
#include <tests/support/rails.h>

#include <transports/tcp/tcp.h>

/* "10.0.0.1": where the lane's socket ends, here or there. */
static const char *end_of(struct link *link, bool here) {
    static char text[TCP_NAME_ROOM];
    union tcp_sockaddr at = {0};
    socklen_t len = sizeof at;
    int fd = tcp_lane(link->lane)->watch.fd;
    CHECK_EQ(here ? getsockname(fd, &at.any, &len) : getpeername(fd, &at.any, &len), 0);
    weft__tcp_sockaddr_text(&at, text, sizeof text);
    *strrchr(text, ':') = 0;
    return text;
}

static void goes(struct link *link, const char *from, const char *to) {
    CHECK(strcmp(end_of(link, true), from) == 0);
    CHECK(strcmp(end_of(link, false), to) == 0);
}

TEST(a_rail_dials_the_place_of_its_number_and_leaves_by_ours) {
    const weft_setting_t places = {"tcp.rails", "127.0.0.2, 127.0.0.3"};
    struct run r;
    open_run(&r, "tcp", "4", &places);
    raise_rails(&r, 3);
    goes(link_of(&r, false), "127.0.0.1", "127.0.0.1");
    goes(rail_of(r.two.a, 0), "127.0.0.2", "127.0.0.2");
    goes(rail_of(r.two.a, 1), "127.0.0.3", "127.0.0.3");
    goes(rail_of(r.two.a, 2), "127.0.0.1", "127.0.0.1"); /* there is no fourth */
    transfer(&r, false, LARGE);
    transfer(&r, true, LARGE);
    CHECK(weft_worker_count(r.two.a, "rail.bytes_out") > 0);
    close_run(&r);
}

TEST(without_further_places_rails_dial_the_first) {
    struct run r;
    open_run(&r, "tcp", "3", NULL);
    raise_rails(&r, 2);
    goes(rail_of(r.two.a, 0), "127.0.0.1", "127.0.0.1");
    goes(rail_of(r.two.a, 1), "127.0.0.1", "127.0.0.1");
    close_run(&r);
}

static char notified[8][1024];
static unsigned n_notified;
static void notify(weft_log_level_t level, const char *room, const char *line, void *arg) {
    if (n_notified < 8) snprintf(notified[n_notified], sizeof notified[0], "%s", line);
    n_notified++;
}

TEST(why_a_place_is_left_out_is_logged_in_one_whole_line) {
    const weft_setting_t places = {"tcp.rails", "192.0.2.1,no.such"};
    const weft_context_params_t params = {.settings = &places, .n_settings = 1, .log = notify};
    weft_context_t *context;
    weft_worker_t *worker;
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_context_create(&params, &context), 0);
    CHECK_EQ(weft_worker_create(context, &(weft_worker_params_t){.transports = "tcp"}, &worker), 0);
    CHECK_EQ(weft_worker_address(worker, address, &len), 0);
    CHECK_EQ(n_notified, 2);
    for (unsigned i = 0; i < 2; i++) CHECK(!strchr(notified[i], '\n'));
    CHECK(strstr(notified[0], "place 1") &&
          strstr(notified[0], "beyond loopback tcp needs a cluster key"));
    CHECK(strstr(notified[0], weft_status_hint(WEFT_ERR_INSECURE)));
    CHECK(strstr(notified[1], "place 2") && strstr(notified[1], "no.such"));
    CHECK(strstr(notified[1], weft_status_hint(WEFT_ERR_ADDRESS)));
    weft_worker_destroy(worker);
    CHECK_EQ(weft_context_destroy(context), 0);
}

/* 192.0.2.1 has no host (RFC 5737), and "no.such" is no name: both are left out, and logged. */
TEST(places_that_are_not_there_are_left_out) {
    const weft_setting_t places = {"tcp.rails", "192.0.2.1,no.such,127.0.0.2"};
    struct run r;
    open_run(&r, "tcp", "2", &places);
    raise_rails(&r, 1);
    CHECK(strcmp(end_of(rail_of(r.two.a, 0), false), "127.0.0.2") == 0);
    transfer(&r, false, LARGE);
    close_run(&r);
}

TEST(a_place_that_stopped_listening_is_gone_round) {
    const weft_setting_t places = {"tcp.rails", "127.0.0.2"};
    struct run r;
    open_run(&r, "tcp", "2", &places);
    struct iface *b = weft__link_iface(link_of(&r, true));
    shutdown(((struct tcp_iface *)b)->own[1]->fd, SHUT_RDWR);
    raise_rails(&r, 1);
    CHECK(strcmp(end_of(rail_of(r.two.a, 0), false), "127.0.0.1") == 0);
    transfer(&r, false, LARGE);
    close_run(&r);
}

/* ---- two network namespaces with two pairs of interfaces between them */

static uint64_t bytes_out(const char *name) {
    char line[512];
    unsigned long long n = 0;
    FILE *f = fopen("/proc/net/dev", "re");
    while (f && fgets(line, sizeof line, f)) {
        char *at = strstr(line, name);
        if (at) sscanf(at + strlen(name) + 1, "%*u %*u %*u %*u %*u %*u %*u %*u %llu", &n);
    }
    if (f) fclose(f);
    return n;
}

/* b lives over there, where it also listens; whatever a opens from now on is opened here. */
static void over_two_nets(int a_ns, int b_ns) {
    const weft_setting_t settings[] = {{"link.rails", "2"},
                                       {"tcp.insecure", "yes"},
                                       /* interfaces that are new lose a first packet */
                                       {"connect.timeout", "60s"},
                                       {"tcp.bind", "10.77.1.2"},
                                       {"tcp.rails", "weft_b2"}};
    struct run r = {.out = malloc(LARGE), .in = malloc(LARGE)};
    weft_context_t *there;
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(setns(a_ns, CLONE_NEWNET), 0);
    net_add_pair("weft_a1", "weft_b1", b_ns);
    net_add_pair("weft_a2", "weft_b2", b_ns);
    net_set_up("weft_a1", "10.77.1.1");
    net_set_up("weft_a2", "10.77.2.1");
    CHECK_EQ(setns(b_ns, CLONE_NEWNET), 0);
    net_set_up("weft_b1", "10.77.1.2");
    net_set_up("weft_b2", "10.77.2.2");
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 5},
                                 &there),
             0);
    weft_worker_params_t params = {.transports = "tcp",
                                   .on_endpoint = two_on_endpoint,
                                   .on_error = two_on_back_error,
                                   .arg = &r.two};
    CHECK_EQ(weft_worker_create(there, &params, &r.two.b), 0);
    CHECK_EQ(weft_worker_address(r.two.b, address, &len), 0);

    CHECK_EQ(setns(a_ns, CLONE_NEWNET), 0);
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 3},
                                 &r.two.context),
             0);
    CHECK_EQ(weft_worker_create(r.two.context, &params, &r.two.a), 0);
    weft_ep_params_t ep = {.on_ready = two_on_ready, .on_error = two_on_error, .arg = &r.two};
    CHECK_EQ(weft_connect_address(r.two.a, address, len, &ep, &r.two.ep), 0);
    UNTIL(&r.two, r.two.ready && r.two.back);
    for (size_t i = 0; i < LARGE; i++) r.out[i] = (char)(i * 7 + (i >> 11));
    raise_rails(&r, 1);
    goes(link_of(&r, false), "10.77.1.1", "10.77.1.2");
    goes(rail_of(r.two.a, 0), "10.77.2.1", "10.77.2.2");
    uint64_t before = bytes_out("weft_a2");
    for (int i = 0; i < 4; i++) transfer(&r, false, LARGE);
    uint64_t share = weft_worker_count(r.two.a, "rail.bytes_out");
    CHECK(share > LARGE / 4);
    CHECK(bytes_out("weft_a2") - before >= share); /* they did go by that wire */
    transfer(&r, true, LARGE);
    close_run(&r);
    CHECK_EQ(weft_context_destroy(there), 0);
}

static void in_two_nets(void *unused) {
    int a = net_here();
    if (unshare(CLONE_NEWNET) < 0) _exit(NET_NONE);
    over_two_nets(a, net_here());
}
TEST(rails_go_by_an_interface_each) {
    if (!net_apart(true, in_two_nets, NULL)) SKIP("no network namespaces here");
}
