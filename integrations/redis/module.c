/*
 * The module: a worker in the server's event loop, which serves GET, SET, DEL and leases to Weft's
 * clients. Commands go through the server's own calls, so that expiry, replication and persistence
 * are the server's.
 *
 * Arguments: the URI to listen at ("tcp://127.0.0.1:6400", "shm://redis"), then settings of Weft
 * as name=value.
 */
#include "redis_module.h"

#include "leases.h"
#include "protocol.h"
#include "sizes.h"
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <weft/weft.h>

enum { SETTINGS_MOST = 16, CLOSE_MS = 20, LOOKS_MOST = 8, GETS_MOST = 16, KEYS_ROOM = 4096 };
enum { SHORT_MOST = 64 << 10 }; /* bytes of a value that may share a reply */
enum {
    CLIENT_MOST = 1 << 30
};                         /* bytes that are held for a client, where the server sets no limit */
enum { REPLY_COST = 512 }; /* bytes that a reply which waits takes besides its value */

#define REDIS_POINTER(type, name, parameters) static type(*name) parameters;
REDIS_FUNCTIONS(REDIS_POINTER)

static struct {
    struct redis_context *ctx;
    weft_context_t *context;
    weft_worker_t *worker;
    weft_listener_t *listener;
    int fd; /* -1: the server does not watch the worker */
    struct leases *leases;
    bool closing, busy; /* busy: the server is in the middle of something */
    unsigned long long requests, closed_for_limit;
    char transports[32], uri[160], settings[SETTINGS_MOST][2][128];
} module = {.fd = -1};

/* ---- limits ---------------------------------------------------------------------------------- */

/* Of the server's configuration, whose changes are events. */
static struct {
    bool known;
    size_t hard, soft, soft_seconds; /* client-output-buffer-limit of normal clients; 0: none */
    size_t memory;                   /* maxmemory; 0: none */
} limits = {.hard = CLIENT_MOST};

static void read_setting(const char *name, char *text, size_t room) {
    struct redis_call_reply *reply = Call(module.ctx, "CONFIG", "cc", "GET", name);
    bool found = reply && CallReplyType(reply) == REDIS_REPLY_ARRAY && CallReplyLength(reply) == 2;
    struct redis_call_reply *value = found ? CallReplyArrayElement(reply, 1) : NULL;
    size_t len = 0;
    const char *at = value ? CallReplyStringPtr(value, &len) : NULL;
    snprintf(text, room, "%.*s", (int)(at ? len : 0), at ? at : "");
    if (reply) FreeCallReply(reply);
}

/* Without CONFIG, which may be renamed, there are none but the module's own. */
static void read_limits(void) {
    char text[512];
    read_setting("client-output-buffer-limit", text, sizeof text);
    const char *normal = strstr(text, "normal ");
    if (!normal ||
        sscanf(normal, "normal %zu %zu %zu", &limits.hard, &limits.soft, &limits.soft_seconds) != 3)
        limits.hard = limits.soft = 0;
    if (!limits.hard) limits.hard = CLIENT_MOST;
    read_setting("maxmemory", text, sizeof text);
    limits.memory = strtoull(text, NULL, 10);
    limits.known = true;
}

/* What maxmemory leaves to leases. */
static size_t lease_room(void) {
    float used = limits.memory ? GetUsedMemoryRatio() : 0;
    if (!limits.memory) return SIZE_MAX;
    return used >= 1 ? 0 : (size_t)((1 - (double)used) * (double)limits.memory);
}

/* ---- clients --------------------------------------------------------------------------------- */

/* What is held for a client: requests that are being fetched, and replies that it has not taken. */
struct client {
    weft_ep_t *ep;
    size_t held;
    time_t over_since; /* above the soft limit; 0: it is not */
    bool closing;
    struct client *next, **prev;
};
static struct client *clients;

