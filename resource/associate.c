/* Associating: an object gets its resource, or nothing changes. */
#include <endpoints/core/worker.h>
#include <string.h>

#include "resource.h"

const void *weft__association_value(const struct association *a, const char *key, size_t size) {
    const weft_resource_value_t *value = weft__values_find(&a->values, key);
    if (!value) value = weft__values_find(&a->resource->values, key);
    return value && value->len >= size ? value->value : NULL;
}

const weft_resource_value_t *weft__association_array(const struct association *a, const char *key) {
    const weft_resource_value_t *value = weft__values_find(&a->values, key);
    return value ? value : weft__values_find(&a->resource->values, key);
}

static weft_status_t check_key(const struct association *a, const char *key) {
    if (weft__values_find(&a->values, key) || weft__values_find(&a->resource->values, key))
        return WEFT_OK;
    return weft__fail(WEFT_ERR_INVALID_PARAM, "the mandatory value %s is missing", key);
}

static weft_status_t check_keys(const struct association *a) {
    const weft_resource_t *r = a->resource;
    weft_status_t st = WEFT_OK;
    bool described = a->type == WEFT_OBJECT_CONTEXT;
    for (const char *const *key = a->kind->mandatory; st == WEFT_OK && *key && !described; key++)
        st = check_key(a, *key);
    for (size_t i = 0; st == WEFT_OK && i < r->n_mandatory; i++) st = check_key(a, r->mandatory[i]);
    return st;
}

static weft_status_t acquire(struct association *a) {
    const weft_resource_t *r = a->resource;
    weft_status_t st = WEFT_OK;
    for (; a->n_acquired < r->values.n; a->n_acquired++) {
        if (r->provider.acquire)
            st = r->provider.acquire(a->resource, &r->values.value[a->n_acquired], r->provider.arg);
        weft__resource_program_returned(r);
        if (st < 0) return weft__fail_in(st, "acquiring %s", r->values.value[a->n_acquired].key);
    }
    return WEFT_OK;
}

static weft_status_t associate_begin(struct association *a) {
    if (a->type == WEFT_OBJECT_CONTEXT) {
        atomic_store(&a->stub->status, WEFT_OK);
        return WEFT_OK;
    }
    weft_status_t st = a->kind->begin ? a->kind->begin(a) : WEFT_OK;
    a->begun = st == WEFT_OK;
    return st;
}

/* All or nothing: after an error nothing is attached. */
static weft_status_t attach(struct association *a) {
    weft__association_step(a, ASSOC_EV_ATTACH);
    weft_status_t st = check_keys(a);
    if (st == WEFT_OK) st = acquire(a);
    bool known = a->reactor != NULL; /* otherwise `begin` finds it */
    if (st == WEFT_OK && known) st = weft__association_reserve(a);
    if (st == WEFT_OK) st = associate_begin(a);
    if (st == WEFT_OK && !known) st = weft__association_reserve(a);
    if (st == WEFT_OK) {
        weft__association_step(a, ASSOC_EV_COMPLETE);
        weft__fsm_step(&a->grant.fsm, GRANT_EV_TAKE);
        return WEFT_OK;
    }
    weft__association_unreserve(a);
    weft__association_step(a, ASSOC_EV_UNDO);
    return st;
}

static weft_status_t check_version(const weft_resource_t *r, const weft_associate_params_t *p) {
    if (p->abi_version && p->abi_version != WEFT_RESOURCE_ABI)
        return weft__fail(WEFT_ERR_VERSION_MISMATCH,
                          "the consumer has version %u of the resource's layout, the library %u",
                          p->abi_version, WEFT_RESOURCE_ABI);
    if (p->build_id && r->build_id && strcmp(p->build_id, r->build_id) != 0)
        return weft__fail(WEFT_ERR_VERSION_MISMATCH, "the provider is build %s, the consumer %s",
                          r->build_id, p->build_id);
    return WEFT_OK;
}

/* Takes a place among the users. */
static weft_status_t associate_enter(weft_resource_t *r, struct association *a) {
    weft_status_t st = WEFT_OK;
    if (r->thread_mode == WEFT_THREAD_SINGLE && !pthread_equal(r->owner, pthread_self()))
        return weft__fail(WEFT_ERR_NOT_SHAREABLE, "%s belongs to another thread", r->name);
    pthread_mutex_lock(&r->lock);
    if (r->status < 0)
        st = weft__fail(WEFT_ERR_NOT_SHAREABLE, "%s was withdrawn or lost", r->name);
    else if (r->share == WEFT_SHARE_WHOLE && r->n_users)
        st = weft__fail(WEFT_ERR_NOT_SHAREABLE, "%s has a user, and is shared as a whole", r->name);
    if (st == WEFT_OK) {
        list_append(&r->users, &a->of_resource);
        r->n_users++;
    }
    pthread_mutex_unlock(&r->lock);
    return st;
}

