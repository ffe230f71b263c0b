/* Two workers whose link survives sockets that die. */
#ifndef WEFT_TESTS_SUPPORT_KILL_CHILD_H
#define WEFT_TESTS_SUPPORT_KILL_CHILD_H

#include "worker_pair.h"
#include <tests/sockets.h>

static inline void dial_surviving(struct two *t) {
    char address[256];
    size_t len = sizeof address;
    CHECK_EQ(weft_worker_address(two_b(t), address, &len), 0);
    weft_ep_params_t params = {.on_ready = two_on_ready,
                               .on_error = two_on_error,
                               .arg = t,
                               .error_mode = WEFT_ERRORS_FAILOVER};
    CHECK_EQ(weft_connect_address(t->a, address, len, &params, &t->ep), 0);
}

static inline void surviving(struct two *t, const weft_setting_t *settings, size_t n) {
    two_workers(t, "tcp", settings, n);
    dial_surviving(t);
    UNTIL(t, t->ready && t->back);
}

#endif
