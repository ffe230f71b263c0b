/* What a peer says about lanes: each decoder on the same bytes. What one accepts is written
 * again, and is the same. */
#include "fuzz.h"
#include <endpoints/wire/lane_ctrl.h>

static void same(const struct wire_message *m, const uint8_t *data, size_t size) {
    if (m->len != size || memcmp(m->bytes + 1, data + 1, size - 1) != 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct wire_message m;
    struct lane_ask ask;
    struct lane_grant grant;
    struct lane_deny deny;
    struct lane_score score;
    struct lane_one one;
    struct lane_end end;
    struct lane_count count;
    struct wire_hello hello, again;
    struct lane_process process;
    (void)weft__lane_kind(data, size);
    if (weft__lane_read_ask(data, size, &ask)) weft__lane_ask(&m, &ask), same(&m, data, size);
    if (weft__lane_read_grant(data, size, &grant))
        weft__lane_grant(&m, &grant), same(&m, data, size);
    if (weft__lane_read_deny(data, size, &deny)) weft__lane_deny(&m, deny), same(&m, data, size);
    if (weft__lane_read_score(data, size, &score))
        weft__lane_score(&m, score), same(&m, data, size);
    if (weft__lane_read_one(data, size, &one))
        weft__lane_one(&m, LANE_BACK, one.epoch), same(&m, data, size);
    if (weft__lane_read_end(data, size, &end)) weft__lane_end(&m, end), same(&m, data, size);
    if (weft__lane_read_count(data, size, &count))
        weft__lane_count(&m, LANE_ACK, count.count), same(&m, data, size);
    if (weft__wire_read_hello(data, size, &hello) && hello.version == WIRE_VERSION) {
        weft__wire_hello(&m, hello);
        if (m.len != size || !weft__wire_read_hello(m.bytes, m.len, &again)) abort();
        if (memcmp(m.bytes, data, size) != 0) abort();
    }
    if (weft__lane_read_process(data, size, &process))
        weft__lane_process(&m, process), same(&m, data, size);
    return 0;
}
