/* Protection domains of other processes, by ibv_import_device and ibv_import_pd. */
#include "domain.h"

#include <base/alloc.h>
#include <base/status.h>
#include <errno.h>
#include <string.h>

#include "imports.h"

struct domain {
    struct ibv_context *context;
    struct ibv_pd *pd;
};

static void give_domain(const struct ibv_pd *pd, int *fd_p, uint32_t *handle_p) {
    *fd_p = pd->context->cmd_fd;
    *handle_p = pd->handle;
}

static weft_status_t import_into(struct domain *domain, int fd, uint32_t handle) {
    domain->context = weft__rd_import_device(fd);
    if (!domain->context)
        return weft__fail(WEFT_ERR_UNSUPPORTED,
                          "ibv_import_device: %s; the device's driver must support it (mlx5 does)",
                          strerror(errno));
    domain->pd = weft__rd_import_pd(domain->context, handle);
    if (domain->pd) return WEFT_OK;
    int error = errno;
    weft__rd_unimport_device(domain->context);
    return weft__fail(error == EOPNOTSUPP || error == ENOSYS ? WEFT_ERR_UNSUPPORTED
                                                             : WEFT_ERR_INVALID_PARAM,
                      "ibv_import_pd: %s", strerror(error));
}

static weft_status_t import_domain(int fd, uint32_t handle, struct domain **domain_p,
                                   struct ibv_pd **pd_p) {
    struct domain *domain = weft__new(NULL, struct domain);
    if (!domain) return WEFT_ERR_NO_MEMORY;
    weft_status_t st = import_into(domain, fd, handle);
    if (st < 0) {
        talloc_free(domain);
        return st;
    }
    *domain_p = domain;
    *pd_p = domain->pd;
    return WEFT_OK;
}

static void end_domain(struct domain *domain) {
    weft__rd_unimport_pd(domain->pd);
    weft__rd_unimport_device(domain->context);
    talloc_free(domain);
}

const struct domain_ops weft__rd_domains = {give_domain, import_domain, end_domain};
