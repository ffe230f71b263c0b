/* A peer that says about lanes what it likes, and one that knows nothing of them, against a
 * worker that negotiates. */
#include <tests/support/raw_peer.h>

#include <endpoints/lanes/negotiate_local.h>

static struct raw raw;

static const weft_setting_t on[] = {{"lanes.switch", "on"},
                                    {"lanes.tick", "2ms"},
                                    {"lanes.min_rate", "64k"},
                                    {"lanes.switches", "100000"}};

static void handshake(uint16_t flags) {
    struct wire_message m;
    raw.n_received = 0;
    weft__wire_hello(
        &m, (struct wire_hello){.version = WIRE_VERSION, .flags = flags, .worker = RAW_ID});
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, received(&raw, WIRE_HELLO));
}

/* The worker's answer to the last question, or 0. */
static enum lane_kind answered(void) {
    unsigned n = raw.n_received < RECEIVED ? raw.n_received : RECEIVED;
    for (unsigned i = n; i-- > 0;)
        if (raw.received[i].id == WIRE_LANE)
            return weft__lane_kind(raw.received[i].bytes, raw.received[i].len);
    return 0;
}

static void ask(uint32_t epoch, const char *name, const void *address, uint8_t len) {
    struct wire_message m;
    weft__lane_ask(&m, &(struct lane_ask){.epoch = epoch,
                                          .score = UINT64_MAX,
                                          .name = name,
                                          .name_len = (uint8_t)strlen(name),
                                          .address = address,
                                          .len = len});
    (void)send_message(&raw, &m);
}

/* Of the raw peer's parity: it has the smaller id, or not. */
static uint32_t own_epoch(unsigned nth) {
    bool odd = RAW_ID < raw.t.a->id;
    return 2 * nth + (odd ? 1 : 2);
}
static uint32_t held(void) {
    return raw.t.a->lanes->held_in_all;
}

/* ---- an older peer */

/* Is a peer with this HELLO asked, when much is sent to it? */
static bool is_asked(uint16_t flags) {
    char bytes[64] = "";
    raw_open(&raw, "shm", on, sizeof on / sizeof *on);
    raw_dial(&raw, "shm");
    handshake(flags);
    open_half(&raw);
    weft_ep_t *ep = raw.victim;
    uint64_t sent = 0;
    for (double end = test_now() + test_timeout(30);
         test_now() < end && sent < 20000 && !answered(); raw_turn(&raw))
        sent += weft_am_send(ep, 1, NULL, 0, &(weft_iov_t){bytes, sizeof bytes}, 1, NULL) >= 0;
    enum lane_kind asked = answered();
    CHECK(asked == LANE_ASK || (!asked && sent == 20000));
    CHECK_EQ(raw.down, 0);
    raw_close(&raw);
    return asked == LANE_ASK;
}

TEST(a_peer_that_knows_nothing_of_lanes_is_never_asked) {
    CHECK(is_asked(WIRE_HELLO_LANES));
    CHECK(!is_asked(0));
}

TEST(a_peer_that_is_not_asked_sends_nothing_about_lanes) {
    static const weft_setting_t off[] = {{"lanes.switch", "off"}};
    struct wire_message m;
    raw_open(&raw, "shm", off, 1);
    raw_dial(&raw, "shm");
    handshake(WIRE_HELLO_LANES);
    weft__lane_one(&m, LANE_CANCEL, 1);
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, raw.down == 1);
    raw_close(&raw);
}

/* ---- a hostile one */

static uint8_t raw_address[LANE_ADDRESS_MAX];
static uint8_t raw_address_len(void) {
    size_t len = sizeof raw_address;
    CHECK_EQ(raw.iface->ops->address(raw.iface, raw_address, &len), 0);
    return (uint8_t)len;
}

/* Where the worker's side of the link then is. */
enum where { AT_BASE, EXPECTS, DENIED, CANCELLED };
static const char *const where_name[] = {"BASE", "EXPECT", "denied", "cancelled"};

