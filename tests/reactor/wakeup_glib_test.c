/* Every promise of the wakeup contract inside GLib's main loop, through the worker's fd. */
#include "hosts.h"
#include "traffic.h"
#include <glib-unix.h>
#include <tests/harness.h>

struct glib_host {
    GMainContext *context;
    GSource *source;
};

static gboolean on_ready(gint fd, GIOCondition condition, gpointer host) {
    host_progress(host);
    return G_SOURCE_CONTINUE;
}
static gboolean on_timeout(gpointer unused) {
    return G_SOURCE_REMOVE;
}

static void open_glib(struct host *host) {
    struct glib_host *glib = host->watcher = calloc(1, sizeof *glib);
    glib->context = g_main_context_new();
    glib->source = g_unix_fd_source_new(weft__reactor_fd(host->r), G_IO_IN);
    g_source_set_callback(glib->source, (GSourceFunc)(void (*)(void))on_ready, host, NULL);
    g_source_attach(glib->source, glib->context);
}

static void step_glib(struct host *host, int timeout_ms) {
    struct glib_host *glib = host->watcher;
    GSource *timeout = g_timeout_source_new((guint)timeout_ms);
    g_source_set_callback(timeout, on_timeout, NULL, NULL);
    g_source_attach(timeout, glib->context);
    g_main_context_iteration(glib->context, TRUE);
    g_source_destroy(timeout);
    g_source_unref(timeout);
}

static void close_glib(struct host *host) {
    struct glib_host *glib = host->watcher;
    g_source_destroy(glib->source);
    g_source_unref(glib->source);
    g_main_context_unref(glib->context);
    free(glib);
}

static const struct host host_glib = {
    .name = "GLib", .open = open_glib, .step = step_glib, .close = close_glib};

TEST(wakes_glib) {
    CHECK(scenarios_pass(&host_glib));
}
TEST(messages_wake_glib) {
    CHECK(traffic_passes(&host_glib));
}
