#include "pair.h"

#include <stdio.h>
#include <string.h>

struct dial {
    int ready, gone;
    weft_status_t lost;
};

static void on_ready(weft_ep_t *ep, void *arg) {
    ((struct dial *)arg)->ready = 1;
}

static void on_error(weft_ep_t *ep, weft_status_t status, void *arg) {
    ((struct dial *)arg)->lost = status;
}

static void on_gone(weft_status_t status, void *arg) {
    ((struct dial *)arg)->gone = 1;
}

static size_t transport_named(weft_worker_t *worker, const char *name) {
    weft_transport_info_t t;
    size_t i = 0;
    while (weft_worker_transport(worker, i, &t) == WEFT_OK && strcmp(t.name, name) != 0) i++;
    return i;
}

static int complain(const char *uri, weft_status_t status) {
    char text[512];
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "weft-info: %s: %s\n", uri, text);
    return 0;
}

/* Its strings are those of the worker's, which is not driven before they are printed. */
static weft_status_t poll_pair(weft_worker_t *worker, weft_ep_t *ep, struct info_pair *pair) {
    weft_status_t st = weft_ep_describe(ep, &pair->ep);
    if (st == WEFT_OK) pair->transport = transport_named(worker, pair->ep.transport);
    return st;
}

int info_pair(weft_worker_t *worker, const char *uri,
              void (*notify)(weft_worker_t *, const struct info_pair *)) {
    struct dial dial = {0};
    struct info_pair pair = {.uri = uri};
    weft_ep_params_t params = {.on_ready = on_ready, .on_error = on_error, .arg = &dial};
    weft_ep_t *ep;
    weft_status_t st = weft_connect(worker, uri, &params, &ep);
    if (st < 0) return complain(uri, st);
    while (!dial.ready && dial.lost == WEFT_OK) weft_worker_wait(worker, -1);
    st = dial.ready ? poll_pair(worker, ep, &pair) : dial.lost;
    if (st == WEFT_OK)
        notify(worker, &pair);
    else
        (void)complain(uri, st);
    if (weft_ep_close(ep, WEFT_CLOSE_FLUSH, &(weft_op_t){.done = on_gone, .arg = &dial}) ==
        WEFT_IN_PROGRESS)
        while (!dial.gone) weft_worker_wait(worker, -1);
    return st == WEFT_OK;
}
