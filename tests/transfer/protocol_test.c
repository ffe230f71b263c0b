/* Which way messages go: what weft-info prints is what the library does. */
#include <tests/support/worker_pair.h>

#include <endpoints/protocol/calibrate.h>
#include <endpoints/protocol/protocol.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct inbox {
    int n, asked, fetched;
    char *buf;
};

static void on_fetched(weft_status_t status, void *arg) {
    CHECK_EQ(status, WEFT_OK);
    ((struct inbox *)arg)->fetched++;
}

static void on_message(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct inbox *in = arg;
    in->n++;
    if (am->data || am->len == 0) return;
    in->asked++;
    weft_iov_t iov = {in->buf, am->len};
    weft_status_t st = weft_am_recv(am, &iov, 1, &(weft_op_t){.done = on_fetched, .arg = in});
    if (st == WEFT_OK) on_fetched(st, in);
}

/* Sums up what the counters of both ends say of the last message. */
static const char *way_of(struct two *t, const uint64_t before[4]) {
    if (weft_worker_count(t->a, "protocol.bcopy") > before[0]) return "eager bcopy";
    if (weft_worker_count(t->a, "protocol.zcopy") > before[1]) return "eager zcopy";
    if (weft_worker_count(two_b(t), "protocol.get") > before[2]) return "rendezvous get";
    if (weft_worker_count(two_b(t), "protocol.pieces") > before[3]) return "rendezvous pieces";
    return "short";
}

static void look(struct two *t, uint64_t count[4]) {
    count[0] = weft_worker_count(t->a, "protocol.bcopy");
    count[1] = weft_worker_count(t->a, "protocol.zcopy");
    count[2] = weft_worker_count(two_b(t), "protocol.get");
    count[3] = weft_worker_count(two_b(t), "protocol.pieces");
}

static const char *way_taken(struct two *t, struct inbox *in, const char *from, size_t len) {
    uint64_t before[4];
    int n = in->n;
    look(t, before);
    weft_iov_t iov = {(void *)(uintptr_t)from, len};
    weft_status_t st = weft_am_send(t->ep, 5, NULL, 0, &iov, 1, NULL);
    CHECK(st == WEFT_OK || st == WEFT_IN_PROGRESS);
    UNTIL(t, in->n == n + 1 && in->fetched == in->asked);
    CHECK_EQ(weft_ep_flush(t->ep, NULL) >= 0, 1);
    for (int i = 0; i < 50; i++) two_turn(t);
    return way_of(t, before);
}

static size_t transport_index(weft_worker_t *worker, const char *name) {
    weft_transport_info_t info;
    size_t i = 0;
    while (weft_worker_transport(worker, i, &info) == WEFT_OK && strcmp(info.name, name) != 0) i++;
    return i;
}

static void compare(const char *transport, const weft_setting_t *settings, size_t n_settings) {
    struct two t;
    struct inbox in = {.buf = malloc(2 << 20)};
    char *from = calloc(1, 2 << 20);
    weft_protocol_info_t p;
    size_t next = 0, rows = 0;
    two_workers(&t, transport, settings, n_settings);
    two_dial(&t);
    UNTIL(&t, t.ready == 1);
    CHECK_EQ(weft_am_handler_set(two_b(&t), 5, on_message, &in), 0);
    size_t index = transport_index(t.a, transport);
    for (; weft_worker_protocol(t.a, index, rows, &p) == WEFT_OK && !p.exposed; rows++) {
        CHECK_EQ(p.from, next);
        CHECK(p.to >= p.from && p.to_ns >= p.from_ns && p.bandwidth > 0);
        CHECK(strcmp(way_taken(&t, &in, from, p.from), p.name) == 0);
        if (p.to != SIZE_MAX) CHECK(strcmp(way_taken(&t, &in, from, p.to), p.name) == 0);
        next = p.to + 1;
    }
    CHECK(rows >= 2 && next == 0); /* the last has no end */
    two_down(&t);
    free(from);
    free(in.buf);
}