static void end_client(struct client *client) {
    *client->prev = client->next;
    if (client->next) client->next->prev = client->prev;
    free(client);
}

static void on_client_closed(weft_status_t status, void *client) {
    end_client(client);
}

static void forget_requests(const weft_ep_t *ep);

static void close_client(struct client *client) {
    weft_op_t op = {.done = on_client_closed, .arg = client};
    if (client->closing) return;
    client->closing = true;
    forget_requests(client->ep);
    (void)weft_ep_close(client->ep, WEFT_CLOSE_ABORT, &op);
}

static void on_client_lost(weft_ep_t *ep, weft_status_t status, void *arg) {
    struct client *client = weft_ep_user(ep);
    if (client)
        close_client(client);
    else
        (void)weft_ep_close(ep, WEFT_CLOSE_ABORT, NULL);
}

/* NULL: it is closing, or there is no memory for it. */
static struct client *client_of(weft_ep_t *ep) {
    struct client *client = weft_ep_user(ep);
    if (!client && (client = calloc(1, sizeof *client))) {
        client->ep = ep;
        client->next = clients;
        client->prev = &clients;
        if (client->next) client->next->prev = &client->next;
        clients = client;
        weft_ep_set_user(ep, client);
        (void)weft_ep_on_error(ep, on_client_lost,
                               NULL); /* the listener is not all that opens one */
    }
    return client && !client->closing ? client : NULL;
}

/* As the server does with its ordinary clients: a client that does not read is closed. */
static bool is_too_much(struct client *client, size_t more) {
    size_t held = client->held + more;
    if (!limits.soft || held <= limits.soft)
        client->over_since = 0;
    else if (!client->over_since)
        client->over_since = time(NULL);
    return held > limits.hard ||
           (client->over_since && time(NULL) - client->over_since > (time_t)limits.soft_seconds);
}

static void close_for(struct client *client, size_t more) {
    module.closed_for_limit++;
    Log(module.ctx, "warning", "weft: a client is closed, for which %zu bytes wait",
        client->held + more);
    close_client(client);
}

/* ---- replies --------------------------------------------------------------------------------- */

/* A reply that waits. `release` frees what its bytes lie in. */
struct sending {
    struct client *client;
    size_t size;
    void (*release)(void *bytes);
    void *bytes;
    struct sending *next;
};
static struct sending *spare_sending;

static void on_sent(weft_status_t status, void *arg) {
    struct sending *sending = arg;
    sending->client->held -= sending->size;
    if (sending->release) sending->release(sending->bytes);
    sending->next = spare_sending;
    spare_sending = sending;
}

static struct sending *take_sending(void) {
    struct sending *sending = spare_sending;
    if (!sending) return malloc(sizeof *sending);
    spare_sending = sending->next;
    return sending;
}

/* Returns whether `release` will be called. A client that is gone gets no reply; its endpoint's
 * on_error closes it. */
static bool send_reply(weft_ep_t *ep, const struct redis_reply *head, const void *value, size_t len,
                       void (*release)(void *bytes), void *bytes) {
    struct client *client = client_of(ep);
    struct sending *sending = client ? take_sending() : NULL;
    if (!sending) return false;
    *sending = (struct sending){client, REPLY_COST + len, release, bytes, NULL};
    weft_op_t op = {.done = on_sent, .arg = sending};
    weft_iov_t piece = {(void *)value, len};
    if (weft_am_send(ep, REDIS_REPLY_ID, head, sizeof *head, &piece, len ? 1 : 0, &op) !=
        WEFT_IN_PROGRESS) {
        sending->next = spare_sending;
        spare_sending = sending;
        return false;
    }
    client->held += sending->size;
    if (is_too_much(client, 0)) close_for(client, 0);
    return true;
}

/* The value lies in the reply of the server's own call, which lives until the bytes have left. */
static bool reply_value(weft_ep_t *ep, uint32_t number, const char *value, size_t len,
                        void (*release)(void *), void *bytes) {
    const struct redis_reply head = {.number = number, .len = len};
    return send_reply(ep, &head, value, len, release, bytes);
}

