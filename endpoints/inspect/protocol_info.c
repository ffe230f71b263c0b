/* The choice of protocols, as weft-info prints it. */
#include <math.h> /* INFINITY */

#include <base/check.h>
#include <endpoints/core/worker.h>

static const size_t endless = 16 << 20; /* the size whose cost stands for a range without end */

struct asked {
    const struct weft_worker *worker;
    const struct iface_attr *attr;
    const struct protocol_limits *limits;
};

static double cost(const struct asked *a, enum protocol_way way, size_t len) {
    return weft__protocol_ns(way, len, a->attr, &a->worker->calibration, a->limits);
}

static void find_other(const struct asked *a, enum protocol_way way, size_t len,
                       weft_protocol_info_t *info) {
    double best = INFINITY;
    for (enum protocol_way w = 0; w < N_PROTOCOL_WAYS; w++) {
        double ns = cost(a, w, len);
        if (w == way || w == WAY_MAPPED || w == WAY_PUT || ns >= best) continue;
        best = ns;
        info->other = weft__protocol_name(w);
        info->other_ns = ns;
    }
}

static void fill_info(const struct asked *a, enum protocol_way way, size_t from, size_t to,
                      weft_protocol_info_t *info) {
    size_t last = to == SIZE_MAX ? from > endless ? from : endless : to;
    *info = (weft_protocol_info_t){.name = weft__protocol_name(way),
                                   .from = from,
                                   .to = to,
                                   .from_ns = cost(a, way, from),
                                   .to_ns = cost(a, way, last)};
    info->bandwidth = (double)last * 1e9 / info->to_ns;
    find_other(a, way, last, info);
    bool set = weft__setting_u64(a->worker->context, SETTING_RENDEZVOUS_THRESHOLD) != SETTING_AUTO;
    info->exposed = way == WAY_MAPPED;
    info->exposed_to = way == WAY_PUT;
    info->forced = set && !info->exposed_to &&
                   from == (info->exposed ? a->limits->mapped : a->limits->eager) + 1;
}

weft_status_t weft_worker_protocol_sized(size_t info_size, weft_worker_t *worker, size_t transport,
                                         size_t index, weft_protocol_info_t *info_p) {
    if (!worker || !info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker or info_p is NULL");
    worker = weft__worker_itself(worker);
    weft_status_t st = weft__worker_check_own(worker);
    if (st < 0) return st;
    if (transport >= worker->n_ifaces) return WEFT_ERR_NOT_FOUND;
    struct asked a = {worker, &worker->iface[transport]->attr, &worker->limits[transport]};
    size_t from = 0, to = weft__protocol_end(0, a.attr, a.limits);
    for (; index > 0 && to != SIZE_MAX; index--) {
        from = to + 1;
        to = weft__protocol_end(from, a.attr, a.limits);
    }
    if (index > (a.attr->caps & CAP_EXPOSE ? 2 : 0)) return WEFT_ERR_NOT_FOUND;
    weft_protocol_info_t info;
    if (index == 2)
        fill_info(&a, WAY_PUT, a.limits->put + 1, SIZE_MAX, &info);
    else if (index == 1)
        fill_info(&a, WAY_MAPPED, a.limits->mapped + 1, SIZE_MAX, &info);
    else
        fill_info(&a, weft__protocol_way(from, a.attr, a.limits), from, to, &info);
    weft__info_write(info_p, info_size, &info, sizeof info);
    return WEFT_OK;
}

weft_status_t weft_worker_calibration_sized(size_t info_size, weft_worker_t *worker, size_t index,
                                            weft_calibration_info_t *info_p) {
    static const char *const origins[] = {"built in", "measured", "file"};
    if (!worker || !info_p) return weft__fail(WEFT_ERR_INVALID_PARAM, "worker or info_p is NULL");
    worker = weft__worker_itself(worker);
    weft_status_t st = weft__worker_check_own(worker);
    if (st < 0) return st;
    if (index >= N_CALIBRATIONS) return WEFT_ERR_NOT_FOUND;
    weft_calibration_info_t info = {.value = (double)worker->calibration.value[index],
                                    .origin = origins[worker->calibration.origin]};
    info.name = weft__calibration_name((unsigned)index, &info.unit, &info.help);
    weft__info_write(info_p, info_size, &info, sizeof info);
    return WEFT_OK;
}