TEST_EACH(messages_go_the_way_that_is_printed) {
    static const weft_setting_t settings[] = {{"rendezvous.threshold", "auto"}};
    compare(transport, settings, 1);
}

TEST_EACH(a_threshold_of_the_users_wins) {
    static const weft_setting_t settings[] = {{"rendezvous.threshold", "12345"}};
    compare(transport, settings, 1);
}

TEST(a_read_from_the_peers_memory_is_printed_where_it_is_done) {
    static const weft_setting_t settings[] = {{"rendezvous.threshold", "auto"}, {"shm.copy", "vm"}};
    compare("shm", settings, 2);
}

/* ---- the model ------------------------------------------------------------------------------- */

static struct iface_attr some_attr(void) {
    return (struct iface_attr){.caps = CAP_AM_SHORT | CAP_AM_BCOPY | CAP_AM_ZCOPY,
                               .max_short = 48,
                               .max_bcopy = 8192,
                               .max_zcopy = 256 << 10,
                               .latency_ns = 1000,
                               .bandwidth = 10e9,
                               .overhead_ns = 100};
}

static struct calibration machine(uint64_t copy) {
    struct calibration c = {.value = {copy, copy, copy, copy, 200000, 8000000000}};
    return c;
}

TEST(a_long_way_makes_more_eager) {
    struct iface_attr near = some_attr(), far = some_attr();
    struct calibration c = machine(10000000000);
    near.caps |= CAP_PLACE;
    far.caps |= CAP_PLACE;
    far.latency_ns = 5000;
    size_t a = weft__protocol_limits(&near, &c, SETTING_AUTO).eager,
           b = weft__protocol_limits(&far, &c, SETTING_AUTO).eager;
    CHECK(a < b);
    CHECK(b <= far.max_zcopy);
}

/* As tcp is measured: what it brings lands, so nothing is saved by an offer but what comes
 * before its receive. */
TEST(what_places_is_not_offered_for_the_sake_of_a_copy_that_no_one_makes) {
    struct iface_attr attr = some_attr();
    struct calibration c = machine(15000000000);
    attr.latency_ns = 2940;
    attr.overhead_ns = 290;
    attr.bandwidth = 9e9;
    CHECK(weft__protocol_limits(&attr, &c, SETTING_AUTO).eager < attr.max_zcopy);
    attr.caps |= CAP_PLACE;
    CHECK_EQ(weft__protocol_limits(&attr, &c, SETTING_AUTO).eager, attr.max_zcopy);
}

TEST(slow_copies_make_less_eager_and_less_packed) {
    struct iface_attr attr = some_attr();
    struct calibration fast = machine(50000000000), slow = machine(1000000000);
    attr.caps |= CAP_PLACE;
    struct protocol_limits a = weft__protocol_limits(&attr, &fast, SETTING_AUTO),
                           b = weft__protocol_limits(&attr, &slow, SETTING_AUTO);
    CHECK(b.eager < a.eager);
    CHECK(b.copy < a.copy);
}

TEST(what_is_chosen_is_what_costs_least) {
    struct iface_attr attr = some_attr();
    struct calibration c = machine(20000000000);
    struct protocol_limits limits = weft__protocol_limits(&attr, &c, SETTING_AUTO);
    for (size_t len = 9000; len < 1 << 20; len += 977) {
        double chosen =
            weft__protocol_ns(weft__protocol_way(len, &attr, &limits), len, &attr, &c, &limits);
        for (enum protocol_way way = WAY_BCOPY; way < N_PROTOCOL_WAYS; way++)
            CHECK(chosen <= weft__protocol_ns(way, len, &attr, &c, &limits) * 1.0001);
    }
}

/* ---- the file -------------------------------------------------------------------------------- */

static const char key[] = "cpu some\nkernel 6\nversion 1\n";

TEST(what_was_written_is_read) {
    char text[CALIBRATION_FILE_MAX];
    struct calibration c = machine(123456789), got = {.origin = CALIBRATION_BUILT_IN};
    size_t len = weft__calibration_write(&c, key, text);
    CHECK(weft__calibration_read(text, len, key, &got));
    CHECK(memcmp(c.value, got.value, sizeof c.value) == 0);
    CHECK_EQ(got.origin, CALIBRATION_FILE);
    CHECK(!weft__calibration_read(text, len, "cpu other\nkernel 6\nversion 1\n", &got));
}