static void free_found(void *found) {
    FreeCallReply(found);
}

/* The same for values of several clients. */
struct values {
    struct redis_call_reply *reply;
    unsigned users;
};

static void release(void *arg) {
    struct values *values = arg;
    if (--values->users > 0) return;
    FreeCallReply(values->reply);
    free(values);
}

static void reply_status(weft_ep_t *ep, uint32_t number, weft_status_t status) {
    const struct redis_reply head = {.number = number, .status = status};
    (void)send_reply(ep, &head, NULL, 0, NULL, NULL);
}

/* The remote key of a lease, which is short. */
static void reply_lease(weft_ep_t *ep, const struct redis_reply *head, const char *packed,
                        size_t len) {
    char *copy = malloc(len);
    if (!copy) {
        reply_status(ep, head->number, WEFT_ERR_NO_MEMORY);
        return;
    }
    memcpy(copy, packed, len);
    if (!send_reply(ep, head, copy, len, free, copy)) free(copy);
}

/* ---- requests -------------------------------------------------------------------------------- */

/* In Redis 7.0, what a call outside of a command writes to the log and to replicas waits for the
 * end of a command of this module; the server ends if it sleeps before. */
static void write_out(void) {
    struct redis_call_reply *called = Call(module.ctx, "weft.written", "!");
    if (called) FreeCallReply(called);
}

/*
 * How commands are called. "!": what they change is written to the log and to replicas. A read that
 * finds a key expired deletes it, and from Redis 7.2 on a read without "!" would drop that. "S":
 * the server refuses what it would refuse a script: a write to a read-only replica, or without
 * enough replicas or a disk that works, and a read of a replica's stale data. "M": and beyond its
 * limit of memory.
 */
#define READ   "!S"
#define REMOVE "!S"
#define WRITE  "!SM"

/* The value of a key, of a reply that the caller frees (NULL: the server refuses). NULL: no such
 * key, or no string. */
static const char *get_value(const char *key, size_t key_len, struct redis_call_reply **reply_p,
                             size_t *len_p) {
    *reply_p = Call(module.ctx, "GET", READ "b", key, key_len);
    if (!*reply_p || CallReplyType(*reply_p) != REDIS_REPLY_STRING) return NULL;
    return CallReplyStringPtr(*reply_p, len_p);
}

static weft_status_t no_value(const struct redis_call_reply *reply) {
    return reply ? WEFT_ERR_NOT_FOUND : WEFT_ERR_REJECTED;
}

static void serve_get(weft_ep_t *ep, uint32_t number, const char *key, size_t key_len) {
    struct redis_call_reply *found = NULL;
    size_t len = 0;
    const char *value = get_value(key, key_len, &found, &len);
    if (found) sizes_note(key, key_len, len <= SHORT_MOST);
    if (value && reply_value(ep, number, value, len, free_found, found)) return;
    if (!value) {
        write_out(); /* the key may have expired */
        reply_status(ep, number, no_value(found));
    }
    if (found) FreeCallReply(found);
}

/*
 * GETs that one turn of the worker brings: one MGET serves them, for less than a GET for each.
 * Replies that are sent within the turn leave with it, and later ones wake the worker once more.
 * So as many as the last turn had are not waited beyond: clients tend to ask for as many again.
 * One MGET is one reply of the server, so it has at most one value that may be long.
 */
static struct {
    struct get {
        weft_ep_t *ep; /* NULL: the client is gone */
        uint32_t number, key_len;
        const char *key;
    } of[GETS_MOST];
    unsigned n, of_turn, of_last_turn;
    bool has_long; /* one of them may be */
    size_t used;
    char keys[KEYS_ROOM];
} gets = {.of_last_turn = 1};