static bool begin(enum where where) {
    struct wire_message m;
    raw_dial(&raw, "shm");
    handshake(WIRE_HELLO_LANES);
    if (where == AT_BASE) return true;
    uint8_t len = raw_address_len();
    ask(own_epoch(0), where == DENIED ? "no such" : "shm", raw_address, len);
    RAW_UNTIL(&raw, answered() != 0);
    if (answered() != (where == DENIED ? LANE_DENY : LANE_GRANT)) return false;
    CHECK_EQ(held(), where != DENIED);
    if (where != CANCELLED) return true;
    weft__lane_one(&m, LANE_CANCEL, own_epoch(0));
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, held() == 0);
    return true;
}

static void word(struct wire_message *m, enum lane_kind kind, uint32_t epoch) {
    uint8_t len = raw_address_len();
    struct lane_ask question = {.epoch = epoch,
                                .name = "shm",
                                .name_len = 3,
                                .address = raw_address,
                                .len = len,
                                .score = 1};
    weft__lane_one(m, kind, epoch);
    if (kind == LANE_ASK) weft__lane_ask(m, &question);
    if (kind == LANE_GRANT)
        weft__lane_grant(m, &(struct lane_grant){
                                .epoch = epoch, .number = 7, .address = raw_address, .len = len});
    if (kind == LANE_DENY)
        weft__lane_deny(m, (struct lane_deny){.epoch = epoch, .why = 1, .wait_ms = UINT32_MAX});
    if (kind == LANE_SCORE)
        weft__lane_score(m, (struct lane_score){.epoch = epoch, .score = UINT64_MAX});
    if (kind == LANE_END) weft__lane_end(m, (struct lane_end){.epoch = epoch, .sent = UINT64_MAX});
}

/* Whatever it says, its own link is all that it may lose; no place stays with a link that is
 * gone. */
static void every_word_from(enum where where) {
    static const uint32_t epochs[] = {1, 2, 3, 4, 1 << 20, UINT32_MAX, UINT32_MAX - 1};
    struct wire_message m;
    raw_open(&raw, "shm", on, sizeof on / sizeof *on);
    for (unsigned kind = 0; kind <= LANE_DRAINED + 1; kind++) {
        if (kind > LANE_SCORE && kind < LANE_END) continue;
        for (size_t i = 0; i < sizeof epochs / sizeof *epochs; i++) {
            bool there = begin(where);
            if (!there) printf("  %s is not reached\n", where_name[where]);
            CHECK(there);
            word(&m, (enum lane_kind)kind, epochs[i]);
            (void)send_message(&raw, &m);
            m.len = (uint16_t)(m.len - 1); /* and cut short */
            (void)send_message(&raw, &m);
            RAW_UNTIL(&raw, raw.down == 1); /* at the latest by that */
            raw_hang_up(&raw);
            RAW_UNTIL(&raw, held() == 0);
        }
    }
    raw_close(&raw);
}

TEST(every_word_before_any_question) {
    every_word_from(AT_BASE);
}
TEST(every_word_after_a_denial) {
    every_word_from(DENIED);
}
TEST(every_word_after_a_grant) {
    every_word_from(EXPECTS);
}
TEST(every_word_after_a_grant_that_was_cancelled) {
    every_word_from(CANCELLED);
}

/* Its kind and its epoch are those of another word. */
TEST(a_score_without_a_score_is_a_violation) {
    struct wire_message m;
    raw_open(&raw, "shm", on, sizeof on / sizeof *on);
    CHECK(begin(CANCELLED));
    weft__lane_one(&m, LANE_SCORE, own_epoch(0));
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, raw.down == 1);
    raw_close(&raw);
}

TEST(who_has_no_rings_denies_one_for_good) {
    static const weft_setting_t none[] = {{"lanes.switch", "on"}, {"shm.rings", "0"}};
    struct lane_deny deny;
    raw_open(&raw, "shm", none, 2);
    raw_dial(&raw, "shm");
    handshake(WIRE_HELLO_LANES);
    ask(own_epoch(0), "shm", raw_address, raw_address_len());
    RAW_UNTIL(&raw, answered() == LANE_DENY);
    const struct received *last = &raw.received[(raw.n_received - 1) % RECEIVED];
    CHECK(weft__lane_read_deny(last->bytes, last->len, &deny) &&
          deny.why == LANE_DENIED_UNREACHABLE);
    CHECK_EQ(held(), 0);
    raw_close(&raw);
}

