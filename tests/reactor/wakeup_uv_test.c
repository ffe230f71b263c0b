/* Every promise of the wakeup contract inside libuv, through the worker's fd. */
#include "hosts.h"
#include "traffic.h"
#include <tests/harness.h>
#include <uv.h>

struct uv_host {
    uv_loop_t loop;
    uv_poll_t poll;
    uv_timer_t timer;
};

static void on_ready(uv_poll_t *poll, int status, int events) {
    host_progress(poll->data);
}
static void on_timeout(uv_timer_t *timer) {}

static void open_uv(struct host *host) {
    struct uv_host *uv = host->watcher = calloc(1, sizeof *uv);
    uv_loop_init(&uv->loop);
    uv_timer_init(&uv->loop, &uv->timer);
    uv_poll_init(&uv->loop, &uv->poll, weft__reactor_fd(host->r));
    uv->poll.data = host;
    uv_poll_start(&uv->poll, UV_READABLE, on_ready);
}

static void step_uv(struct host *host, int timeout_ms) {
    struct uv_host *uv = host->watcher;
    uv_update_time(&uv->loop);
    uint64_t ms = timeout_ms > 0 ? (uint64_t)timeout_ms : 1;
    /* uv_run fires what is due already, and sleeps after it: a timer of one shot would then be
     * gone. */
    uv_timer_start(&uv->timer, on_timeout, ms, ms);
    uv_run(&uv->loop, UV_RUN_ONCE);
    uv_timer_stop(&uv->timer);
}

/* The reactor, and its fd with it, is gone before the loop: uv_poll must be stopped by then at the
 * latest. */
static void close_uv(struct host *host) {
    struct uv_host *uv = host->watcher;
    uv_close((uv_handle_t *)&uv->poll, NULL);
    uv_close((uv_handle_t *)&uv->timer, NULL);
    uv_run(&uv->loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&uv->loop)) abort();
    free(uv);
}

static const struct host host_uv = {
    .name = "libuv", .open = open_uv, .step = step_uv, .close = close_uv};

TEST(wakes_libuv) {
    CHECK(scenarios_pass(&host_uv));
}
TEST(messages_wake_libuv) {
    CHECK(traffic_passes(&host_uv));
}