/* NULL: the server refuses it. In a cluster the keys of one MGET have to be of one slot. */
static struct values *call_mget(void) {
    struct redis_string *names[GETS_MOST];
    for (unsigned i = 0; i < gets.n; i++)
        names[i] = CreateString(NULL, gets.of[i].key, gets.of[i].key_len);
    struct redis_call_reply *reply = Call(module.ctx, "MGET", READ "v", names, (size_t)gets.n);
    for (unsigned i = 0; i < gets.n; i++) FreeString(NULL, names[i]);
    bool is_whole =
        reply && CallReplyType(reply) == REDIS_REPLY_ARRAY && CallReplyLength(reply) == gets.n;
    struct values *values = is_whole ? malloc(sizeof *values) : NULL;
    if (values) *values = (struct values){.reply = reply, .users = 1};
    if (reply && !values) FreeCallReply(reply);
    return values;
}

static void reply_gets(struct values *values) {
    bool has_missed = false;
    for (unsigned i = 0; i < gets.n; i++) {
        const struct get *get = &gets.of[i];
        struct redis_call_reply *found = CallReplyArrayElement(values->reply, i);
        size_t len = 0;
        bool is_value = found && CallReplyType(found) == REDIS_REPLY_STRING;
        const char *value = is_value ? CallReplyStringPtr(found, &len) : NULL;
        sizes_note(get->key, get->key_len, len <= SHORT_MOST);
        has_missed = has_missed || !value;
        if (get->ep && !value) reply_status(get->ep, get->number, WEFT_ERR_NOT_FOUND);
        if (get->ep && value && reply_value(get->ep, get->number, value, len, release, values))
            values->users++;
    }
    if (has_missed) write_out();
    release(values);
}

static void serve_gets(void) {
    if (gets.n == 0) return;
    struct values *values = gets.n > 1 ? call_mget() : NULL;
    if (values) {
        reply_gets(values);
    } else {
        for (struct get *get = gets.of; get < gets.of + gets.n; get++)
            if (get->ep) serve_get(get->ep, get->number, get->key, get->key_len);
    }
    gets.n = 0;
    gets.has_long = false;
    gets.used = 0;
}

/* Returns whether replies wait for the next turn. */
static bool end_turn(void) {
    bool has_replies = gets.n > 0;
    serve_gets();
    if (gets.of_turn) gets.of_last_turn = gets.of_turn;
    gets.of_turn = 0;
    return has_replies;
}

/*
 * A client that shares memory with the server may change `bytes` at any time, so the key is copied
 * before it is looked at. A worker that closes frees its endpoints without a word; then no GET
 * waits.
 */
static void gather_get(weft_ep_t *ep, const struct redis_request *head, const char *bytes) {
    size_t len = head->key_len;
    if (len > KEYS_ROOM - gets.used) serve_gets();
    if (module.closing || len > KEYS_ROOM) {
        serve_get(ep, head->number, bytes, len);
        return;
    }
    char *key = gets.keys + gets.used;
    if (len) memcpy(key, bytes, len);
    bool may_be_long = !sizes_is_short(key, len);
    if (may_be_long && gets.has_long) {
        serve_gets(); /* which may have read this key */
        key = memmove(gets.keys, key, len);
        may_be_long = !sizes_is_short(key, len);
    }
    gets.used += len;
    gets.has_long |= may_be_long;
    gets.of[gets.n++] =
        (struct get){.ep = ep, .number = head->number, .key_len = (uint32_t)len, .key = key};
    if (++gets.of_turn == gets.of_last_turn || gets.n == GETS_MOST) serve_gets();
}

static weft_status_t outcome(struct redis_call_reply *result) {
    write_out();
    if (!result) return WEFT_ERR_REJECTED;
    int type = CallReplyType(result);
    weft_status_t st = type == REDIS_REPLY_ERROR ? WEFT_ERR_REJECTED : WEFT_OK;
    if (type == REDIS_REPLY_INTEGER && CallReplyInteger(result) == 0) st = WEFT_ERR_NOT_FOUND;
    FreeCallReply(result);
    return st;
}

