/*
 * A program has a UCX worker: own_ucx. A worker of Weft watches its descriptor, so one call waits
 * for messages of both. libucp is loaded at run time, so this builds without UCX.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

enum { HELLO = 1, UCX_TAG = 7, LEN = 14 };

/* `expression` is true, or the program ends. */
#define MUST(expression) ((expression) ? (void)0 : fail(#expression))
static _Noreturn void fail(const char *what) {
    fprintf(stderr, "failed: %s\n", what);
    exit(1);
}

/* As UCX's headers declare them. Parameters begin with the mask of the fields that are set, and are
 * arrays here that are large enough. */
enum { FEATURES = 1, TAG = 1, WAKEUP = 16, REMOTE_ADDRESS = 1, UNDER_WAY = 1 };
static struct {
    int8_t (*init)(unsigned major, unsigned minor, const void *params, void *config, void **to_p);
    int8_t (*worker_create)(void *context, const void *params, void **worker_p);
    int8_t (*address)(void *worker, void **address_p, size_t *len_p), (*status)(void *request);
    int8_t (*ep_create)(void *worker, const void *params, void **ep_p);
    void *(*send)(void *ep, const void *from, size_t n, uint64_t tag, const void *how);
    void *(*recv)(void *worker, void *to, size_t n, uint64_t tag, uint64_t mask, const void *how);
    void (*address_free)(void *worker, void *address);
    void (*request_free)(void *request), (*worker_destroy)(void *worker), (*cleanup)(void *context);
    void *context, *worker, *ep;
} ucx;

#define FIND(field, name) MUST((*(void **)&ucx.field = dlsym(library, name)))
static void find_calls(void *library) {
    FIND(init, "ucp_init_version"), FIND(worker_create, "ucp_worker_create");
    FIND(address, "ucp_worker_get_address"), FIND(address_free, "ucp_worker_release_address");
    FIND(ep_create, "ucp_ep_create"), FIND(send, "ucp_tag_send_nbx");
    FIND(recv, "ucp_tag_recv_nbx"), FIND(status, "ucp_request_check_status");
    FIND(request_free, "ucp_request_free"), FIND(worker_destroy, "ucp_worker_destroy");
    FIND(cleanup, "ucp_cleanup");
}
/* A worker with a descriptor, which is what the feature of wake-up is for, connected to itself. */
static void begin_ucx(void) {
    uint64_t params[64] = {FEATURES, TAG | WAKEUP}, defaults[64] = {0}, to[64] = {REMOTE_ADDRESS};
    void *address;
    size_t len;
    MUST(!ucx.init(1, 13, params, NULL, &ucx.context));
    MUST(!ucx.worker_create(ucx.context, defaults, &ucx.worker));
    MUST(!ucx.address(ucx.worker, &address, &len));
    to[1] = (uintptr_t)address;
    MUST(!ucx.ep_create(ucx.worker, to, &ucx.ep));
    ucx.address_free(ucx.worker, address);
}
static void on_hello(weft_ep_t *ep, weft_am_t *am, void *received) {
    *(int *)received = printf("received by Weft: %.*s\n", (int)am->len, (const char *)am->data);
}

int main(void) {
    void *library = dlopen("libucp.so.0", RTLD_NOW | RTLD_GLOBAL);
    if (!library) return puts("no UCX here: libucp.so.0 is not installed"), 0;
    weft_context_t *context;
    weft_worker_t *worker;
    weft_events_t events;
    weft_resource_t *resource;
    find_calls(library);
    begin_ucx();
    MUST(!weft_context_create(NULL, &context) && !weft_worker_create(context, NULL, &worker));
    MUST(!weft_ucx_events("libucp.so.0", ucx.worker, &events));
    weft_resource_value_t value = {WEFT_RES_WORKER_EVENTS, &events, sizeof events};
    weft_resource_params_t params = {.kind = WEFT_RESOURCE_EVENTS, .values = &value, .n_values = 1};
    MUST(!weft_resource_describe(&params, &resource));
    weft_associate_params_t with = {.resource = resource};
    MUST(!weft_associate_resources(context, WEFT_OBJECT_WORKER, &with, worker));

    weft_ep_t *ep;
    char to[256], got[LEN];
    size_t len = sizeof to;
    int received = 0;
    uint64_t defaults[16] = {0};
    MUST(!weft_am_handler_set(worker, HELLO, on_hello, &received));
    MUST(!weft_worker_address(worker, to, &len) &&
         !weft_connect_address(worker, to, len, NULL, &ep));
    void *receive = ucx.recv(ucx.worker, got, LEN, UCX_TAG, UINT64_MAX, defaults);
    void *sent = ucx.send(ucx.ep, "by one waiter", LEN, UCX_TAG, defaults);
    MUST(weft_am_send(ep, HELLO, NULL, 0, &(weft_iov_t){"by one waiter", LEN}, 1, NULL) >= 0);
    while (!received || ucx.status(receive) == UNDER_WAY) MUST(!weft_worker_wait(worker, -1));
    MUST(!ucx.status(receive));
    printf("received by UCX: %s\n", got);
    ucx.request_free(receive);
    if (sent) ucx.request_free(sent);

    MUST(!weft_disassociate_resources(resource, worker, NULL) && !weft_resource_release(resource));
    ucx.worker_destroy(ucx.worker), ucx.cleanup(ucx.context);
    weft_worker_destroy(worker);
    MUST(!weft_context_destroy(context));
    puts("given back, and destroyed");
}
