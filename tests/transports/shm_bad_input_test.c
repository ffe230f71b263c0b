/* What a peer of ours may do wrong, by mistake or on purpose: only its own lane, or its own
 * attempt, ends. */
#include "pair.h"
#include "shm_send_raw.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <transports/shm/lane/shm.h>

/* ---- decoders -------------------------------------------------------------------------------- */

static struct shm_hello a_hello(void) {
    return (struct shm_hello){.head = {SHM_MAGIC, SHM_VERSION, SHM_HELLO, 0},
                              .worker_id = 9,
                              .lane = 3,
                              .n_slots = 256,
                              .payload_size = 65536,
                              .staging_size = 1 << 20,
                              .n_nodes = 64,
                              .n_blocks = 4};
}

static weft_status_t decode(const void *data, size_t len) {
    enum shm_kind kind;
    struct shm_hello hello;
    weft_status_t status;
    void *exact = malloc(len ? len : 1); /* so that a sanitizer sees one byte too many */
    memcpy(exact, data, len);
    weft_status_t st = weft__shm_decode(exact, len, &kind, &hello, &status);
    free(exact);
    if (st == WEFT_OK && (kind == SHM_HELLO || kind == SHM_WELCOME)) {
        CHECK(hello.n_slots >= 16 && hello.n_slots <= SHM_MAX_SLOTS &&
              (hello.n_slots & (hello.n_slots - 1)) == 0);
        CHECK(hello.payload_size >= 4096 && hello.payload_size <= SHM_MAX_PAYLOAD);
        CHECK(hello.staging_size > 0 && hello.staging_size <= SHM_MAX_STAGING);
    }
    if (st == WEFT_OK && kind == SHM_NO) CHECK(status < 0 && status >= WEFT_STATUS_LAST);
    return st;
}

TEST(a_message_is_read_at_its_own_length_only) {
    struct shm_hello hello = a_hello();
    uint8_t longer[sizeof hello + 1] = {0};
    memcpy(longer, &hello, sizeof hello);
    CHECK_EQ(decode(&hello, sizeof hello), WEFT_OK);
    for (size_t len = 0; len < sizeof hello; len++)
        CHECK_EQ(decode(&hello, len), WEFT_ERR_PROTOCOL);
    CHECK_EQ(decode(longer, sizeof longer), WEFT_ERR_PROTOCOL);
    for (int kind = SHM_NO; kind < 256; kind++) {
        struct shm_no no = {{SHM_MAGIC, SHM_VERSION, (uint8_t)kind, 0}, WEFT_ERR_VERSION};
        for (size_t len = 0; len <= sizeof no; len++) {
            bool fits =
                kind == SHM_NO ? len == sizeof no : kind <= SHM_QUIT && len == sizeof no.head;
            CHECK_EQ(decode(&no, len), fits ? WEFT_OK : WEFT_ERR_PROTOCOL);
        }
    }
}

