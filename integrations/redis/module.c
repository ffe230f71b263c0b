/*
 * The module: a worker in the server's event loop, which serves GET, SET, DEL and leases to Weft's
 * clients.
 *
 * Arguments: the URI to listen at ("tcp://127.0.0.1:6400", "shm://redis"), then settings of Weft
 * as name=value.
 */
#include "redis_module.h"

#include "clients.h"
#include "commands.h"
#include "gets.h"
#include "leases.h"
#include "limits.h"
#include "protocol.h"
#include "replies.h"
#include "requests.h"
#include "sizes.h"
#include <poll.h>
#include <stdio.h>
#include <string.h>

enum { SETTINGS_MOST = 16, CLOSE_MS = 20, LOOKS_MOST = 8 };

static struct {
    weft_context_t *context;
    weft_worker_t *worker;
    weft_listener_t *listener;
    int fd; /* -1: the server does not watch the worker */
    struct leases *leases;
    bool closing;
    char transports[32], uri[160], settings[SETTINGS_MOST][2][128];
} module = {.fd = -1};

/* ---- the server's events --------------------------------------------------------------------- */

/*
 * While the server loads its data, and in the middle of a long script, it turns its loop now and
 * then, to answer ordinary clients that it is busy. A command would change what it loads, or what
 * the script relies on.
 */
static int progress(void) {
    bool busy =
        redis.GetContextFlags(redis.ctx) & (REDIS_IN_SCRIPT | REDIS_IN_MULTI | REDIS_IN_LOAD);
    requests_set_busy(busy);
    if (!busy) limits_refresh();
    return weft_worker_progress(module.worker, 0);
}

/* Who waited for this report asks again soon, and to sleep and be woken takes longer than a look.
 * The server's other clients have their turn after a few. What is served after the last look
 * leaves with one turn more. */
static void on_readable(int fd, void *user, int mask) {
    int n = progress();
    bool has_replies = gets_end_turn();
    for (int i = 0; i < LOOKS_MOST && n >= 0 && module.worker; i++) {
        n = weft_worker_spin(module.worker);
        has_replies = gets_end_turn();
        if (n <= 0) break;
    }
    if (has_replies && module.worker) weft_worker_progress(module.worker, 0);
}

static int on_key_event(struct redis_context *ctx, int type, const char *event,
                        struct redis_string *key) {
    size_t len;
    const char *text = redis.StringPtrLen(key, &len);
    sizes_note(text, len, false);
    if (module.leases) leases_end(module.leases, text, len);
    if (leases_count(module.leases)) leases_fit(module.leases, limits_lease_room());
    return REDIS_OK;
}

static void on_config_event(struct redis_context *ctx, struct redis_event event, uint64_t part,
                            void *data) {
    limits_forget();
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
             module.listener ? weft_listener_uri(module.listener) : "closed", requests_count(),
             leases_count(module.leases), leases_ended(module.leases), leases_bytes(module.leases),
             clients_closed_for_limit());
    return redis.ReplyWithCString(ctx, text);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* The library closes the descriptor when this returns, and the next client may get its number. */
static void on_closed(weft_status_t status, void *arg) {
    module.worker = NULL;
    clients_end();
    replies_end();
    if (module.fd >= 0) (void)redis.EventLoopDel(module.fd, REDIS_READABLE);
    module.fd = -1;
}