/* A worker that closes has no leases any more, but its clients' requests still come. The key is
 * copied as in gather_get: it must not change between the read of its value and the lease. */
static void serve_lease(weft_ep_t *ep, const struct redis_request *head, const char *bytes) {
    size_t key_len = head->key_len, len = 0, packed_len = WEFT_RKEY_MAX;
    struct redis_call_reply *found = NULL;
    struct redis_reply answer = {.number = head->number};
    char packed[WEFT_RKEY_MAX], *key = malloc(key_len + 1);
    if (!module.leases || !key) {
        reply_status(ep, head->number, key ? WEFT_ERR_CLOSED : WEFT_ERR_NO_MEMORY);
        free(key);
        return;
    }
    if (key_len) memcpy(key, bytes, key_len);
    const char *value = get_value(key, key_len, &found, &len);
    answer.status = no_value(found);
    answer.len = len;
    if (!value) write_out();
    if (value && len == 0) answer.status = WEFT_OK;
    if (value && len)
        answer.status = leases_give(module.leases, key, key_len, value, len, &answer.address,
                                    packed, &packed_len, lease_room());
    if (found) FreeCallReply(found);
    free(key);
    if (answer.address)
        reply_lease(ep, &answer, packed, packed_len);
    else
        (void)send_reply(ep, &answer, NULL, 0, NULL, NULL);
}

/* `bytes` are the key and the value. A request that is malformed is refused. */
static void serve(weft_ep_t *ep, const struct redis_request *head, const char *bytes, size_t len) {
    module.requests++;
    if (head->version != REDIS_VERSION) {
        reply_status(ep, head->number, WEFT_ERR_VERSION);
        return;
    }
    size_t key_len = head->key_len;
    if (key_len > len || key_len > REDIS_KEY_MOST || len - key_len > REDIS_VALUE_MOST ||
        head->what >= REDIS_N_WHAT || (head->what != REDIS_SET && len != key_len)) {
        reply_status(ep, head->number, WEFT_ERR_PROTOCOL);
        return;
    }
    bool writes = head->what == REDIS_SET || head->what == REDIS_DELETE;
    if (module.busy || (writes && AvoidReplicaTraffic())) {
        reply_status(ep, head->number, WEFT_ERR_BUSY);
        return;
    }
    if (head->what != REDIS_GET) serve_gets(); /* requests are served in their order */
    switch ((enum redis_what)head->what) {
    case REDIS_GET: gather_get(ep, head, bytes); break;
    case REDIS_SET:
        reply_status(ep, head->number,
                     outcome(Call(module.ctx, "SET", WRITE "bb", bytes, key_len, bytes + key_len,
                                  len - key_len)));
        break;
    case REDIS_DELETE:
        reply_status(ep, head->number,
                     outcome(Call(module.ctx, "DEL", REMOVE "b", bytes, key_len)));
        break;
    case REDIS_LEASE: serve_lease(ep, head, bytes); break;
    case REDIS_N_WHAT: break;
    }
}

/* A payload that is being fetched; the client may be gone when it is here. */
struct large {
    struct client *client; /* NULL: gone */
    struct redis_request head;
    struct large *next;
    size_t len;
    char bytes[];
};
static struct large *larges;

static void on_fetched(weft_status_t status, void *arg) {
    struct large *large = arg, **at = &larges;
    while (*at != large) at = &(*at)->next;
    *at = large->next;
    struct client *client = large->client;
    if (client) client->held -= large->len;
    if (client && status < 0) reply_status(client->ep, large->head.number, status);
    if (client && status == WEFT_OK) serve(client->ep, &large->head, large->bytes, large->len);
    free(large);
}

