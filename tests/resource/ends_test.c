/* Resources that end while notices, losses and drains are under way. */
#include "shared.h"
#include <ev.h>

/* ---- notices for a provider that has released the resource ----------------------------------- */

static void note_event(weft_resource_t *resource, weft_resource_event_t event, void *arg) {
    weft_resource_info_t info;
    CHECK_EQ(weft_resource_info(resource, &info), 0);
    ++*(int *)arg;
}

TEST(a_notice_that_is_posted_outlives_no_release) {
    struct sharing s;
    int n = 0;
    share_up(&s, "self");
    weft_worker_t *provider = s.two.a, *library = stub_worker(s.context);
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_HANDLE, provider);
    weft_resource_params_t params = {
        .kind = WEFT_RESOURCE_WORKER,
        .values = &value,
        .n_values = 1,
        .provider = {.worker = two_b(&s.two), .notify = note_event, .arg = &n}};
    weft_resource_t *resource;
    CHECK_EQ(weft_resource_describe(&params, &resource), 0);
    CHECK_EQ(associate(s.context, WEFT_OBJECT_WORKER, resource, library), 0);
    CHECK_EQ(weft_disassociate_resources_wait(resource, library), 0);
    CHECK_EQ(n, 0); /* both are posted to the other worker */
    CHECK_EQ(weft_resource_release(resource), 0);
    while (weft_worker_progress(two_b(&s.two), 0) > 0) continue;
    CHECK_EQ(n, 0);
    weft_worker_destroy(library);
    share_down(&s);
}