/* The server is not kept for longer than CLOSE_MS; what is left goes on in its loop. */
static bool close_worker(void) {
    if (module.worker && !module.closing) {
        weft_op_t op = {.done = on_closed};
        module.closing = true;
        module.listener = NULL; /* ends with its worker */
        gets_wait_no_more();
        requests_set_leases(NULL);
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
    if (redis.ctx) redis.FreeThreadSafeContext(redis.ctx);
    redis.ctx = NULL;
    return true;
}

static weft_status_t open_worker(size_t n_settings) {
    weft_setting_t settings[SETTINGS_MOST];
    for (size_t i = 0; i < n_settings; i++)
        settings[i] = (weft_setting_t){module.settings[i][0], module.settings[i][1]};
    weft_context_params_t params = {.settings = settings, .n_settings = n_settings};
    weft_listen_params_t listening = {.on_error = client_on_error};
    clients_begin(requests_forget);
    weft_status_t st = weft_context_create(&params, &module.context);
    if (st == WEFT_OK)
        st = weft_worker_create(module.context,
                                &(weft_worker_params_t){.transports = module.transports},
                                &module.worker);
    if (st == WEFT_OK)
        st = weft_am_handler_set(module.worker, REDIS_REQUEST_ID, requests_on_message, NULL);
    if (st == WEFT_OK) st = weft_listen(module.worker, module.uri, &listening, &module.listener);
    if (st == WEFT_OK) module.leases = leases_create(module.worker);
    if (st == WEFT_OK && !module.leases) st = WEFT_ERR_NO_MEMORY;
    requests_set_leases(module.leases);
    if (st == WEFT_OK) module.fd = weft_worker_fd_level(module.worker);
    return st == WEFT_OK && module.fd < 0 ? (weft_status_t)module.fd : st;
}

/* A URI's transport is its scheme; tcp moves to shared memory where both are on one host. */
static bool read_arguments(struct redis_string **argv, int argc, size_t *n_settings_p) {
    size_t len, n = 0;
    if (argc < 1) return false;
    const char *uri = redis.StringPtrLen(argv[0], &len);
    const char *colon = memchr(uri, ':', len);
    if (!colon || len >= sizeof module.uri) return false;
    memcpy(module.uri, uri, len);
    bool is_tcp = colon - uri == 3 && memcmp(uri, "tcp", 3) == 0;
    snprintf(module.transports, sizeof module.transports, is_tcp ? "tcp,shm" : "%.*s",
             (int)(colon - uri), uri);
    for (int i = 1; i < argc; i++) {
        const char *setting = redis.StringPtrLen(argv[i], &len);
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
        if (redis.SubscribeToServerEvent(ctx, event, on_database_event) != REDIS_OK) return false;
    }
    struct redis_event config = {REDIS_EVENT_CONFIG, REDIS_EVENT_VERSION};
    (void)redis.SubscribeToServerEvent(ctx, config, on_config_event); /* of Redis 7.0.1 and newer */
    return redis.SubscribeToKeyspaceEvents(ctx, CHANGES, on_key_event) == REDIS_OK;
}

__attribute__((visibility("default"))) int RedisModule_OnLoad(struct redis_context *ctx,
                                                              struct redis_string **argv, int argc);
int RedisModule_OnLoad(struct redis_context *ctx, struct redis_string **argv, int argc) {
    char why[512];
    size_t n_settings = 0;
    if (!redis_find_functions(ctx)) return REDIS_ERR;
    if (redis.IsModuleNameBusy("weft")) return REDIS_ERR;
    (void)redis.SetModuleAttribs(ctx, "weft", 1, REDIS_API_VERSION);
    if (!read_arguments(argv, argc, &n_settings)) {
        redis.Log(ctx, "warning", "weft: arguments are: URI [setting=value ...]");
        return REDIS_ERR;
    }
    redis.ctx = redis.GetDetachedThreadSafeContext(ctx);
    weft_status_t st = open_worker(n_settings);
    if (st < 0) {
        weft_status_describe(st, why, sizeof why);
        redis.Log(ctx, "warning", "weft: %s", why);
        (void)close_worker();
        return REDIS_ERR;
    }
    if (redis.CreateCommand(ctx, "weft.info", info_command, "readonly", 0, 0, 0) != REDIS_OK ||
        !commands_add(ctx) || !subscribe(ctx) ||
        redis.EventLoopAdd(module.fd, REDIS_READABLE, on_readable, NULL) != REDIS_OK) {
        (void)close_worker();
        return REDIS_ERR;
    }
    redis.Log(ctx, "notice", "weft: listening at %s", weft_listener_uri(module.listener));
    weft_worker_progress(module.worker, 0);
    return REDIS_OK;
}

/* Refused while clients keep the worker from closing. It goes on closing: the next try works. */
__attribute__((visibility("default"))) int RedisModule_OnUnload(struct redis_context *ctx);
int RedisModule_OnUnload(struct redis_context *ctx) {
    return close_worker() ? REDIS_OK : REDIS_ERR;
}
