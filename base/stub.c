/* The list of a context's stubs, and the checks that a call makes on an object in associated
 * mode. */
#include "stub.h"

#include "alloc.h"
#include "context.h"
#include "status.h"
#include <pthread.h>

struct stubs {
    pthread_mutex_t lock;
    struct list all;
    struct stub context; /* of the context itself */
};

static void stub_init(struct stub *stub, weft_context_t *context, enum stub_type type,
                      void *object) {
    stub->context = context;
    stub->type = type;
    stub->object = object;
    atomic_init(&stub->claim, NULL);
    atomic_init(&stub->state, NULL);
    atomic_init(&stub->status, WEFT_ERR_NOT_ASSOCIATED);
    list_init(&stub->of_context);
}

weft_status_t weft__stubs_open(weft_context_t *context) {
    struct stubs *stubs = weft__new(context, struct stubs);
    if (!stubs) return WEFT_ERR_NO_MEMORY;
    pthread_mutex_init(&stubs->lock, NULL);
    list_init(&stubs->all);
    stub_init(&stubs->context, context, STUB_CONTEXT, context);
    context->stubs = stubs;
    return WEFT_OK;
}

weft_status_t weft__stubs_close(weft_context_t *context) {
    struct stubs *stubs = context->stubs;
    if (!stubs) return WEFT_OK;
    if (!list_empty(&stubs->all))
        return weft__fail(WEFT_ERR_BUSY, "objects in associated mode are still open");
    if (atomic_load(&stubs->context.claim))
        return weft__fail(WEFT_ERR_BUSY, "the context is associated with a resource");
    pthread_mutex_destroy(&stubs->lock);
    return WEFT_OK;
}

weft_status_t weft__stub_new(weft_context_t *context, enum stub_type type, void *object,
                             weft_worker_t *worker, struct stub **stub_p) {
    if (!context->stubs)
        return weft__fail(WEFT_ERR_INVALID_PARAM,
                          "context: the parent was not created in associated mode");
    struct stub *stub = weft__new(NULL, struct stub);
    if (!stub) return WEFT_ERR_NO_MEMORY;
    stub_init(stub, context, type, object);
    stub->worker = worker;
    pthread_mutex_lock(&context->stubs->lock);
    list_append(&context->stubs->all, &stub->of_context);
    pthread_mutex_unlock(&context->stubs->lock);
    *stub_p = stub;
    return WEFT_OK;
}

void weft__stub_free(struct stub *stub) {
    if (!stub) return;
    pthread_mutex_lock(&stub->context->stubs->lock);
    list_remove(&stub->of_context);
    pthread_mutex_unlock(&stub->context->stubs->lock);
    talloc_free(stub);
}

struct stub *weft__stub_find(weft_context_t *context, enum stub_type type, const void *object) {
    struct stubs *stubs = context->stubs;
    struct stub *found = NULL;
    if (!stubs) return NULL;
    if (type == STUB_CONTEXT) return object == context ? &stubs->context : NULL;
    pthread_mutex_lock(&stubs->lock);
    list_for_each(n, &stubs->all) {
        struct stub *stub = list_of(n, struct stub, of_context);
        if (stub->object == object && stub->type == type) found = stub;
    }
    pthread_mutex_unlock(&stubs->lock);
    return found;
}

void weft__stub_free_object(struct stub *stub) {
    talloc_free(stub->object);
}

weft_status_t weft__stub_refuse(const struct stub *stub) {
    static const char *const name[] = {"context", "worker", "team", "endpoint", "region"};
    weft_status_t status = atomic_load(&stub->status);
    return weft__fail(status, "the %s was created in associated mode", name[stub->type]);
}

weft_status_t weft__context_usable(weft_context_t *context) {
    if (!context->stubs || atomic_load(&context->stubs->context.status) == WEFT_OK) return WEFT_OK;
    return weft__stub_refuse(&context->stubs->context);
}
