/* What was sent to the holder of a lease reaches no later holder of the same range. */
#include "shared.h"

static int earlier_calls, later_calls, endpoints, errors;
static weft_status_t error;

static void on_earlier(weft_ep_t *ep, weft_am_t *am, void *arg) {
    earlier_calls++;
}
static void on_later(weft_ep_t *ep, weft_am_t *am, void *arg) {
    CHECK(ep != NULL);
    later_calls++;
}
static void on_endpoint(weft_ep_t *ep, void *arg) {
    endpoints++;
}
static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    errors++;
    error = status;
}

static void begin(struct sharing *s, const char *transport) {
    earlier_calls = later_calls = endpoints = errors = 0;
    share_up(s, transport);
    CHECK_EQ(weft_am_handler_set(s->library[1], 3, on_earlier, NULL), 0);
}

static size_t address_of(weft_worker_t *worker, char address[256]) {
    size_t len = 256;
    CHECK_EQ(weft_worker_address(worker, address, &len), 0);
    return len;
}

static weft_ep_t *dial(struct sharing *s, const char *address, size_t len) {
    weft_ep_t *ep;
    weft_ep_params_t params = {.on_error = on_error};
    CHECK_EQ(weft_connect_address(s->library[0], address, len, &params, &ep), 0);
    return ep;
}

static void send_all(weft_ep_t *ep) {
    weft_iov_t iov = {"x", 1};
    CHECK(weft_am_send(ep, 3, NULL, 0, &iov, 1, NULL) >= 0);
    CHECK(weft_am_send(ep, 3, NULL, 0, &iov, 1, &(weft_op_t){.flags = WEFT_AM_NO_REPLY}) >= 0);
    CHECK(weft_tag_send(ep, 5, &iov, 1, NULL) >= 0);
}

/* The second worker's library ends, and another one takes the same range. */
static void replace(struct sharing *s, bool by_loss) {
    struct tally done = {0};
    weft_lease_t before, after;
    CHECK_EQ(weft_worker_lease(s->library[1], &before), 0);
    if (by_loss) weft_resource_lose(s->resource[1]);
    weft_status_t st = weft_disassociate_resources(s->resource[1], s->library[1], OP(&done));
    UNTIL(&s->two, st == WEFT_OK || done.calls == 1);
    weft_worker_destroy(s->library[1]);
    CHECK_EQ(weft_resource_release(s->resource[1]), 0);

    weft_worker_params_t params = {
        .associated = 1, .on_endpoint = on_endpoint, .on_error = on_error};
    CHECK_EQ(weft_worker_create(s->context, &params, &s->library[1]), 0);
    s->resource[1] = worker_resource(two_b(&s->two));
    CHECK_EQ(weft_am_handler_set(s->library[1], 3, on_later, NULL), 0);
    CHECK_EQ(associate(s->context, WEFT_OBJECT_WORKER, s->resource[1], s->library[1]), 0);
    CHECK_EQ(weft_worker_lease(s->library[1], &after), 0);
    CHECK(before.am_first == after.am_first && before.tag_first == after.tag_first);
}

static void check_nothing_came(struct sharing *s) {
    for (int i = 0; i < 50; i++) two_turn(&s->two);
    CHECK_EQ(later_calls, 0);
    CHECK_EQ(weft_tag_probe(s->library[1], 0, 0, NULL), WEFT_ERR_NOT_FOUND);
}

/* The endpoint is connected, and carried nothing before. */
static void send_and_replace(const char *transport, bool by_loss) {
    struct sharing s;
    char address[256];
    begin(&s, transport);
    size_t len = address_of(s.library[1], address);
    weft_ep_t *ep = dial(&s, address, len);
    UNTIL(&s.two, weft_ep_is_connected(ep, address, len) == WEFT_OK);
    send_all(ep);
    replace(&s, by_loss);
    check_nothing_came(&s);
    UNTIL(&s.two, errors == 1);
    CHECK_EQ(error, WEFT_ERR_PEER_CLOSED);
    CHECK_EQ(weft_am_send(ep, 3, NULL, 0, NULL, 0, NULL), WEFT_ERR_PEER_CLOSED);
    share_down(&s);
}

TEST(what_is_under_way_when_a_lease_ends_reaches_no_later_holder) {
    send_and_replace("shm", false);
    send_and_replace("tcp", false);
}

TEST(what_is_under_way_when_a_lease_is_lost_reaches_no_later_holder) {
    send_and_replace("shm", true);
    send_and_replace("tcp", true);
}

TEST(an_address_names_one_holder_of_a_range) {
    struct sharing s;
    char address[256];
    begin(&s, "shm,tcp");
    size_t len = address_of(s.library[1], address);
    replace(&s, false);
    send_all(dial(&s, address, len));
    UNTIL(&s.two, errors == 1);
    CHECK_EQ(error, WEFT_ERR_DISASSOCIATED);
    check_nothing_came(&s);
    CHECK_EQ(earlier_calls, 0);

    len = address_of(s.library[1], address);
    send_all(dial(&s, address, len));
    UNTIL(&s.two, later_calls == 2);
    UNTIL(&s.two, weft_tag_probe(s.library[1], 5, ~0ull, NULL) == WEFT_OK);
    share_down(&s);
}

TEST(endpoints_that_peers_open_for_a_library_are_notified_to_it_alone) {
    struct sharing s;
    char address[256];
    begin(&s, "shm,tcp");
    replace(&s, false);
    size_t len = address_of(s.library[1], address);
    weft_ep_t *ep = dial(&s, address, len);
    UNTIL(&s.two, endpoints == 1);
    CHECK_EQ(s.two.endpoints, 0);
    CHECK_EQ(weft_ep_close(ep, WEFT_CLOSE_FLUSH, NULL), WEFT_IN_PROGRESS);
    UNTIL(&s.two, errors == 1);
    CHECK_EQ(s.two.back_errors, 0);
    share_down(&s);
}

/* It dialed the program's worker, not a library: the range says for whom the endpoint is. */
TEST(a_range_names_its_holder_of_the_moment) {
    struct sharing s;
    char address[256];
    begin(&s, "shm,tcp");
    size_t len = address_of(two_b(&s.two), address);
    weft_ep_t *ep = dial(&s, address, len);
    UNTIL(&s.two, weft_ep_is_connected(ep, address, len) == WEFT_OK);
    send_all(ep);
    replace(&s, false);
    check_nothing_came(&s);
    send_all(dial(&s, address, len));
    UNTIL(&s.two, later_calls == 2);
    share_down(&s);
}