/* The object is marked as this association's. Of two threads one gets here. */
static weft_status_t claim(struct association *a, weft_context_t *context) {
    if (a->kind->plain && a->type == WEFT_OBJECT_WORKER) {
        a->worker = weft__worker_itself(a->object);
        return weft__worker_check(a->worker);
    }
    a->stub = weft__stub_find(context, (enum stub_type)a->type, a->object);
    if (!a->stub)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "object: not created in associated mode");
    void *free_claim = NULL;
    if (!atomic_compare_exchange_strong(&a->stub->claim, &free_claim, a)) {
        a->stub = NULL;
        return weft__fail(WEFT_ERR_ALREADY_ASSOCIATED, "the object has a resource");
    }
    a->worker = a->stub->worker;
    return a->worker ? weft__worker_check(a->worker) : WEFT_OK;
}

static void give_up(struct association *a, bool entered) {
    atomic_store(&a->notices, 0); /* nothing else holds one that was not opened */
    if (a->stub) weft__association_unclaim(a->stub);
    struct resource_left left;
    if (entered && weft__resource_leave(a, &left)) weft__resource_returned(&left);
    talloc_free(a);
}

static struct association *association_new(const weft_associate_params_t *p, weft_object_t type,
                                           void *object) {
    struct association *a = weft__new(NULL, struct association);
    if (!a) return NULL;
    a->resource = p->resource;
    a->kind = &weft__resource_kinds[p->resource->kind];
    a->type = type;
    a->object = object;
    a->wanted = p->lease;
    a->on_lost = p->on_lost;
    a->arg = p->arg;
    a->way = NOTICE_WAITS;
    weft__association_init(a);
    return a;
}

static weft_status_t check_call(const weft_context_t *context, weft_object_t type,
                                const weft_associate_params_t *p, const void *object) {
    if (!context || !object) return weft__fail(WEFT_ERR_INVALID_PARAM, "context or object is NULL");
    if (!p->resource) return weft__fail(WEFT_ERR_INVALID_PARAM, "params->resource is NULL");
    if ((unsigned)type > WEFT_OBJECT_MEMORY)
        return weft__fail(WEFT_ERR_INVALID_PARAM, "type is %d", (int)type);
    const struct kind *kind = &weft__resource_kinds[p->resource->kind];
    if (type != WEFT_OBJECT_CONTEXT && !(kind->objects & 1u << type))
        return weft__fail(WEFT_ERR_UNSUPPORTED, "a resource of kind %s is not for a %s", kind->name,
                          weft__object_names[type]);
    weft_status_t st = weft__resource_check(p->resource);
    return st == WEFT_OK ? check_version(p->resource, p) : st;
}

/* The consumer's talloc report shows the association. */
static void hang_below(struct association *a) {
    talloc_set_name(a, "association with %s", a->resource->name);
    if (a->type == WEFT_OBJECT_WORKER && a->stub)
        talloc_steal(a->stub, a);
    else if (a->worker)
        talloc_steal(a->worker, a);
}

weft_status_t weft_associate_resources_sized(size_t params_size, weft_context_t *context,
                                             weft_object_t type,
                                             const weft_associate_params_t *params, void *object) {
    weft_associate_params_t p;
    weft_status_t st = weft__params_read(&p, sizeof p, params, params_size);
    if (st == WEFT_OK) st = check_call(context, type, &p, object);
    if (st < 0) return st;
    struct association *a = association_new(&p, type, object);
    if (!a) return WEFT_ERR_NO_MEMORY;
    bool entered = false;
    st = weft__values_copy(a, p.values, p.n_values, &a->values);
    if (st == WEFT_OK) st = claim(a, context);
    if (st == WEFT_OK) st = associate_enter(p.resource, a);
    weft__association_hold(a); /* the provider's functions may end it */
    if (st == WEFT_OK) {
        entered = true;
        a->reactor = a->worker ? a->worker->reactor : NULL;
        st = attach(a);
    }
    if (st < 0) {
        give_up(a, entered);
        return st;
    }
    if (a->over) {
        weft__association_let_go(a);
        return WEFT_OK;
    }
    hang_below(a);
    weft__association_works(a);
    weft__association_open(a); /* and lets it go */
    return WEFT_OK;
}

const char *weft_association_state(weft_context_t *context, weft_object_t type,
                                   const void *object) {
    const struct stub *stub =
        context ? weft__stub_find(context, (enum stub_type)type, object) : NULL;
    if (!stub) return "STUB";
    const char *state = atomic_load(&stub->state);
    if (state) return state;
    weft_status_t status = atomic_load(&stub->status);
    return status == WEFT_ERR_DISASSOCIATED   ? "DISASSOCIATED"
           : status == WEFT_ERR_RESOURCE_LOST ? "LOST"
                                              : "STUB";
}