TEST(a_broken_file_changes_nothing) {
    char text[CALIBRATION_FILE_MAX], bad[CALIBRATION_FILE_MAX];
    struct calibration c = machine(5000000000), got, zero = {.origin = CALIBRATION_BUILT_IN};
    size_t len = weft__calibration_write(&c, key, text);
    for (size_t cut = 0; cut < len; cut++) {
        got = zero;
        CHECK(!weft__calibration_read(text, cut, key, &got));
        CHECK(memcmp(got.value, zero.value, sizeof got.value) == 0 && got.origin == zero.origin);
    }
    for (size_t at = 0; at < len; at++) { /* every byte, every value */
        for (unsigned value = 0; value < 256; value++) {
            memcpy(bad, text, len);
            bad[at] = (char)value;
            got = zero;
            if (!weft__calibration_read(bad, len, key, &got)) continue;
            for (unsigned i = 0; i < CALIBRATE_VM_READ; i++) CHECK(got.value[i] > 0);
        }
    }
    for (unsigned i = 0; i < 1 << 24; i += 7) { /* three bytes of anything */
        char three[3] = {(char)i, (char)(i >> 8), (char)(i >> 16)};
        CHECK(!weft__calibration_read(three, 3, key, &got));
    }
}

TEST(figures_that_contradict_each_other_are_not_read) {
    char text[CALIBRATION_FILE_MAX];
    struct calibration slow_copies = machine(20000000000), slow_shm = slow_copies, got;
    slow_copies.value[CALIBRATE_COPY_64K] = 370000000;
    slow_shm.value[CALIBRATE_SHM_BANDWIDTH] = 228000000;
    slow_shm.value[CALIBRATE_TCP_BANDWIDTH] = 4700000000;
    size_t len = weft__calibration_write(&slow_copies, key, text);
    CHECK(!weft__calibration_read(text, len, key, &got));
    len = weft__calibration_write(&slow_shm, key, text);
    CHECK(!weft__calibration_read(text, len, key, &got));
    slow_shm.value[CALIBRATE_SHM_BANDWIDTH] = 4800000000;
    len = weft__calibration_write(&slow_shm, key, text);
    CHECK(weft__calibration_read(text, len, key, &got));
}

static void calibrate(const char *setting, weft_calibration_info_t *info_p) {
    weft_setting_t settings[] = {{"calibration", setting}};
    weft_context_t *context;
    weft_worker_t *worker;
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 1},
                                 &context),
             0);
    CHECK_EQ(weft_worker_create(context, &(weft_worker_params_t){.transports = "self"}, &worker),
             0);
    CHECK_EQ(weft_worker_calibration(worker, 0, info_p), 0);
    weft_worker_destroy(worker);
    weft_context_destroy(context);
}

TEST(what_was_measured_is_kept_and_read_again) {
    char path[64];
    weft_calibration_info_t first, second;
    snprintf(path, sizeof path, "/tmp/weft-calibration-%d", (int)getpid());
    unlink(path);
    calibrate(path, &first);
    CHECK(strcmp(first.origin, "measured") == 0);
    calibrate(path, &second);
    CHECK(strcmp(second.origin, "file") == 0);
    CHECK(first.value == second.value);

    CHECK_EQ(chmod(path, 0666), 0); /* others may write it: not trusted */
    calibrate(path, &second);
    CHECK(strcmp(second.origin, "measured") == 0);
    unlink(path);
}

TEST(a_place_that_cannot_be_written_is_no_error) {
    weft_calibration_info_t info;
    calibrate("/proc/no/such/place", &info);
    CHECK(strcmp(info.origin, "measured") == 0);
    calibrate("off", &info);
    CHECK(strcmp(info.origin, "built in") == 0);
}

/* ---- what transports cost -------------------------------------------------------------------- */

