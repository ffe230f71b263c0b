/* Connected queue pairs of rdma beyond what all transports promise. Wants a device: tools/rdma-vm has two. */
#include "pair.h"

#ifdef WEFT_HAVE_RDMA
#include <fcntl.h>
#include <sys/stat.h>
#include <transports/rdma/rc.h>

#define WANTS_A_DEVICE() \
    if (!pair_has_rdma()) SKIP("no RDMA device here")

static struct rc_iface *raw_a(struct pair *p) {
    return (struct rc_iface *)p->iface_a;
}
static struct rc_iface *raw_b(struct pair *p) {
    return (struct rc_iface *)p->iface_b;
}

static weft_status_t say(struct end *end, uint64_t number) {
    return end->lane->ops->am_short(end->lane, 3, number, NULL, 0);
}

static char home[64];
static void begin_with(struct pair *p, const weft_setting_t *settings, size_t n) {
    strcpy(home, "/tmp/weft-rc-home-XXXXXX");
    CHECK(mkdtemp(home));
    setenv("HOME", home, 1);
    unsetenv("XDG_CONFIG_HOME");
    pair_open_with(p, &weft__transport_rdma_rc, 0, settings, n);
}
static void end_of(struct pair *p) {
    char command[96];
    pair_close(p);
    snprintf(command, sizeof command, "rm -rf %s", home);
    CHECK_EQ(system(command), 0);
}
static const weft_setting_t insecure = {"rdma.insecure", "yes"};

/* ---- who may connect ---------------------------------------------------------------------------------------------- */

TEST(a_worker_that_holds_the_users_key_is_let_in) {
    struct pair p;
    char path[128];
    struct stat s;
    WANTS_A_DEVICE();
    begin_with(&p, NULL, 0);
    pair_connect(&p);
    snprintf(path, sizeof path, "%s/.config/weft/key", home);
    CHECK(stat(path, &s) == 0 && (s.st_mode & 0777) == 0600);
    CHECK(rc_lane(p.a.lane)->hello.flags == RC_FLAG_KEYED && rc_lane(p.b.lane)->acceptor);
    CHECK(memcmp(rc_lane(p.a.lane)->hello.nonce, rc_lane(p.a.lane)->answer.nonce, RC_NONCE) != 0);
    CHECK_EQ(say(&p.a, 1), WEFT_OK);
    CHECK(pair_until(&p, p.b.n_messages == 1));
    end_of(&p);
}

/* The dialer sees it first, since the acceptor proves first. */
TEST(with_another_key_a_worker_is_not_taken_for_ours) {
    struct pair p;
    WANTS_A_DEVICE();
    begin_with(&p, NULL, 0);
    CHECK_EQ(rc_trust_ready(raw_b(&p)), WEFT_OK);
    raw_b(&p)->key.bytes[31] ^= 1;
    CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
    CHECK(pair_until(&p, p.a.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_AUTH);
    CHECK(pair_until(&p, raw_b(&p)->n_lanes == 0));
    CHECK(p.a.n_open == 0 && p.b.n_open == 0);
    CHECK_EQ(weft__count(p.reactor_a)->violations, 1);
    end_of(&p);
}

/* A dialer that would rather not look is found out by its own proof; until then the acceptor's owner hears of nobody. */
TEST(without_a_proof_nobody_is_let_in) {
    struct pair p;
    WANTS_A_DEVICE();
    for (int byte = 0; byte < RC_PROOF; byte += RC_PROOF - 1) {
        begin_with(&p, NULL, 0);
        CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
        CHECK(pair_until(&p, !TAILQ_EMPTY(&raw_b(&p)->lanes)));
        struct rc_lane *accepted = TAILQ_FIRST(&raw_b(&p)->lanes);
        accepted->proof[byte] ^= 0x10;
        CHECK(pair_until(&p, p.a.n_down == 1));
        CHECK(pair_until(&p, raw_b(&p)->n_lanes == 0));
        CHECK_EQ(p.b.n_open, 0);
        CHECK_EQ(weft__count(p.reactor_b)->violations, 1);
        end_of(&p);
    }
}

TEST(who_has_a_key_and_who_has_none_do_not_meet) {
    struct pair p;
    WANTS_A_DEVICE();
    for (int who = 0; who < 2; who++) {
        begin_with(&p, NULL, 0);
        struct rc_iface *open = who ? raw_a(&p) : raw_b(&p);
        open->key = (struct trust_key){.trust = TRUST_ANYONE};
        open->have_key = true;
        CHECK_EQ(pair_dial(&p, &p.a, &p.b), WEFT_OK);
        CHECK(pair_until(&p, p.a.n_down == 1));
        CHECK_EQ(p.a.down, WEFT_ERR_AUTH);
        CHECK(p.b.n_open == 0 && raw_b(&p)->n_lanes == 0);
        end_of(&p);
    }
}

TEST(an_address_that_was_guessed_is_refused) {
    struct pair p;
    uint8_t address[RC_ADDRESS_SIZE];
    size_t len = sizeof address;
    struct lane *lane = NULL;
    WANTS_A_DEVICE();
    begin_with(&p, NULL, 0);
    CHECK_EQ(p.iface_b->ops->address(p.iface_b, address, &len), WEFT_OK);
    address[12 + RC_TOKEN - 1] ^= 1;
    CHECK_EQ(p.iface_a->ops->connect(p.iface_a, address, len, &lane), WEFT_OK);
    lane->owner = &p.a;
    p.a.lane = lane;
    CHECK(pair_until(&p, p.a.n_down == 1));
    CHECK_EQ(p.a.down, WEFT_ERR_REFUSED);
    CHECK(p.b.n_open == 0 && raw_b(&p)->n_lanes == 0);
    end_of(&p);
}

TEST(to_listen_where_anybody_comes_wants_a_key_for_it) {
    struct pair p;
    struct tl_listener *listener;
    char path[96];
    WANTS_A_DEVICE();
    begin_with(&p, NULL, 0);
    CHECK_EQ(p.iface_a->ops->listen(p.iface_a, "*:0", 4, NULL, &listener), WEFT_ERR_INSECURE);
    end_of(&p);
    strcpy(path, "/tmp/weft-rc-key-XXXXXX");
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, "the cluster's own key, long", 27) == 27);
    close(fd);
    const weft_setting_t keyed = {"tcp.key_file", path};
    for (int i = 0; i < 2; i++) {
        begin_with(&p, i ? &keyed : &insecure, 1);
        p.flags = PAIR_BY_URI;
        pair_connect(&p);
        CHECK_EQ(rc_lane(p.b.lane)->hello.flags, i ? RC_FLAG_KEYED : 0);
        end_of(&p);
    }
    CHECK_EQ(unlink(path), 0);
}

#else
TEST(a_worker_that_holds_the_users_key_is_let_in) {
    SKIP("built without rdma");
}
#endif
