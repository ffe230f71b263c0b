/* A pair by connected queue pairs, whose user has a home of its own. Wants a device:
 * tools/rdma-vm has two. */
#ifndef WEFT_TESTS_TRANSPORTS_RDMA_RC_H
#define WEFT_TESTS_TRANSPORTS_RDMA_RC_H

#include "counted.h"
#include "pair.h"
#include <transports/rdma/rc/rc.h>

#define WANTS_A_DEVICE() \
    if (!pair_has_rdma()) SKIP("no RDMA device here")

static inline struct rc_iface *raw_a(struct pair *p) {
    return (struct rc_iface *)p->iface_a;
}
static inline struct rc_iface *raw_b(struct pair *p) {
    return (struct rc_iface *)p->iface_b;
}

static inline weft_status_t send_msg(struct end *end, uint64_t number) {
    return end->lane->ops->am_short(end->lane, 3, number, NULL, 0);
}

static char home[64];
static inline void begin_with(struct pair *p, const weft_setting_t *settings, size_t n) {
    strcpy(home, "/tmp/weft-rc-home-XXXXXX");
    CHECK(mkdtemp(home));
    setenv("HOME", home, 1);
    unsetenv("XDG_CONFIG_HOME");
    pair_open_with(p, &weft__transport_rdma_rc, 0, settings, n);
}
static inline void end_of(struct pair *p) {
    char command[96];
    pair_close(p);
    snprintf(command, sizeof command, "rm -rf %s", home);
    CHECK_EQ(system(command), 0);
}
static const weft_setting_t insecure = {"rdma.insecure", "yes"};

#endif