/* In place of the system's: how many of the network there were, and whether there are any. */
static int sockets;
static bool no_sockets;
int socket(int domain, int type, int protocol) {
    sockets += domain == AF_INET;
    errno = EMFILE;
    return no_sockets && domain == AF_INET ? -1 : (int)syscall(SYS_socket, domain, type, protocol);
}

struct costs {
    double shm_bandwidth, tcp_latency, tcp_overhead, tcp_bandwidth; /* as calibrated */
    weft_transport_info_t shm, tcp;                                 /* as the transports say */
    int sockets;
};

static double calibrated(weft_worker_t *worker, const char *name) {
    weft_calibration_info_t info;
    for (size_t i = 0; weft_worker_calibration(worker, i, &info) == WEFT_OK; i++)
        if (strcmp(info.name, name) == 0) return info.value;
    return -1;
}

static struct costs costs_with(const char *transports, const char *calibration) {
    weft_setting_t settings[] = {{"calibration", calibration}};
    weft_context_t *context;
    weft_worker_t *worker;
    struct costs c = {0};
    sockets = 0;
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = settings, .n_settings = 1},
                                 &context),
             0);
    CHECK_EQ(
        weft_worker_create(context, &(weft_worker_params_t){.transports = transports}, &worker), 0);
    c.sockets = sockets;
    c.shm_bandwidth = calibrated(worker, "shm.bandwidth");
    c.tcp_latency = calibrated(worker, "tcp.latency") / 1000;
    c.tcp_overhead = calibrated(worker, "tcp.overhead") / 1000;
    c.tcp_bandwidth = calibrated(worker, "tcp.bandwidth");
    (void)weft_worker_transport(worker, transport_index(worker, "shm"), &c.shm);
    (void)weft_worker_transport(worker, transport_index(worker, "tcp"), &c.tcp);
    weft_worker_destroy(worker);
    weft_context_destroy(context);
    return c;
}

static void new_place(char path[64]) {
    snprintf(path, 64, "/tmp/weft-calibration-%d", (int)getpid());
    unlink(path);
}

static bool has_costs(const weft_transport_info_t *t, double latency, double overhead,
                      double bandwidth) {
    return t->latency_ns == latency && t->overhead_ns == overhead && t->bandwidth == bandwidth;
}

TEST(a_transport_is_measured_when_it_is_first_opened_and_reports_what_was_found) {
    char path[64];
    struct costs with, before, none = costs_with("self", "off");
    new_place(path);
    with = costs_with("self", path);
    CHECK(with.shm_bandwidth == 0 && with.tcp_bandwidth == 0 && with.sockets == 0);
    with = costs_with("shm,self", path);
    CHECK(with.shm_bandwidth > 1e8 && with.tcp_bandwidth == 0 && with.sockets == 0);
    CHECK(with.shm.bandwidth == with.shm_bandwidth);
    before = with;
    with = costs_with("shm,tcp", path);
    CHECK(with.shm_bandwidth == before.shm_bandwidth && with.sockets > 0);
    CHECK(with.tcp_bandwidth > 1e7 && with.tcp_latency > 100 && with.tcp_overhead > 10);
    CHECK(has_costs(&with.tcp, with.tcp_latency, with.tcp_overhead, with.tcp_bandwidth));
    CHECK(none.shm_bandwidth == 0 && none.tcp_bandwidth == 0);
    unlink(path);
}

TEST(what_is_known_of_a_transport_is_not_measured_again) {
    char path[64];
    new_place(path);
    struct costs off = costs_with("shm,tcp", "off"), first = costs_with("shm,tcp", path);
    struct costs again = costs_with("shm,tcp", path);
    CHECK(first.sockets > off.sockets && again.sockets == off.sockets);
    CHECK(first.shm_bandwidth == again.shm_bandwidth);
    CHECK(has_costs(&again.tcp, first.tcp_latency, first.tcp_overhead, first.tcp_bandwidth));
    unlink(path);
}

