/* Exports and imports protection domains by the transport that can; UNSUPPORTED in a build without
 * RDMA. */
#include <base/status.h>
#include <transports/domain.h>
#include <transports/transport.h>

static const struct domain_ops *find_ops(void) {
    for (size_t i = 0; weft__transports[i]; i++)
        if (weft__transports[i]->domains) return weft__transports[i]->domains;
    return NULL;
}

static weft_status_t built_without(void) {
    return weft__fail(WEFT_ERR_UNSUPPORTED, "Weft was built without RDMA");
}

weft_status_t weft__domain_give(const struct ibv_pd *pd, int *fd_p, uint32_t *handle_p) {
    const struct domain_ops *ops = find_ops();
    if (!ops) return built_without();
    ops->give(pd, fd_p, handle_p);
    return WEFT_OK;
}

weft_status_t weft__domain_import(int fd, uint32_t handle, struct domain **domain_p,
                                  struct ibv_pd **pd_p) {
    const struct domain_ops *ops = find_ops();
    return ops ? ops->import(fd, handle, domain_p, pd_p) : built_without();
}

void weft__domain_end(struct domain *domain) {
    find_ops()->end(domain);
}
