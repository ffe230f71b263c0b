/*
 * Two ends of a transport in one process, on one reactor or two, driven by the test.
 *
 *     struct pair p;
 *     pair_open(&p, &weft__transport_tcp, 0);      contexts, reactors, ifaces
 *     pair_connect(&p);                            p.a dialed, p.b accepted; both may send
 *     lane_ops … p.a.lane …
 *     CHECK(pair_until(&p, p.b.n_messages == 1));  drives both until it holds, a minute at the most
 *     pair_close(&p);                              everything is closed, and nothing is left
 *
 * What arrives is kept in end->messages, in order, unless end->on_message is set.
 */
#ifndef WEFT_TESTS_TRANSPORTS_PAIR_H
#define WEFT_TESTS_TRANSPORTS_PAIR_H

#include "../harness.h"
#include "../network.h"
#include <dirent.h>
#include <reactor/virtual.h>
#include <tests/support/clock.h>
#include <time.h>
#include <transports/registry.h>

enum {
    PAIR_ONE_REACTOR = 1, /* both ends belong to one worker (self) */
    PAIR_VIRTUAL = 2,     /* virtual time (sim) */
    /* pair_connect listens at `uri` and dials it, in place of the iface address */
    PAIR_BY_URI = 4
};

struct pair_message {
    uint8_t id;
    size_t len;
    uint8_t *data;
};

struct pair;
struct end {
    struct pair *pair;
    struct lane *lane;            /* NULL before and after its life */
    int n_open, n_down, n_closed; /* calls of accepted or up; down; closed */
    weft_status_t down;
    char why[192]; /* the causes of `down` */
    void *listen_arg;
    struct pair_message *messages;
    size_t n_messages, room;
    void (*on_message)(struct end *end, uint8_t id, const void *data, size_t len);
    void *arg;
};

struct pair {
    const struct transport *transport;
    unsigned flags;
    /* after "scheme://" for PAIR_BY_URI; NULL: "pair" or, for tcp, "127.0.0.1:0" */
    const char *uri;
    weft_context_t *context;
    struct reactor_clock *clock;
    struct reactor *reactor_a, *reactor_b; /* equal with PAIR_ONE_REACTOR */
    struct iface *iface_a, *iface_b;
    struct tl_listener *listener;
    struct end a, b;
    struct end *next_accepted; /* who gets the next lane that is accepted */
    char directory[64];
};

/* Called when the clock of PAIR_VIRTUAL is there and no iface yet: sim wants a network. */
static void (*pair_clock_made)(struct reactor_clock *clock);

static void pair_keep(struct end *end, uint8_t id, const void *data, size_t len) {
    if (end->n_messages == end->room) {
        end->room = end->room ? 2 * end->room : 64;
        end->messages = realloc(end->messages, end->room * sizeof *end->messages);
    }
    struct pair_message *m = &end->messages[end->n_messages++];
    *m = (struct pair_message){id, len, malloc(len + 1)};
    if (len) memcpy(m->data, data, len);
}

static void pair_forget(struct end *end) {
    for (size_t i = 0; i < end->n_messages; i++) free(end->messages[i].data);
    free(end->messages);
    end->messages = NULL;
    end->n_messages = end->room = 0;
}

static void pair_arrived(struct lane *lane, unsigned id, const void *data, size_t len) {
    struct end *end = lane->owner;
    (end->on_message ? end->on_message : pair_keep)(end, (uint8_t)id, data, len);
}

static void pair_accepted(struct lane *lane, void *listen_arg) {
    struct pair *p = lane->iface->owner;
    struct end *end = p->next_accepted;
    lane->owner = end;
    end->lane = lane;
    end->n_open++;
    end->listen_arg = listen_arg;
}
static void pair_up(struct lane *lane) {
    ((struct end *)lane->owner)->n_open++;
}
static void pair_down(struct lane *lane, weft_status_t status) {
    struct end *end = lane->owner;
    end->n_down++;
    end->down = status;
    (void)weft__causes_line(status, end->why, sizeof end->why);
}
static void pair_closed(struct lane *lane) {
    struct end *end = lane->owner;
    end->n_closed++;
    end->lane = NULL;
}

static const struct iface_up pair_notified = {.am = {[0 ... LANE_AM_IDS - 1] = pair_arrived},
                                              .accepted = pair_accepted,
                                              .up = pair_up,
                                              .down = pair_down,
                                              .closed = pair_closed};

/* A device, in hardware or in software. */
static inline bool pair_has_rdma(void) {
    DIR *devices = opendir("/sys/class/infiniband");
    bool any = false;
    for (struct dirent *e; devices && (e = readdir(devices));) any = any || e->d_name[0] != '.';
    if (devices) closedir(devices);
    return any;
}

/* ---- driving --------------------------------------------------------------------------------- */

/* One turn of each. */
static inline void pair_turn(struct pair *p) {
    if (p->clock) {
        weft__clock_turn(p->clock);
        return;
    }
    int n = weft__reactor_progress(p->reactor_a, 0);
    if (p->reactor_b != p->reactor_a) n += weft__reactor_progress(p->reactor_b, 0);
    if (n == 0) usleep(20);
}

/* Drives both until `cond` holds; its value. */
#define pair_until(p, cond)                                                    \
    ({                                                                         \
        double pair_end_ = test_now() + test_timeout(60);                      \
        bool pair_held_;                                                       \
        while (!(pair_held_ = (cond)) && test_now() < pair_end_) pair_turn(p); \
        pair_held_;                                                            \
    })