TEST(where_nothing_may_be_or_can_be_measured_a_transport_reports_what_is_built_in) {
    char path[64];
    new_place(path);
    struct costs off = costs_with("shm,tcp", "off");
    no_sockets = true;
    struct costs cannot = costs_with("shm,tcp", path);
    no_sockets = false;
    CHECK(off.tcp.latency_ns > 0 && off.tcp.overhead_ns > 0 && off.tcp.bandwidth > 0 &&
          off.shm.bandwidth > 0);
    CHECK(off.tcp_bandwidth == 0 && off.shm_bandwidth == 0);
    CHECK(cannot.tcp_bandwidth == 0 && cannot.shm_bandwidth > 0);
    CHECK(has_costs(&cannot.tcp, off.tcp.latency_ns, off.tcp.overhead_ns, off.tcp.bandwidth));
    CHECK(costs_with("shm,tcp", path).tcp_bandwidth > 0); /* the next one can */
    unlink(path);
}

/* As of a first process that was disturbed while it measured shared memory. */
TEST(no_file_makes_loopback_cheaper_than_shared_memory_for_ever) {
    char path[64], text[CALIBRATION_FILE_MAX + 1];
    new_place(path);
    (void)costs_with("shm,tcp", path);
    FILE *file = fopen(path, "r+");
    size_t len = fread(text, 1, CALIBRATION_FILE_MAX, file);
    text[len] = 0;
    char *shm = strstr(text, "shm.bandwidth "), *tcp = strstr(text, "tcp.latency ");
    CHECK(shm && tcp);
    rewind(file);
    CHECK(ftruncate(fileno(file), 0) == 0);
    fprintf(file, "%.*sshm.bandwidth 1000000\n%s", (int)(shm - text), text, tcp);
    fclose(file);
    for (int i = 0; i < 2; i++) {
        struct costs costs = costs_with("shm,tcp", path);
        CHECK(costs.shm.bandwidth >= costs.tcp.bandwidth);
        CHECK(costs.shm_bandwidth != 1000000);
    }
    unlink(path);
}

TEST(a_file_of_an_earlier_version_is_measured_again) {
    char path[64], text[CALIBRATION_FILE_MAX];
    weft_calibration_info_t info;
    new_place(path);
    calibrate(path, &info);
    FILE *file = fopen(path, "r+");
    size_t len = fread(text, 1, sizeof text, file);
    CHECK(len > 20 && memcmp(text, "weft-calibration 2\n", 19) == 0);
    text[17] = '1';
    rewind(file);
    CHECK_EQ(fwrite(text, 1, len, file), len);
    fclose(file);
    calibrate(path, &info);
    CHECK(strcmp(info.origin, "measured") == 0);
    calibrate(path, &info);
    CHECK(strcmp(info.origin, "file") == 0);
    unlink(path);
}

/* A wrong path in "calibration" must not cost the file that is there; one that holds a
 * calibration is renewed. */
TEST(only_a_calibration_is_replaced_by_one) {
    static const char precious[] = "root:x:0:0:root:/root:/bin/bash\n",
                      old[] = "weft-calibration 1\nof long ago\n";
    char path[] = "/tmp/weft_calibration_XXXXXX", text[CALIBRATION_FILE_MAX];
    int fd = mkstemp(path);
    for (int is_ours = 0; is_ours < 2; is_ours++) {
        const char *before = is_ours ? old : precious;
        weft_setting_t where = {"calibration", path};
        weft_context_t *context;
        weft_worker_t *worker;
        CHECK(ftruncate(fd, 0) == 0 &&
              pwrite(fd, before, strlen(before), 0) == (ssize_t)strlen(before));
        CHECK_EQ(weft_context_create(&(weft_context_params_t){.settings = &where, .n_settings = 1},
                                     &context),
                 0);
        CHECK_EQ(weft_worker_create(context, &(weft_worker_params_t){.transports = "shm"}, &worker),
                 0);
        weft_worker_destroy(worker);
        CHECK_EQ(weft_context_destroy(context), 0);
        int now = open(path, O_RDONLY);
        ssize_t n = read(now, text, sizeof text);
        close(now);
        CHECK_EQ(n == (ssize_t)strlen(before) && memcmp(text, before, (size_t)n) == 0, !is_ours);
    }
    close(fd);
    unlink(path);
}