/* A payload that is not fetched is refused. */
static void fetch(struct client *client, weft_am_t *am, const struct redis_request *head) {
    bool fits = am->len <= (size_t)REDIS_KEY_MOST + REDIS_VALUE_MOST;
    if (fits && is_too_much(client, am->len)) {
        close_for(client, am->len);
        return;
    }
    struct large *large = fits ? malloc(sizeof *large + am->len) : NULL;
    if (!large) {
        reply_status(client->ep, head->number, fits ? WEFT_ERR_NO_MEMORY : WEFT_ERR_TOO_BIG);
        return;
    }
    *large = (struct large){.client = client, .head = *head, .next = larges, .len = am->len};
    larges = large;
    client->held += am->len;
    weft_op_t op = {.done = on_fetched, .arg = large};
    weft_status_t st = weft_am_recv(am, &(weft_iov_t){large->bytes, am->len}, 1, &op);
    if (st != WEFT_IN_PROGRESS) on_fetched(st, large);
}

static void on_request(weft_ep_t *ep, weft_am_t *am, void *arg) {
    struct redis_request head;
    if (!ep || am->header_len != sizeof head) return;
    struct client *client = client_of(ep);
    if (!client) return;
    memcpy(&head, am->header, sizeof head);
    if (am->data)
        serve(ep, &head, am->data, am->len);
    else
        fetch(client, am, &head);
}

static void forget_requests(const weft_ep_t *ep) {
    for (struct large *large = larges; large; large = large->next)
        if (large->client && large->client->ep == ep) large->client = NULL;
    for (struct get *get = gets.of; get < gets.of + gets.n; get++)
        if (get->ep == ep) get->ep = NULL;
}

/* ---- the server's events --------------------------------------------------------------------- */

/*
 * While the server loads its data, and in the middle of a long script, it turns its loop now and
 * then, to answer ordinary clients that it is busy. A command would change what it loads, or what
 * the script relies on.
 */
static int progress(void) {
    module.busy = GetContextFlags(module.ctx) & (REDIS_IN_SCRIPT | REDIS_IN_MULTI | REDIS_IN_LOAD);
    if (!limits.known && !module.busy) read_limits();
    return weft_worker_progress(module.worker, 0);
}

/* Who waited for this report asks again soon, and to sleep and be woken takes longer than a look.
 * The server's other clients have their turn after a few. What is served after the last look
 * leaves with one turn more. */
static void on_readable(int fd, void *user, int mask) {
    int n = progress();
    bool has_replies = end_turn();
    for (int i = 0; i < LOOKS_MOST && n >= 0 && module.worker; i++) {
        n = weft_worker_spin(module.worker);
        has_replies = end_turn();
        if (n <= 0) break;
    }
    if (has_replies && module.worker) weft_worker_progress(module.worker, 0);
}

static int on_key_event(struct redis_context *ctx, int type, const char *event,
                        struct redis_string *key) {
    size_t len;
    const char *text = StringPtrLen(key, &len);
    sizes_note(text, len, false);
    if (module.leases) leases_end(module.leases, text, len);
    if (module.leases && limits.memory && leases_count(module.leases))
        leases_fit(module.leases, lease_room());
    return REDIS_OK;
}

static void on_config_event(struct redis_context *ctx, struct redis_event event, uint64_t part,
                            void *data) {
    limits.known = false;
}

/* Some or all keys were removed, exchanged or loaded, without an event for each. */
static void on_database_event(struct redis_context *ctx, struct redis_event event, uint64_t part,
                              void *data) {
    sizes_forget();
    if (module.leases) leases_end_all(module.leases);
}

static int info_command(struct redis_context *ctx, struct redis_string **argv, int argc) {
    char text[512];
    snprintf(text, sizeof text,
             "listener:%s requests:%llu leases:%u leases_ended:%llu lease_bytes:%zu "
             "closed_for_limit:%llu",
             module.listener ? weft_listener_uri(module.listener) : "closed", module.requests,
             leases_count(module.leases), leases_ended(module.leases), leases_bytes(module.leases),
             module.closed_for_limit);
    return ReplyWithCString(ctx, text);
}