TEST(every_bit_flip_is_refused_or_harmless) {
    struct shm_hello hello = a_hello();
    for (size_t bit = 0; bit < 8 * sizeof hello; bit++) {
        ((uint8_t *)&hello)[bit / 8] ^= (uint8_t)(1 << bit % 8);
        weft_status_t st = decode(&hello, sizeof hello);
        CHECK(st == WEFT_OK || st == WEFT_ERR_PROTOCOL || st == WEFT_ERR_VERSION);
        if (bit < 32) CHECK_EQ(st, WEFT_ERR_PROTOCOL);
        if (bit >= 32 && bit < 48) CHECK_EQ(st, WEFT_ERR_VERSION);
        ((uint8_t *)&hello)[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

TEST(no_short_input_is_a_message_or_an_address) {
    struct shm_address address;
    for (uint32_t x = 0; x < 1 << 24; x += x < 1 << 16 ? 1 : 251)
        for (size_t len = 0; len <= 3; len++) {
            enum shm_kind kind;
            struct shm_hello hello;
            weft_status_t status;
            CHECK(weft__shm_decode(&x, len, &kind, &hello, &status) == WEFT_ERR_PROTOCOL);
            CHECK(weft__shm_address_decode(&x, len, &address) == WEFT_ERR_ADDRESS);
        }
}

TEST(an_address_is_read_back_and_its_truncations_are_not) {
    struct shm_address a = {.version = SHM_VERSION,
                            .uid = 7,
                            .pid = 8,
                            .worker_id = 9,
                            .directory = "/tmp/x"},
                       b;
    uint8_t buf[96];
    size_t len = weft__shm_address_encode(&a, buf, sizeof buf);
    CHECK(len > 0);
    CHECK_EQ(weft__shm_address_decode(buf, len, &b), WEFT_OK);
    CHECK_EQ(memcmp(&a, &b, sizeof a), 0);
    for (size_t n = 0; n < len; n++) {
        CHECK_EQ(weft__shm_address_encode(&a, buf, n), 0);
        uint8_t *exact = malloc(n ? n : 1);
        memcpy(exact, buf, n);
        CHECK_EQ(weft__shm_address_decode(exact, n, &b), WEFT_ERR_ADDRESS);
        free(exact);
    }
    memset(a.directory, 'x', sizeof a.directory - 1);
    a.directory[0] = '/';
    len = weft__shm_address_encode(&a, buf, sizeof buf);
    CHECK_EQ(len, sizeof a);
    CHECK_EQ(weft__shm_address_decode(buf, len, &b), WEFT_OK);
    buf[len - 1] = 'x'; /* no end */
    CHECK_EQ(weft__shm_address_decode(buf, len, &b), WEFT_ERR_ADDRESS);
    buf[len - 1] = 0;
    buf[40] = 0; /* an end in the middle */
    CHECK_EQ(weft__shm_address_decode(buf, len, &b), WEFT_ERR_ADDRESS);
}

/* ---- at the door ----------------------------------------------------------------------------- */

static int knock(struct pair *p) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path, sizeof to.sun_path, "%s/pair", p->directory);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    CHECK_EQ(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* What the listener answers before it hangs up: the status of its NO, or 0. */
static weft_status_t answer(struct pair *p, int fd) {
    weft_status_t notified = WEFT_OK;
    for (;;) {
        struct shm_no no;
        ssize_t n = -1;
        CHECK(pair_until(p, (n = recv(fd, &no, sizeof no, MSG_DONTWAIT)) >= 0 || errno != EAGAIN));
        if (n <= 0) return notified;
        CHECK_EQ(n, sizeof no);
        CHECK_EQ(no.head.kind, SHM_NO);
        notified = (weft_status_t)no.status;
    }
}

static int sealed(size_t size) {
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    CHECK_EQ(ftruncate(fd, (off_t)size), 0);
    CHECK_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    return fd;
}

/* A door with a good lane behind it, which must go on working. */
static void open_door_for(struct pair *p, const char *connect_timeout) {
    pair_open_with(p, &weft__transport_shm, PAIR_BY_URI,
                   (weft_setting_t[]){{"connect.timeout", connect_timeout}}, 1);
    pair_connect(p);
}
static void open_door(struct pair *p) {
    open_door_for(p, "20s");
}
static void close_door(struct pair *p, int fds_before) {
    size_t before = p->b.n_messages;
    CHECK_EQ(p->a.lane->ops->am_short(p->a.lane, 1, 2, "x", 1), WEFT_OK);
    CHECK(pair_until(p, p->b.n_messages == before + 1));
    CHECK_EQ(p->b.n_open, 1); /* no other peer came in */
    if (fds_before) {
        pair_turns(p, 3);
        CHECK_EQ(n_descriptors(), fds_before);
    }
    pair_close(p);
}

TEST(junk_at_the_door_is_refused_with_the_reason) {
    struct pair p;
    open_door(&p);
    int before = n_descriptors();
    struct shm_hello hello = a_hello();
    for (size_t len = 1; len < sizeof hello; len += 5) {
        int fd = knock(&p);
        send_on(fd, &hello, len, NULL, 0);
        CHECK_EQ(answer(&p, fd), WEFT_ERR_PROTOCOL);
        close(fd);
    }
    struct shm_hello other = hello;
    other.head.version++;
    int fd = knock(&p);
    send_on(fd, &other, sizeof other, NULL, 0);
    CHECK_EQ(answer(&p, fd), WEFT_ERR_VERSION);
    close(fd);
    fd = knock(&p);
    send_on(fd, &(struct shm_head){SHM_MAGIC, SHM_VERSION, SHM_BYE, 0}, sizeof(struct shm_head),
            NULL, 0);
    CHECK_EQ(answer(&p, fd), WEFT_ERR_PROTOCOL);
    close(fd);
    other = hello;
    other.target = 12345;
    int fds[SHM_N_FDS] = {0, 1, 2, 0, 0};
    fd = knock(&p);
    send_on(fd, &other, sizeof other, fds, SHM_N_FDS);
    CHECK_EQ(answer(&p, fd), WEFT_ERR_REFUSED);
    close(fd);
    close_door(&p, before);
}

TEST(memory_that_is_not_what_it_claims_is_not_mapped) {
    struct pair p;
    open_door(&p);
    int before = n_descriptors();
    struct shm_hello hello = a_hello();
    size_t ring = SHM_CONTROL + 256 * RING_LINE + 65536;
    int unsealed = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING),
        null = open("/dev/null", O_RDWR);
    CHECK_EQ(ftruncate(unsealed, (off_t)ring), 0);
    size_t pool = pool_size(64, 4, 1 << 20);
    enum {
        RING = SHM_N_FDS - 1,
        MAPPED = 4,
        SMALL = MAPPED,
        NULLS = SMALL + 1 + MAPPED,
        COUNTS = NULLS + SHM_N_FDS + 1
    };
    int good[SHM_N_FDS] = {sealed(SLOT_TABLE_DOORBELLS_SIZE), sealed(SLOT_TABLE_TX_SLOTS_SIZE),
                           sealed(pool), eventfd(0, 0), sealed(ring)};
    int small[SHM_N_FDS] = {sealed(SLOT_TABLE_DOORBELLS_SIZE - 1),
                            sealed(SLOT_TABLE_TX_SLOTS_SIZE - 1), sealed(pool - 1), -1,
                            sealed(ring - 1)};
    static const int mapped[MAPPED] = {0, 1, 2, RING};
    for (int bad = 0; bad < COUNTS; bad++) {
        int fds[SHM_N_FDS + 1], n = SHM_N_FDS, fd = knock(&p);
        memcpy(fds, good, sizeof good);
        fds[SHM_N_FDS] = null;
        if (bad < SMALL)
            fds[mapped[bad]] = small[mapped[bad]];
        else if (bad == SMALL)
            fds[RING] = unsealed;
        else if (bad < NULLS)
            fds[mapped[bad - SMALL - 1]] = null;
        else
            n = bad - NULLS == SHM_N_FDS ? SHM_N_FDS + 1 : bad - NULLS; /* too few, or too many */
        send_on(fd, &hello, sizeof hello, fds, n);
        CHECK_EQ(answer(&p, fd), WEFT_ERR_PROTOCOL);
        close(fd);
    }
    hello.lane = DOORBELL_LANES;
    int fd = knock(&p);
    send_on(fd, &hello, sizeof hello, good, SHM_N_FDS);
    CHECK_EQ(answer(&p, fd), WEFT_ERR_PROTOCOL);
    close(fd);
    for (int i = 0; i < SHM_N_FDS; i++) close(good[i]);
    for (int i = 0; i < MAPPED; i++) close(small[mapped[i]]);
    close(unsealed);
    close(null);
    close_door(&p, before);
}

/* It is written to: a pipe without a reader would end us by a signal. */
TEST(who_is_to_be_woken_by_anything_but_an_eventfd_is_refused) {
    struct pair p;
    open_door(&p);
    int before = n_descriptors(), ends[2], sockets[2];
    struct shm_hello hello = a_hello();
    CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    close(ends[0]);
    close(sockets[0]);
    const int bad[] = {ends[1], sockets[1], open("/dev/null", O_RDWR | O_CLOEXEC), sealed(8),
                       epoll_create1(EPOLL_CLOEXEC)};
    int good[SHM_N_FDS] = {sealed(SLOT_TABLE_DOORBELLS_SIZE), sealed(SLOT_TABLE_TX_SLOTS_SIZE),
                           sealed(pool_size(64, 4, 1 << 20)), -1,
                           sealed(SHM_CONTROL + 256 * RING_LINE + 65536)};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        int fd = knock(&p);
        good[SHM_FD_EVENT] = bad[i];
        send_on(fd, &hello, sizeof hello, good, SHM_N_FDS);
        CHECK_EQ(answer(&p, fd), WEFT_ERR_PROTOCOL);
        close(fd);
        close(bad[i]);
    }
    for (int i = 0; i < SHM_N_FDS; i++)
        if (i != SHM_FD_EVENT) close(good[i]);
    close_door(&p, before);
}

TEST(who_sends_nothing_is_dropped_in_time_and_who_leaves_at_once) {
    struct pair p;
    open_door_for(&p, "1s");
    int before = n_descriptors();
    double began = test_now();
    int gone = knock(&p), silent = knock(&p);
    close(gone);
    pair_turns(&p, 5);
    CHECK_EQ(answer(&p, silent), WEFT_OK);
    CHECK(test_now() - began > 0.1);
    close(silent);
    close_door(&p, before);
}

TEST(a_directory_that_others_may_enter_is_refused) {
    char open_directory[] = "/tmp/weft-test-XXXXXX";
    CHECK(mkdtemp(open_directory));
    CHECK_EQ(chmod(open_directory, 0755), 0);
    struct pair p;
    struct tl_listener *listener;
    uint8_t address[96];
    size_t len = sizeof address;
    pair_open_with(&p, &weft__transport_shm, 0,
                   (weft_setting_t[]){{"shm.directory", open_directory}}, 1);
    CHECK_EQ(p.iface_a->ops->listen(p.iface_a, "name", &(struct listen_how){.backlog = 1}, NULL,
                                    &listener),
             WEFT_ERR_INSECURE);
    CHECK_EQ(p.iface_a->ops->address(p.iface_a, address, &len), WEFT_ERR_INSECURE);
    pair_close(&p);
    CHECK_EQ(rmdir(open_directory), 0);
}

TEST(a_name_is_a_name) {
    struct pair p;
    struct tl_listener *listener;
    char name[200];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    pair_open(&p, &weft__transport_shm, 0);
    static const char *const bad[] = {"", ".", "..", "../x", "a/b", ".hidden"};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_EQ(p.iface_a->ops->listen(p.iface_a, bad[i], &(struct listen_how){.backlog = 1}, NULL,
                                        &listener),
                 WEFT_ERR_ADDRESS);
    CHECK_EQ(p.iface_a->ops->listen(p.iface_a, name, &(struct listen_how){.backlog = 1}, NULL,
                                    &listener),
             WEFT_ERR_ADDRESS);
    pair_close(&p);
}

/* ---- within ---------------------------------------------------------------------------------- */

static uint64_t touched;
static void touch(struct end *end, uint8_t id, const void *data, size_t len) {
    for (size_t i = 0; i < len; i++) touched += ((const uint8_t *)data)[i];
}

/* Its own segment is all that a peer can write: whatever it writes there ends its lane, or is a
 * message. */
TEST(a_peer_that_scribbles_ends_its_own_lane_only) {
    uint64_t x = 88172645463325252u;
    unsigned ended = 0;
    for (int round = 0; round < 60; round++) {
        struct pair p;
        struct end good_a = {0}, good_b = {0};
        pair_open(&p, &weft__transport_shm, 0);
        pair_connect(&p);
        CHECK_EQ(pair_dial(&p, &good_a, &good_b), WEFT_OK);
        CHECK(pair_until(&p, good_a.n_open && good_b.n_open));
        p.b.on_message = touch;
        struct shm_lane *bad = (struct shm_lane *)p.a.lane;
        uint64_t *slots = (uint64_t *)shm_ring(bad)->tx.slots;
        for (unsigned i = 0; i < 256 * 8; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            slots[i] = i % 8 == 7 ? (uint64_t)(i / 8 + 1) << 32 |
                                        (x & (round % 2 ? 0xffffffff : 0x003f031f))
                                  : x;
            /* places that might exist */
            if (round % 3 == 0 && i % 8 == 0) slots[i] &= 0x00007fff00003fff;
        }
        if (round % 4 == 0) atomic_store(&shm_ring(bad)->ours->tail, x);
        if (round % 5 == 0) atomic_store(&shm_ring(bad)->ours->wants, (uint32_t)x);
        for (unsigned i = 0; round % 7 == 0 && i < DOORBELL_LANES; i++)
            doorbell_ring(shm_doorbell(bad), i);
        doorbell_ring(shm_doorbell(bad), bad->mail.tx.slot);
        for (int turn = 0; turn < 20 && !p.b.n_down; turn++) {
            pair_turn(&p);
            /* and what the peer says is passed is looked at when b is out of space */
            for (int i = 0; i < 300 && !p.b.n_down; i++)
                if (p.b.lane->ops->am_short(p.b.lane, 1, 0, "", 0) != WEFT_OK) break;
        }
        ended += p.b.n_down;
        if (p.b.n_down) CHECK_EQ(p.b.down, WEFT_ERR_PROTOCOL);
        CHECK_EQ(good_a.lane->ops->am_short(good_a.lane, 1, 5, "fine", 4), WEFT_OK);
        CHECK(pair_until(&p, good_b.n_messages == 1));
        CHECK_EQ(good_a.n_down + good_b.n_down, 0);
        pair_end_close(&good_a, true);
        pair_end_close(&good_b, true);
        pair_close(&p);
    }
    CHECK(ended > 40);
}

TEST(the_peers_memory_cannot_be_written) {
    struct pair p;
    pair_open(&p, &weft__transport_shm, 0);
    pair_connect(&p);
    struct shm_lane *lane = (struct shm_lane *)p.b.lane;
    const struct segment *shown[] = {&shm_ring(lane)->peers, &shm_process(lane)->pool->segment,
                                     &shm_process(lane)->tx_slots->segment};
    for (int i = 0; i < 3; i++)
        CHECK_EQ(mprotect(shown[i]->at, shown[i]->size, PROT_READ | PROT_WRITE), -1);
    pair_close(&p);
}
