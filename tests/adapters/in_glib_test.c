/* Two workers in one loop of GLib, by its adapter. */
#include "pair.h"
#include <weft/adapters/glib.h>

struct glib_pair {
    struct pair_loop loop;
    GMainContext *context;
    GSource *source[2];
};

static void attach(struct pair_loop *loop, int i, weft_worker_t *worker) {
    struct glib_pair *pair = (struct glib_pair *)loop;
    pair->source[i] = weft_glib_attach(pair->context, worker);
    CHECK(pair->source[i] != NULL);
}

static void detach(struct pair_loop *loop, int i) {
    weft_glib_detach(((struct glib_pair *)loop)->source[i]);
}

static void turn(struct pair_loop *loop) {
    g_main_context_iteration(((struct glib_pair *)loop)->context, TRUE);
}

static void passes(const char *transports, const char *uri) {
    struct glib_pair pair = {.loop = {attach, detach, turn}, .context = g_main_context_new()};
    pair_passes(&pair.loop, transports, uri);
    g_main_context_unref(pair.context);
}

TEST(messages_over_shm_wake_glib) {
    passes("shm", NULL);
}
TEST(messages_over_tcp_wake_glib) {
    passes("tcp", "tcp://127.0.0.1:0");
}