static int written_command(struct redis_context *ctx, struct redis_string **argv, int argc) {
    return ReplyWithCString(ctx, "OK");
}

/* ---- life ------------------------------------------------------------------------------------ */

/* The library closes the descriptor when this returns, and the next client may get its number. */
static void on_closed(weft_status_t status, void *arg) {
    module.worker = NULL;
    for (struct client *each; (each = clients) != NULL;) {
        clients = each->next;
        free(each);
    }
    for (struct sending *each; (each = spare_sending) != NULL;) {
        spare_sending = each->next;
        free(each);
    }
    if (module.fd >= 0) (void)EventLoopDel(module.fd, REDIS_READABLE);
    module.fd = -1;
}

/* The server is not kept for longer than CLOSE_MS; what is left goes on in its loop. */
static bool close_worker(void) {
    if (module.worker && !module.closing) {
        weft_op_t op = {.done = on_closed};
        module.closing = true;
        module.listener = NULL; /* ends with its worker */
        leases_free(module.leases);
        module.leases = NULL;
        weft_status_t st = weft_worker_close(module.worker, &op);
        if (st < 0) on_closed(st, NULL);
    }
    for (int i = 0; i < CLOSE_MS && module.worker; i++) {
        (void)progress();
        if (module.worker) (void)poll(&(struct pollfd){module.fd, POLLIN, 0}, 1, 1);
    }
    if (module.worker) return false;
    if (module.context) (void)weft_context_destroy(module.context);
    module.context = NULL;
    if (module.ctx) FreeThreadSafeContext(module.ctx);
    module.ctx = NULL;
    return true;
}

static weft_status_t open_worker(size_t n_settings) {
    weft_setting_t settings[SETTINGS_MOST];
    for (size_t i = 0; i < n_settings; i++)
        settings[i] = (weft_setting_t){module.settings[i][0], module.settings[i][1]};
    weft_context_params_t params = {.settings = settings, .n_settings = n_settings};
    weft_listen_params_t listening = {.on_error = on_client_lost};
    weft_status_t st = weft_context_create(&params, &module.context);
    if (st == WEFT_OK)
        st = weft_worker_create(module.context,
                                &(weft_worker_params_t){.transports = module.transports},
                                &module.worker);
    if (st == WEFT_OK) st = weft_am_handler_set(module.worker, REDIS_REQUEST_ID, on_request, NULL);
    if (st == WEFT_OK) st = weft_listen(module.worker, module.uri, &listening, &module.listener);
    if (st == WEFT_OK) module.leases = leases_create(module.worker);
    if (st == WEFT_OK && !module.leases) st = WEFT_ERR_NO_MEMORY;
    if (st == WEFT_OK) module.fd = weft_worker_fd_level(module.worker);
    return st == WEFT_OK && module.fd < 0 ? (weft_status_t)module.fd : st;
}

