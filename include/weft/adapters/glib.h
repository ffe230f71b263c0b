/*
 * A worker in a GMainContext: one GSource on the worker's descriptor, no timer.
 *
 *     GSource *source = weft_glib_attach(g_main_context_default(), worker);
 *
 * All callbacks of the worker come from the context's iteration. They may call every function of
 * the library and of GLib, except weft_worker_destroy and the _wait forms.
 */
#ifndef WEFT_ADAPTERS_GLIB_H
#define WEFT_ADAPTERS_GLIB_H

#include <glib.h>
#include <weft/worker.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_glib {
    GSource source; /* GLib allocates all of this */
    weft_worker_t *worker;
    gpointer tag;
} weft_glib_t;

static inline gboolean weft_glib_check(GSource *source) {
    return g_source_query_unix_fd(source, ((weft_glib_t *)source)->tag) != 0;
}

static inline gboolean weft_glib_dispatch(GSource *source, GSourceFunc fn, gpointer arg) {
    (void)fn;
    (void)arg;
    /* BUSY: the program iterates the context within a callback, where the descriptor is silent. */
    (void)weft_worker_progress(((weft_glib_t *)source)->worker, 0);
    return G_SOURCE_CONTINUE;
}

/*
 * Attaches `worker`, which the thread of `context` owns, to `context` (NULL: the default one).
 * Returns the source, which weft_glib_detach releases, or NULL: the worker has no descriptor.
 */
static inline GSource *weft_glib_attach(GMainContext *context, weft_worker_t *worker) {
    static GSourceFuncs functions = {NULL, weft_glib_check, weft_glib_dispatch, NULL, NULL, NULL};
    int fd = weft_worker_fd_level(worker);
    GSource *source;
    if (fd < 0) return NULL;
    source = g_source_new(&functions, sizeof(weft_glib_t));
    ((weft_glib_t *)source)->worker = worker;
    ((weft_glib_t *)source)->tag = g_source_add_unix_fd(source, fd, G_IO_IN);
    g_source_attach(source, context);
    return source;
}

/*
 * Stops watching and releases the source: within `done` of weft_worker_close, or before
 * weft_worker_destroy.
 */
static inline void weft_glib_detach(GSource *source) {
    g_source_destroy(source);
    g_source_unref(source);
}

#ifdef __cplusplus
}
#endif
#endif
