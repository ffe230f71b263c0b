/*
 * A protection domain that another process of this host made. Only some devices' drivers have this
 * (mlx5); the others, soft-RoCE among them, refuse.
 */
#ifndef WEFT_TRANSPORTS_DOMAIN_H
#define WEFT_TRANSPORTS_DOMAIN_H

#include <stdint.h>
#include <weft/base.h>

struct ibv_pd;
struct domain; /* an imported one */

/* Of a transport that has such domains. */
struct domain_ops {
    void (*give)(const struct ibv_pd *pd, int *fd_p, uint32_t *handle_p);
    weft_status_t (*import)(int fd, uint32_t handle, struct domain **domain_p,
                            struct ibv_pd **pd_p);
    void (*end)(struct domain *domain);
};

/* The descriptor of the domain's device context, which stays its owner's, and its number there.
 * UNSUPPORTED: no transport has domains. */
weft_status_t weft__domain_give(const struct ibv_pd *pd, int *fd_p, uint32_t *handle_p);
/* Takes `fd` over on success. UNSUPPORTED: the library or the device cannot; INVALID_PARAM: the
 * context has no such domain. */
weft_status_t weft__domain_import(int fd, uint32_t handle, struct domain **domain_p,
                                  struct ibv_pd **pd_p);
/* Nothing of this process uses it any more. The owner's domain stays. */
void weft__domain_end(struct domain *domain);

#endif
