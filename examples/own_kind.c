/*
 * A kind of resource of one's own: own_kind. A pool of four buffers, which a program gives to
 * libraries. Each library has a context in associated mode, takes a place in the pool by the
 * association, and finds the pool by its key. Prints who has a place.
 */
#include <stdio.h>
#include <weft/weft.h>

#define MY_POOL "WEFT_RES_CONTEXT_POOL"
enum { BUFFERS = 4, LIBRARIES = 6 };

/* ---- the provider ---------------------------------------------------------------------------- */

struct pool {
    unsigned taken;
    char buffer[BUFFERS][4096];
};

/* An error refuses the association as a whole. */
static weft_status_t acquire(weft_resource_t *resource, const weft_resource_value_t *value,
                             void *arg) {
    struct pool *pool = arg;
    if (pool->taken == BUFFERS) return WEFT_ERR_QUOTA;
    pool->taken++;
    return WEFT_OK;
}

static void release(weft_resource_t *resource, const weft_resource_value_t *value, void *arg) {
    ((struct pool *)arg)->taken--;
}

static weft_status_t describe_pool(struct pool *pool, weft_resource_t **resource_p) {
    static const char *const mandatory[] = {MY_POOL};
    weft_resource_value_t value = {MY_POOL, &pool, sizeof pool}; /* the pointer is copied */
    weft_resource_params_t params = {.name = "pool",
                                     .values = &value,
                                     .n_values = 1,
                                     .mandatory = mandatory,
                                     .n_mandatory = 1,
                                     .share = WEFT_SHARE_PART,
                                     .provider = {acquire, release, .arg = pool}};
    return weft_resource_describe(&params, resource_p);
}

/* ---- a consumer ------------------------------------------------------------------------------ */

struct library {
    weft_context_t *context;
    weft_status_t status;
};

static void open_library(struct library *l, weft_resource_t *resource) {
    const void *value;
    size_t len;
    weft_context_params_t params = {.associated = 1};
    weft_associate_params_t with = {.resource = resource, .abi_version = WEFT_RESOURCE_ABI};
    l->status = weft_context_create(&params, &l->context);
    if (l->status < 0) return;
    l->status = weft_associate_resources(l->context, WEFT_OBJECT_CONTEXT, &with, l->context);
    if (l->status < 0 || weft_resource_value(resource, MY_POOL, &value, &len) < 0) return;
    struct pool *pool = *(struct pool *const *)value;
    printf("a library has a place; %u of %d are taken\n", pool->taken, BUFFERS);
}

static void close_library(struct library *l, weft_resource_t *resource) {
    if (l->status == WEFT_OK) weft_disassociate_resources(resource, l->context, NULL);
    if (l->context) weft_context_destroy(l->context);
}

int main(void) {
    static struct pool pool;
    struct library library[LIBRARIES] = {{NULL, WEFT_OK}};
    weft_resource_t *resource;
    unsigned refused = 0;
    if (describe_pool(&pool, &resource)) return 1;
    for (int i = 0; i < LIBRARIES; i++) {
        open_library(&library[i], resource);
        refused += library[i].status == WEFT_ERR_QUOTA;
    }
    printf("%u libraries were refused\n", refused);
    for (int i = 0; i < LIBRARIES; i++) close_library(&library[i], resource);
    weft_status_t st = weft_resource_release(resource); /* BUSY while a library has a place */
    printf("%u are taken, and the pool is free\n", pool.taken);
    return st != WEFT_OK || pool.taken != 0 || refused != LIBRARIES - BUFFERS;
}