/* A few turns, for what must not happen. */
static inline void pair_turns(struct pair *p, int n) {
    while (n-- > 0) pair_turn(p);
}

/* ---- opening and closing --------------------------------------------------------------------- */

static inline weft_status_t pair_iface(struct pair *p, struct reactor *r, uint64_t id,
                                       struct iface **iface_p) {
    return p->transport->open(
        r, &(struct iface_params){.up = &pair_notified, .owner = p, .worker_id = id}, iface_p);
}

static inline void pair_open_with(struct pair *p, const struct transport *transport, unsigned flags,
                                  const weft_setting_t *settings, size_t n_settings) {
    memset(p, 0, sizeof *p);
    p->transport = transport;
    p->flags = flags;
    p->a.pair = p->b.pair = p;
    p->next_accepted = &p->b;
    strcpy(p->directory, "/tmp/weft-test-XXXXXX");
    CHECK(mkdtemp(p->directory));
    /* A transport by itself: no layer above earns lanes of the scarce kind, so the first to come
     * have them. */
    weft_setting_t all[16] = {{"shm.directory", p->directory}, {"lanes.switch", "off"}};
    for (size_t i = 0; i < n_settings; i++) all[2 + i] = settings[i];
    weft_context_params_t context = {.settings = all, .n_settings = 2 + n_settings};
    CHECK_EQ(weft_context_create(&context, &p->context), WEFT_OK);
    if (flags & PAIR_VIRTUAL) CHECK(p->clock = weft__clock_create(NULL, 1));
    if (p->clock && pair_clock_made) pair_clock_made(p->clock);
    struct reactor_params params = {.virtual_clock = p->clock, .seed = p->clock ? 7 : 0};
    CHECK_EQ(weft__reactor_create(p->context, &params, &p->reactor_a), WEFT_OK);
    CHECK_EQ(pair_iface(p, p->reactor_a, 0xa1, &p->iface_a), WEFT_OK);
    p->reactor_b = p->reactor_a;
    p->iface_b = p->iface_a;
    if (flags & PAIR_ONE_REACTOR) return;
    CHECK_EQ(weft__reactor_create(p->context, &params, &p->reactor_b), WEFT_OK);
    CHECK_EQ(pair_iface(p, p->reactor_b, 0xb2, &p->iface_b), WEFT_OK);
}
static inline void pair_open(struct pair *p, const struct transport *transport, unsigned flags) {
    pair_open_with(p, transport, flags, NULL, 0);
}

/* A free place to listen at. */
static inline const char *pair_where(const struct transport *transport) {
    if (strcmp(transport->name, "tcp") == 0) return "127.0.0.1:0";
    return strcmp(transport->name, "rdma_rc") == 0 ? "*:0" : "pair";
}

/* Dials b's iface from a's; does not wait. The lane is `dialed`'s, the accepted one will be
 * `accepted`'s. */
static inline weft_status_t pair_dial(struct pair *p, struct end *dialed, struct end *accepted) {
    struct lane *lane = NULL;
    weft_status_t st;
    dialed->pair = accepted->pair = p;
    p->next_accepted = accepted;
    if (p->flags & PAIR_BY_URI) {
        const char *where = p->uri ? p->uri : pair_where(p->transport);
        if (!p->listener)
            CHECK_EQ(p->iface_b->ops->listen(p->iface_b, where, &(struct listen_how){.backlog = 16},
                                             &p->listener, &p->listener),
                     WEFT_OK);
        const char *uri = strstr(p->iface_b->ops->listener_uri(p->listener), "://");
        CHECK(uri);
        st = p->iface_a->ops->connect_uri(p->iface_a, uri + 3, &lane);
    } else {
        uint8_t address[96];
        size_t len = sizeof address;
        const char *why = NULL;
        st = p->iface_b->ops->address(p->iface_b, address, &len);
        if (st < 0) return st;
        CHECK(len <= sizeof address);
        CHECK_EQ(p->iface_a->ops->reachable(p->iface_a, address, len, &why), WEFT_OK);
        st = p->iface_a->ops->connect(p->iface_a, address, len, &lane);
    }
    if (st < 0) return st;
    dialed->lane = lane;
    lane->owner = dialed;
    return st;
}

static inline void pair_connect(struct pair *p) {
    CHECK_EQ(pair_dial(p, &p->a, &p->b), WEFT_OK);
    CHECK_EQ(p->a.n_open, 0); /* never inside the call */
    CHECK(pair_until(p, p->a.n_open == 1 && p->b.n_open == 1));
}

/* Closes an end, if it is open, and waits for the last word. */
static inline void pair_end_close(struct end *end, bool flush) {
    if (end->lane) {
        int before = end->n_closed;
        end->lane->ops->close(end->lane, flush);
        CHECK_EQ(end->n_closed, before);
        CHECK(pair_until(end->pair, end->n_closed == before + 1));
    }
    pair_forget(end);
}

static inline void pair_close(struct pair *p) {
    pair_end_close(&p->a, true);
    pair_end_close(&p->b, true);
    if (p->listener) p->iface_b->ops->listener_close(p->listener);
    p->iface_a->ops->close(p->iface_a);
    if (p->iface_b != p->iface_a) p->iface_b->ops->close(p->iface_b);
    pair_turns(p, 2);
    weft__reactor_destroy(p->reactor_a);
    if (p->reactor_b != p->reactor_a) weft__reactor_destroy(p->reactor_b);
    talloc_free(p->clock);
    CHECK_EQ(weft_context_destroy(p->context), WEFT_OK);
    CHECK_EQ(rmdir(p->directory), 0); /* nothing was left there either */
}

#endif
