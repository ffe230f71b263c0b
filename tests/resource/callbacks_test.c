/* What programs do to associations within the callbacks that these make. */
#include "shared.h"

#include <sys/eventfd.h>

/* ---- a library that leaves the worker in its progress, while a notice is on its way ---------- */

struct quitter {
    int fd, calls;
    weft_resource_t *resource;
    weft_worker_t *worker;
};

static unsigned quit(void *arg) {
    struct quitter *q = arg;
    if (q->calls++) return 1;
    (void)weft_resource_withdraw(q->resource, NULL); /* its notice is posted */
    CHECK_EQ(weft_disassociate_resources(q->resource, q->worker, NULL), 0);
    return 1;
}

TEST(a_library_that_has_left_the_worker_is_not_asked_again) {
    struct two t;
    struct quitter q = {.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    weft_events_t events = {.fd = q.fd, .progress = quit, .arg = &q};
    two_workers(&t, "self", NULL, 0);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_EVENTS, events);
    q.resource = describe(WEFT_RESOURCE_EVENTS, &value, 1);
    q.worker = t.a;
    CHECK_EQ(associate(t.context, WEFT_OBJECT_WORKER, q.resource, t.a), 0);
    UNTIL(&t, q.calls);
    CHECK_EQ(q.calls, 1);
    for (int i = 0; i < 10; i++) two_turn(&t);
    CHECK_EQ(q.calls, 1);
    CHECK_EQ(weft_resource_release(q.resource), 0);
    close(q.fd);
    two_down(&t);
}
