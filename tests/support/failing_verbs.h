/*
 * Verbs of which one call fails, once, as calls do for which the kernel has no memory; and a count
 * of the objects that they made. The functions of libibverbs and librdmacm lie behind them: when
 * the library looks one of them up, it finds the one of this file.
 */
#ifndef WEFT_TESTS_SUPPORT_FAILING_VERBS_H
#define WEFT_TESTS_SUPPORT_FAILING_VERBS_H

#include "failing_life.h"
#include <dlfcn.h>
#include <transports/rdma/verbs/verbs.h>

enum verbs_call {
#define FUNCTION(library, type, name, parameters, arguments) CALL_##name,
#include <transports/rdma/verbs/verbs.def>
#undef FUNCTION
    CALL_post_send,
    CALL_post_recv,
    CALL_post_srq_recv,
    CALL_req_notify_cq,
    N_VERBS_CALLS
};

static const char *const verbs_call_name[] = {
#define FUNCTION(library, type, name, parameters, arguments) #name,
#include <transports/rdma/verbs/verbs.def>
#undef FUNCTION
    "ibv_post_send", "ibv_post_recv", "ibv_post_srq_recv", "ibv_req_notify_cq"};

enum verbs_object {
    DEVICES,
    DEVICE_LISTS,
    DOMAINS,
    REGIONS,
    HANDLES,
    CHANNELS,
    CQS,
    QPS,
    SRQS,
    EVENT_CHANNELS,
    IDS,
    N_VERBS_OBJECTS
};

static const char *const verbs_object_name[] = {
    "devices",         "lists of devices", "domains", "regions",
    "address handles", "channels",         "queues",  "queue pairs",
    "receive queues",  "event channels",   "ids"};

static int verbs_objects[N_VERBS_OBJECTS]; /* made, and not destroyed */

static const char *verbs_left(void) {
    for (unsigned i = 0; i < N_VERBS_OBJECTS; i++)
        if (verbs_objects[i]) return verbs_object_name[i];
    return NULL;
}

static bool verbs_fails(enum verbs_call call) {
    return fails_now(call, ENOMEM);
}

static struct {
#define FUNCTION(library, type, name, parameters, arguments) type(*call_##name) parameters;
#include <transports/rdma/verbs/verbs.def>
#undef FUNCTION
} real;

/* ---- what each function does here ------------------------------------------------------------ */

#define WRAPPER(type, name, parameters) static type failing_##name parameters
#define NEVER(type, name, parameters, arguments) \
    WRAPPER(type, name, parameters) {            \
        return real.call_##name arguments;       \
    }