static bool find_functions(struct redis_context *ctx) {
    int (*get)(const char *name, void **function);
    *(void **)&get = *(void **)ctx; /* the interface's first word */
#define REDIS_FIND(type, name, parameters) \
    if (get("RedisModule_" #name, (void **)&name) != REDIS_OK) return false;
    REDIS_FUNCTIONS(REDIS_FIND)
    return true;
}

/* A URI's transport is its scheme; tcp moves to shared memory where both are on one host. */
static bool read_arguments(struct redis_string **argv, int argc, size_t *n_settings_p) {
    size_t len, n = 0;
    if (argc < 1) return false;
    const char *uri = StringPtrLen(argv[0], &len);
    const char *colon = memchr(uri, ':', len);
    if (!colon || len >= sizeof module.uri) return false;
    memcpy(module.uri, uri, len);
    bool is_tcp = colon - uri == 3 && memcmp(uri, "tcp", 3) == 0;
    snprintf(module.transports, sizeof module.transports, is_tcp ? "tcp,shm" : "%.*s",
             (int)(colon - uri), uri);
    for (int i = 1; i < argc; i++) {
        const char *setting = StringPtrLen(argv[i], &len);
        const char *is = memchr(setting, '=', len);
        if (!is || n == SETTINGS_MOST || len >= sizeof module.settings[n][0]) return false;
        snprintf(module.settings[n][0], sizeof module.settings[n][0], "%.*s", (int)(is - setting),
                 setting);
        snprintf(module.settings[n][1], sizeof module.settings[n][1], "%.*s",
                 (int)(setting + len - is - 1), is + 1);
        n++;
    }
    *n_settings_p = n;
    return true;
}

static bool subscribe(struct redis_context *ctx) {
    static const uint64_t events[] = {REDIS_EVENT_FLUSH, REDIS_EVENT_LOAD, REDIS_EVENT_SWAP,
                                      REDIS_EVENT_ASYNC_LOAD};
    enum {
        CHANGES = REDIS_NOTIFY_GENERIC | REDIS_NOTIFY_STRING | REDIS_NOTIFY_LIST |
                  REDIS_NOTIFY_SET | REDIS_NOTIFY_ZSET | REDIS_NOTIFY_EXPIRED | REDIS_NOTIFY_EVICTED
    };
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        struct redis_event event = {events[i], REDIS_EVENT_VERSION};
        if (SubscribeToServerEvent(ctx, event, on_database_event) != REDIS_OK) return false;
    }
    struct redis_event config = {REDIS_EVENT_CONFIG, REDIS_EVENT_VERSION};
    (void)SubscribeToServerEvent(ctx, config, on_config_event); /* of Redis 7.0.1 and newer */
    return SubscribeToKeyspaceEvents(ctx, CHANGES, on_key_event) == REDIS_OK;
}

__attribute__((visibility("default"))) int RedisModule_OnLoad(struct redis_context *ctx,
                                                              struct redis_string **argv, int argc);
int RedisModule_OnLoad(struct redis_context *ctx, struct redis_string **argv, int argc) {
    char why[512];
    size_t n_settings = 0;
    if (!find_functions(ctx)) return REDIS_ERR;
    if (IsModuleNameBusy("weft")) return REDIS_ERR;
    (void)SetModuleAttribs(ctx, "weft", 1, REDIS_API_VERSION);
    if (!read_arguments(argv, argc, &n_settings)) {
        Log(ctx, "warning", "weft: arguments are: URI [setting=value ...]");
        return REDIS_ERR;
    }
    weft_status_t st = open_worker(n_settings);
    if (st < 0) {
        weft_status_describe(st, why, sizeof why);
        Log(ctx, "warning", "weft: %s", why);
        (void)close_worker();
        return REDIS_ERR;
    }
    module.ctx = GetDetachedThreadSafeContext(ctx);
    if (CreateCommand(ctx, "weft.info", info_command, "readonly", 0, 0, 0) != REDIS_OK ||
        CreateCommand(ctx, "weft.written", written_command, "readonly", 0, 0, 0) != REDIS_OK ||
        !subscribe(ctx) || EventLoopAdd(module.fd, REDIS_READABLE, on_readable, NULL) != REDIS_OK) {
        (void)close_worker();
        return REDIS_ERR;
    }
    Log(ctx, "notice", "weft: listening at %s", weft_listener_uri(module.listener));
    weft_worker_progress(module.worker, 0);
    return REDIS_OK;
}

/* Refused while clients keep the worker from closing. It goes on closing: the next try works. */
__attribute__((visibility("default"))) int RedisModule_OnUnload(struct redis_context *ctx);
int RedisModule_OnUnload(struct redis_context *ctx) {
    return close_worker() ? REDIS_OK : REDIS_ERR;
}
