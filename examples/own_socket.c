/*
 * A program has a worker and a connected TCP socket: own_socket. A library's endpoint works over
 * the socket, and gives it back.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <weft/weft.h>

enum { HELLO = 1 };

/* `expression` is true, or the program ends. */
#define MUST(expression) ((expression) ? (void)0 : fail(#expression))
static void fail(const char *what) {
    fprintf(stderr, "failed: %s\n", what);
    exit(1);
}

static weft_resource_t *describe(weft_resource_kind_t kind, weft_resource_value_t value) {
    weft_resource_params_t params = {.kind = kind, .values = &value, .n_values = 1};
    weft_resource_t *resource = NULL;
    MUST(!weft_resource_describe(&params, &resource));
    return resource;
}
static void associate(weft_context_t *context, weft_object_t type, weft_resource_t *resource,
                      void *object) {
    weft_associate_params_t with = {.resource = resource};
    MUST(!weft_associate_resources(context, type, &with, object));
}
static void give_back(weft_resource_t *resource, void *object) {
    MUST(weft_disassociate_resources_wait(resource, object) >= 0);
    MUST(!weft_resource_release(resource));
}
static void on_hello(weft_ep_t *ep, weft_am_t *am, void *received) {
    printf("received: %.*s\n", (int)am->len, (const char *)am->data);
    *(int *)received = 1;
}

/* A socket that is connected to a listener at this machine. */
static int connected_to(const char *uri) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    unsigned short port;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(sscanf(uri, "tcp://127.0.0.1:%hu", &port) == 1);
    at.sin_port = htons(port);
    MUST(connect(fd, (struct sockaddr *)&at, sizeof at) == 0);
    return fd;
}

int main(void) {
    weft_context_params_t later = {.associated = 1};
    weft_context_t *context, *library;
    weft_worker_t *worker, *librarys;
    weft_listener_t *listener;
    weft_ep_t *ep;
    int received = 0;
    char byte;
    MUST(!weft_context_create(NULL, &context));
    MUST(!weft_worker_create(context, NULL, &worker));
    MUST(!weft_listen(worker, "tcp://127.0.0.1:0", NULL, &listener));
    int fd = connected_to(weft_listener_uri(listener));

    MUST(!weft_context_create(&later, &library));
    MUST(!weft_worker_create(library, &(weft_worker_params_t){.associated = 1}, &librarys));
    MUST(!weft_am_handler_set(librarys, HELLO, on_hello, &received));
    weft_resource_t *by =
        describe(WEFT_RESOURCE_WORKER,
                 (weft_resource_value_t){WEFT_RES_WORKER_HANDLE, &worker, sizeof worker});
    associate(library, WEFT_OBJECT_WORKER, by, librarys);
    MUST(!weft_connect(librarys, NULL, &(weft_ep_params_t){.associated = 1}, &ep));
    weft_resource_t *over =
        describe(WEFT_RESOURCE_CONNECTION,
                 (weft_resource_value_t){WEFT_RES_ENDPOINT_SOCKET, &fd, sizeof fd});
    associate(library, WEFT_OBJECT_ENDPOINT, over, ep);
    MUST(!weft_am_send_wait(ep, HELLO, NULL, 0, &(weft_iov_t){"by my socket", 12}, 1));
    while (!received) MUST(!weft_worker_wait(worker, -1));

    give_back(over, ep);
    while (recv(fd, &byte, 1, MSG_DONTWAIT) != 0)
        MUST(errno == EAGAIN && weft_worker_progress(worker, 0) >= 0);
    puts("the stream has ended, and the socket is the program's");
    MUST(close(fd) == 0);
    give_back(by, librarys);
    weft_worker_destroy(librarys);
    MUST(!weft_context_destroy(library));
    weft_worker_destroy(worker);
    MUST(!weft_context_destroy(context));
}
