/* Why a link takes the lane that it takes. Most links of a worker have the same reason, so they
 * share one text, which the last of them frees. */
#include "link_local.h"
#include "worker.h"

struct reason {
    uint32_t users;
    char text[];
};

static struct reason *reason_of(const char *why) {
    return container_of((uintptr_t)why, struct reason, text);
}

char *weft__reason_share(struct weft_worker *worker, const char *text) {
    size_t size = strlen(text) + 1;
    char *why = worker->last_why;
    if (!why || strcmp(why, text) != 0) {
        struct reason *own = weft__alloc(worker, sizeof *own + size, "reason");
        if (!own) return NULL;
        why = worker->last_why = memcpy(own->text, text, size);
    }
    reason_of(why)->users++;
    return why;
}

void weft__reason_drop(struct weft_worker *worker, char *why) {
    if (!why || --reason_of(why)->users > 0) return;
    if (worker->last_why == why) worker->last_why = NULL;
    talloc_free(reason_of(why));
}