/* Many that ask and never come. */
TEST(places_of_those_that_never_come_are_free_again) {
    static const weft_setting_t quick[] = {
        {"lanes.switch", "on"}, {"lanes.reply_timeout", "20ms"}, {"lanes.backoff", "1ms"}};
    raw_open(&raw, "shm", quick, 3);
    raw_dial(&raw, "shm");
    handshake(WIRE_HELLO_LANES);
    uint8_t len = raw_address_len();
    for (unsigned i = 0; i < 3; i++) {
        raw.n_received = 0;
        ask(own_epoch(i), "shm", raw_address, len);
        RAW_UNTIL(&raw, answered() == LANE_GRANT);
        CHECK_EQ(held(), 1);
        RAW_UNTIL(&raw, answered() == LANE_CANCEL);
        CHECK_EQ(held(), 0);
    }
    CHECK_EQ(raw.down, 0);
    raw_close(&raw);
}

/* The number of the lane that was granted last. */
static uint32_t granted_number(void) {
    uint32_t number = 0;
    for (unsigned i = 0; i < raw.n_received; i++) /* behind the kind and the epoch */
        if (raw.received[i].id == WIRE_LANE) memcpy(&number, raw.received[i].bytes + 5, 4);
    return number;
}

/* Another lane of the raw peer's presents the number, and is answered or lost. */
static struct wire_hello present(struct iface *iface, const char *name, uint16_t flags,
                                 uint32_t number) {
    struct wire_message m;
    struct wire_hello answer = {0};
    raw.iface = iface;
    raw.lane = NULL;
    raw_dial(&raw, name);
    raw.n_received = 0;
    weft__wire_hello(&m, (struct wire_hello){.version = WIRE_VERSION,
                                             .flags = WIRE_HELLO_EXTRA | WIRE_HELLO_LANE | flags,
                                             .listener = number,
                                             .worker = RAW_ID});
    CHECK(send_message(&raw, &m));
    RAW_UNTIL(&raw, received(&raw, WIRE_HELLO) || raw.down);
    for (unsigned i = 0; i < raw.n_received; i++)
        if (raw.received[i].id == WIRE_HELLO)
            CHECK(weft__wire_read_hello(raw.received[i].bytes, raw.received[i].len, &answer));
    return answer;
}

/* The worker gave a slot of shared memory, and perhaps no connection may carry this link. */
TEST(a_lane_that_was_granted_comes_by_its_own_transport) {
    raw_open(&raw, "shm,tcp", on, sizeof on / sizeof *on);
    CHECK(begin(EXPECTS));
    uint32_t number = granted_number();
    CHECK(number);
    struct iface *shm = raw.iface, *tcp = raw_iface(&raw, "tcp");
    struct lane *first = raw.lane;
    CHECK(!present(tcp, "tcp", 0, number).worker);
    raw_hang_up(&raw);
    CHECK_EQ(raw.victim_errors, 0);
    CHECK(present(shm, "shm", 0, number).worker); /* it is still expected */
    raw_hang_up(&raw);
    raw.lane = first;
    raw_hang_up(&raw);
    tcp->ops->close(tcp);
    raw_close(&raw);
}

/* A lane that joins a link belongs to it. It has no ticket, and no log of its own. */
TEST(a_lane_that_was_granted_cannot_ask_to_be_survived) {
    uint8_t address[LANE_ADDRESS_MAX];
    size_t len = sizeof address;
    raw_open(&raw, "shm,tcp", on, sizeof on / sizeof *on);
    raw_dial(&raw, "shm");
    handshake(WIRE_HELLO_LANES);
    struct iface *shm = raw.iface, *tcp = raw_iface(&raw, "tcp");
    struct lane *first = raw.lane;
    CHECK_EQ(tcp->ops->address(tcp, address, &len), 0);
    ask(own_epoch(0), "tcp", address, (uint8_t)len);
    RAW_UNTIL(&raw, answered() == LANE_GRANT);
    uint32_t number = granted_number();
    CHECK(number);
    struct wire_hello answer = present(tcp, "tcp", WIRE_HELLO_SURVIVES, number);
    CHECK(answer.worker && !(answer.flags & WIRE_HELLO_SURVIVES));
    raw_hang_up(&raw);
    raw.iface = shm;
    raw.lane = first;
    raw_hang_up(&raw);
    tcp->ops->close(tcp);
    raw_close(&raw);
}
