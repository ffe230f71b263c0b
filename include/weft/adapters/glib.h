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
#include <weft/adapters/readable.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_glib {
    GSource source;        /* GLib allocates all of this */
    weft_worker_t *worker; /* NULL once it is detached */
    gpointer tag;
    unsigned looks; /* weft_adapter_readable; at first WEFT_ADAPTER_LOOKS */
} weft_glib_t;

static inline gboolean weft_glib_check(GSource *source) {
    return g_source_query_unix_fd(source, ((weft_glib_t *)source)->tag) != 0;
}

static inline gboolean weft_glib_dispatch(GSource *source, GSourceFunc fn, gpointer arg) {
    weft_glib_t *host = (weft_glib_t *)source; /* GLib keeps it for the length of this call */
    (void)fn;
    (void)arg;
    weft_adapter_readable(&host->worker, 0, host->looks);
    return G_SOURCE_CONTINUE;
}

/*
 * Attaches `worker`, which the thread of `context` owns, to `context` (NULL: the default one).
 * Returns the source, which weft_glib_detach releases, or NULL: the worker has no descriptor. The
 * source is a weft_glib_t, whose `looks` the program may change.
 */
static inline GSource *weft_glib_attach(GMainContext *context, weft_worker_t *worker) {
    static GSourceFuncs functions = {NULL, weft_glib_check, weft_glib_dispatch, NULL, NULL, NULL};
    int fd = weft_worker_fd_level(worker);
    GSource *source;
    if (fd < 0) return NULL;
    source = g_source_new(&functions, sizeof(weft_glib_t));
    ((weft_glib_t *)source)->worker = worker;
    ((weft_glib_t *)source)->looks = WEFT_ADAPTER_LOOKS;
    ((weft_glib_t *)source)->tag = g_source_add_unix_fd(source, fd, G_IO_IN);
    g_source_attach(source, context);
    return source;
}

/*
 * Stops watching and releases the source: within `done` of weft_worker_close, or before
 * weft_worker_destroy.
 */
static inline void weft_glib_detach(GSource *source) {
    ((weft_glib_t *)source)->worker = NULL;
    g_source_destroy(source);
    g_source_unref(source);
}

#ifdef __cplusplus
}
#endif
#endif