#define FAILS(value, type, name, parameters, arguments) \
    WRAPPER(type, name, parameters) {                   \
        if (verbs_fails(CALL_##name)) return value;     \
        return real.call_##name arguments;              \
    }
#define MAKES(object, type, name, parameters, arguments) \
    WRAPPER(type, name, parameters) {                    \
        if (verbs_fails(CALL_##name)) return NULL;       \
        type made = real.call_##name arguments;          \
        verbs_objects[object] += made != NULL;           \
        return made;                                     \
    }
/* An object that others hang on stays: EBUSY. */
#define ENDS(object, type, name, parameters, arguments) \
    WRAPPER(type, name, parameters) {                   \
        type error = real.call_##name arguments;        \
        verbs_objects[object] -= error == 0;            \
        return error;                                   \
    }
#define FREES(object, type, name, parameters, arguments) \
    WRAPPER(type, name, parameters) {                    \
        verbs_objects[object]--;                         \
        real.call_##name arguments;                      \
    }

#define HOW__ibv_query_gid_table(...)       FAILS(-ENOMEM, __VA_ARGS__)
#define HOW_ibv_ack_async_event(...)        NEVER(__VA_ARGS__)
#define HOW_ibv_ack_cq_events(...)          NEVER(__VA_ARGS__)
#define HOW_ibv_alloc_pd(...)               MAKES(DOMAINS, __VA_ARGS__)
#define HOW_ibv_close_device(...)           ENDS(DEVICES, __VA_ARGS__)
#define HOW_ibv_create_ah(...)              MAKES(HANDLES, __VA_ARGS__)
#define HOW_ibv_create_comp_channel(...)    MAKES(CHANNELS, __VA_ARGS__)
#define HOW_ibv_create_cq(...)              MAKES(CQS, __VA_ARGS__)
#define HOW_ibv_create_qp(...)              MAKES(QPS, __VA_ARGS__)
#define HOW_ibv_create_srq(...)             MAKES(SRQS, __VA_ARGS__)
#define HOW_ibv_dealloc_pd(...)             ENDS(DOMAINS, __VA_ARGS__)
#define HOW_ibv_dereg_mr(...)               ENDS(REGIONS, __VA_ARGS__)
#define HOW_ibv_destroy_ah(...)             ENDS(HANDLES, __VA_ARGS__)
#define HOW_ibv_destroy_comp_channel(...)   ENDS(CHANNELS, __VA_ARGS__)
#define HOW_ibv_destroy_cq(...)             ENDS(CQS, __VA_ARGS__)
#define HOW_ibv_destroy_qp(...)             ENDS(QPS, __VA_ARGS__)
#define HOW_ibv_destroy_srq(...)            ENDS(SRQS, __VA_ARGS__)
#define HOW_ibv_event_type_str(...)         NEVER(__VA_ARGS__)
#define HOW_ibv_free_device_list(...)       FREES(DEVICE_LISTS, __VA_ARGS__)
#define HOW_ibv_get_async_event(...)        NEVER(__VA_ARGS__)
#define HOW_ibv_get_cq_event(...)           NEVER(__VA_ARGS__)
#define HOW_ibv_get_device_list(...)        MAKES(DEVICE_LISTS, __VA_ARGS__)
#define HOW_ibv_get_device_name(...)        NEVER(__VA_ARGS__)
#define HOW_ibv_modify_qp(...)              FAILS(ENOMEM, __VA_ARGS__)
#define HOW_ibv_modify_srq(...)             FAILS(ENOMEM, __VA_ARGS__)
#define HOW_ibv_open_device(...)            OPENS(__VA_ARGS__)
#define HOW_ibv_query_device(...)           FAILS(ENOMEM, __VA_ARGS__)
#define HOW_ibv_query_port(...)             FAILS(ENOMEM, __VA_ARGS__)
#define HOW_ibv_query_qp(...)               FAILS(ENOMEM, __VA_ARGS__)
#define HOW_ibv_query_srq(...)              FAILS(ENOMEM, __VA_ARGS__)
#define HOW_ibv_reg_dmabuf_mr(...)          MAKES(REGIONS, __VA_ARGS__)
#define HOW_ibv_reg_mr(...)                 MAKES(REGIONS, __VA_ARGS__)
#define HOW_ibv_reg_mr_iova2(...)           MAKES(REGIONS, __VA_ARGS__)
#define HOW_ibv_wc_status_str(...)          NEVER(__VA_ARGS__)
#define HOW_rdma_accept(...)                FAILS(-1, __VA_ARGS__)
#define HOW_rdma_ack_cm_event(...)          NEVER(__VA_ARGS__)
#define HOW_rdma_bind_addr(...)             FAILS(-1, __VA_ARGS__)
#define HOW_rdma_connect(...)               FAILS(-1, __VA_ARGS__)
#define HOW_rdma_create_event_channel(...)  MAKES(EVENT_CHANNELS, __VA_ARGS__)
#define HOW_rdma_create_id(...)             MAKES_ID(__VA_ARGS__)
#define HOW_rdma_destroy_event_channel(...) FREES(EVENT_CHANNELS, __VA_ARGS__)
#define HOW_rdma_destroy_id(...)            ENDS(IDS, __VA_ARGS__)
#define HOW_rdma_disconnect(...)            FAILS(-1, __VA_ARGS__)
#define HOW_rdma_establish(...)             FAILS(-1, __VA_ARGS__)
#define HOW_rdma_get_cm_event(...)          MAKES_ID_BY_EVENT(__VA_ARGS__)
#define HOW_rdma_get_src_port(...)          NEVER(__VA_ARGS__)
#define HOW_rdma_init_qp_attr(...)          FAILS(-1, __VA_ARGS__)
#define HOW_rdma_listen(...)                FAILS(-1, __VA_ARGS__)
#define HOW_rdma_reject(...)                FAILS(-1, __VA_ARGS__)
#define HOW_rdma_resolve_addr(...)          FAILS(-1, __VA_ARGS__)
#define HOW_rdma_resolve_route(...)         FAILS(-1, __VA_ARGS__)

/* A device has those that are inline in the headers. */
static struct ibv_context_ops real_ops;
static int failing_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    *bad = wr;
    return verbs_fails(CALL_post_send) ? ENOMEM : real_ops.post_send(qp, wr, bad);
}
static int failing_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    *bad = wr;
    return verbs_fails(CALL_post_recv) ? ENOMEM : real_ops.post_recv(qp, wr, bad);
}
static int failing_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
                                 struct ibv_recv_wr **bad) {
    *bad = wr;
    return verbs_fails(CALL_post_srq_recv) ? ENOMEM : real_ops.post_srq_recv(srq, wr, bad);
}
static int failing_req_notify_cq(struct ibv_cq *cq, int solicited) {
    return verbs_fails(CALL_req_notify_cq) ? ENOMEM : real_ops.req_notify_cq(cq, solicited);
}

#define OPENS(type, name, parameters, arguments)            \
    WRAPPER(type, name, parameters) {                       \
        if (verbs_fails(CALL_##name)) return NULL;          \
        type context = real.call_##name arguments;          \
        if (!context) return NULL;                          \
        verbs_objects[DEVICES]++;                           \
        real_ops = context->ops;                            \
        context->ops.post_send = failing_post_send;         \
        context->ops.post_recv = failing_post_recv;         \
        context->ops.post_srq_recv = failing_post_srq_recv; \
        context->ops.req_notify_cq = failing_req_notify_cq; \
        return context;                                     \
    }
#define MAKES_ID(type, name, parameters, arguments) \
    WRAPPER(type, name, parameters) {               \
        if (verbs_fails(CALL_##name)) return -1;    \
        int status = real.call_##name arguments;    \
        verbs_objects[IDS] += status == 0;          \
        return status;                              \
    }
/* A request comes with an id of its own. */
#define MAKES_ID_BY_EVENT(type, name, parameters, arguments)                                     \
    WRAPPER(type, name, parameters) {                                                            \
        int status = real.call_##name arguments;                                                 \
        if (status == 0) verbs_objects[IDS] += (*event)->event == RDMA_CM_EVENT_CONNECT_REQUEST; \
        return status;                                                                           \
    }

#define FUNCTION(library, type, name, parameters, arguments) \
    HOW_##name(type, name, parameters, arguments)
#include <transports/rdma/verbs/verbs.def>
#undef FUNCTION

static const struct {
    const char *name;
    void *function;
    void *real; /* where the real one is kept */
} verbs_function[] = {
#define FUNCTION(library, type, name, parameters, arguments) \
    {#name, (void *)failing_##name, &real.call_##name},
#include <transports/rdma/verbs/verbs.def>
#undef FUNCTION
};

void *weft__rd_verbs_symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    for (size_t i = 0; found && i < sizeof verbs_function / sizeof *verbs_function; i++) {
        if (strcmp(name, verbs_function[i].name) != 0) continue;
        memcpy(verbs_function[i].real, &found, sizeof found);
        return verbs_function[i].function;
    }
    return found;
}

#endif
