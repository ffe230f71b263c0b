/*
 * Two libraries on one worker: shared_worker. The program has a worker. A library uses it too, by
 * the same ids of active messages, and neither gets the other's messages.
 */
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

enum { ID = 1 };
static int program_got, library_got;

static void must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

static void on_message(weft_ep_t *ep, weft_am_t *am, void *got) {
    ++*(int *)got;
}

/* A library's own context and worker. It does not know yet where they will run. */
static void library_open(weft_context_t **context, weft_worker_t **worker) {
    weft_context_params_t later = {.associated = 1};
    weft_worker_params_t later_too = {.associated = 1, .name = "library"};
    must(weft_context_create(&later, context), "context");
    must(weft_worker_create(*context, &later_too, worker), "worker");
    must(weft_am_handler_set(*worker, ID, on_message, &library_got), "handler");
    printf("the library asks: %s\n", weft_status_name(weft_worker_flush(*worker, NULL)));
}

static weft_ep_t *connect_to_itself(weft_worker_t *worker) {
    char address[256];
    size_t len = sizeof address;
    weft_ep_t *ep;
    must(weft_worker_address(worker, address, &len), "address");
    must(weft_connect_address(worker, address, len, NULL, &ep), "connect");
    return ep;
}

int main(void) {
    weft_context_t *context, *library_context;
    weft_worker_t *worker, *library;
    weft_resource_t *resource;
    weft_lease_t lease;
    weft_iov_t text = {"hello", 5};
    library_open(&library_context, &library);

    must(weft_context_create(NULL, &context), "context");
    must(weft_worker_create(context, NULL, &worker), "worker");
    must(weft_am_handler_set(worker, ID, on_message, &program_got), "handler");

    weft_resource_params_t shared = {.share = WEFT_SHARE_PART};
    must(weft_resource_export(WEFT_OBJECT_WORKER, worker, WEFT_RESOURCE_WORKER, &shared, &resource),
         "export");
    weft_associate_params_t with = {.resource = resource, .abi_version = WEFT_RESOURCE_ABI};
    must(weft_associate_resources(library_context, WEFT_OBJECT_WORKER, &with, library),
         "associate");
    must(weft_worker_lease(library, &lease), "lease");
    printf("its ids 0 … %u are %u … %u of the worker\n", lease.am_count - 1, lease.am_first,
           lease.am_first + lease.am_count - 1);

    weft_ep_t *mine = connect_to_itself(worker), *theirs = connect_to_itself(library);
    must(weft_am_send_wait(mine, ID, NULL, 0, &text, 1), "send");
    for (int i = 0; i < 2; i++) must(weft_am_send_wait(theirs, ID, NULL, 0, &text, 1), "send");
    while (program_got < 1 || library_got < 2) must(weft_worker_wait(worker, 1000), "wait");
    printf("the program got %d, the library %d\n", program_got, library_got);

    must(weft_disassociate_resources_wait(resource, library), "disassociate");
    printf("the library asks: %s\n", weft_status_name(weft_worker_flush(library, NULL)));
    weft_worker_destroy(library);
    weft_context_destroy(library_context);
    must(weft_resource_release(resource), "release");
    weft_worker_destroy(worker);
    weft_context_destroy(context);
}
