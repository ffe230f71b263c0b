/* All decoders of the endpoints on the same bytes; the first byte is data like the others. */
#include "fuzz.h"
#include <endpoints/connect/connect.h>
#include <endpoints/wire/wire.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct wire_cts cts;
    struct wire_fin fin;
    struct wire_one one;
    struct wire_gone gone;
    struct wire_credit credit;
    struct wire_hello hello;
    struct wire_open open;
    struct wire_accept accept;
    struct wire_reject reject;
    struct wire_rts rts;
    struct wire_data piece;
    struct wire_stream stream;
    struct wire_tag_begin begin;
    struct wire_tag_part part;
    struct wire_put put;
    struct wire_get get;
    struct wire_atomic atomic;
    struct wire_rma_done done;
    struct wire_flush flush;
    struct wire_expose expose;
    struct wire_put_req put_req;
    struct address address;
    (void)weft__wire_read_cts(data, size, &cts);
    (void)weft__wire_read_fin(data, size, &fin);
    (void)weft__wire_read_one(data, size, &one);
    (void)weft__wire_read_gone(data, size, &gone);
    (void)weft__wire_read_credit(data, size, &credit);
    (void)weft__wire_read_hello(data, size, &hello);
    (void)weft__wire_read_open(data, size, &open);
    (void)weft__wire_read_accept(data, size, &accept);
    (void)weft__wire_read_reject(data, size, &reject);
    (void)weft__wire_read_data(data, size, &piece);
    if (weft__wire_read_stream(data, size, &stream) && stream.len)
        if (stream.bytes[stream.len - 1] == 0x7f && data[0] == 0xff) return 0;
    if (weft__wire_read_tag_begin(data, size, &begin))
        if (begin.bytes[begin.n - 1] == 0x7f && data[0] == 0xff) return 0;
    if (weft__wire_read_tag_part(data, size, &part) && part.n)
        if (part.bytes[part.n - 1] == 0x7f && data[0] == 0xff) return 0;
    if (weft__wire_read_rts(data, size, &rts) && rts.header_len)
        if (((const uint8_t *)rts.header)[rts.header_len - 1] == 0xff && data[0] == 0xff) return 0;
    (void)weft__wire_read_put(data, size, &put);
    (void)weft__wire_read_get(data, size, &get);
    (void)weft__wire_read_atomic(data, size, &atomic);
    (void)weft__wire_read_rma_done(data, size, &done);
    (void)weft__wire_read_flush(data, size, &flush);
    (void)weft__wire_read_flushed(data, size, &fin);
    if (weft__wire_read_expose(data, size, &expose) && expose.len)
        if (((const uint8_t *)expose.key)[expose.len - 1] == 0x7f && data[0] == 0xff) return 0;
    (void)weft__wire_read_put_req(data, size, &put_req);
    (void)weft__address_read(data, size, &address);
    return 0;
}
