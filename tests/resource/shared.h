/* A program with a worker of its own, and a library that shares it. */
#ifndef WEFT_TESTS_RESOURCE_SHARED_H
#define WEFT_TESTS_RESOURCE_SHARED_H

#include <endpoints/core/worker.h>
#include <tests/support/worker_pair.h>
#include <weft/resource.h>

#define VALUE(key_, variable) ((weft_resource_value_t){key_, &(variable), sizeof(variable)})

static inline weft_context_t *associated_context(void) {
    weft_context_t *context;
    CHECK_EQ(weft_context_create(&(weft_context_params_t){.associated = 1}, &context), 0);
    return context;
}

static inline weft_worker_t *stub_worker(weft_context_t *context) {
    weft_worker_t *worker;
    CHECK_EQ(weft_worker_create(context, &(weft_worker_params_t){.associated = 1}, &worker), 0);
    return worker;
}

static inline weft_resource_t *describe(weft_resource_kind_t kind,
                                        const weft_resource_value_t *values, size_t n) {
    weft_resource_t *resource;
    weft_resource_params_t params = {
        .kind = kind, .values = values, .n_values = n, .share = WEFT_SHARE_PART};
    CHECK_EQ(weft_resource_describe(&params, &resource), 0);
    return resource;
}

static inline weft_resource_t *worker_resource(weft_worker_t *provider) {
    weft_resource_value_t value = VALUE(WEFT_RES_WORKER_HANDLE, provider);
    return describe(WEFT_RESOURCE_WORKER, &value, 1);
}

static inline weft_status_t associate(weft_context_t *context, weft_object_t type,
                                      weft_resource_t *resource, void *object) {
    return weft_associate_resources(context, type, &(weft_associate_params_t){.resource = resource},
                                    object);
}

/* Two workers, and a library beside each that shares it. */
struct sharing {
    struct two two;
    weft_context_t *context;
    weft_resource_t *resource[2];
    weft_worker_t *library[2];
    weft_ep_t *ep; /* the library's, from the first worker to the second */
};

static inline void share_up(struct sharing *s, const char *transports) {
    memset(s, 0, sizeof *s);
    two_workers(&s->two, transports, NULL, 0);
    s->context = associated_context();
    for (int i = 0; i < 2; i++) {
        s->resource[i] = worker_resource(i ? two_b(&s->two) : s->two.a);
        s->library[i] = stub_worker(s->context);
        CHECK_EQ(associate(s->context, WEFT_OBJECT_WORKER, s->resource[i], s->library[i]), 0);
    }
}

/* Each library connects to the other: set[i][!i], for a team over endpoints. */
static inline void connect_libraries(struct sharing *s, weft_ep_t *set[2][2]) {
    for (int i = 0; i < 2; i++) {
        char address[256];
        size_t len = sizeof address;
        CHECK_EQ(weft_worker_address(s->library[!i], address, &len), 0);
        CHECK_EQ(weft_connect_address(s->library[i], address, len, NULL, &set[i][!i]), 0);
    }
}

static inline void share_dial(struct sharing *s) {
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(s->library[1], address, &len), 0);
    CHECK_EQ(weft_connect_address(s->library[0], address, len, NULL, &s->ep), 0);
}

static inline void share_down(struct sharing *s) {
    for (int i = 0; i < 2; i++) {
        if (s->library[i]) weft_worker_destroy(s->library[i]);
        CHECK_EQ(weft_resource_release(s->resource[i]), 0);
    }
    CHECK_EQ(weft_context_destroy(s->context), 0);
    two_down(&s->two);
}

#endif
