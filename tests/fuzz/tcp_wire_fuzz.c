/* What a tcp peer, a worker's address, a URI and a hosts file may hold. The first byte chooses
 * the decoder. */
#include "fuzz.h"
#include <transports/tcp/name.h>
#include <transports/tcp/wire.h>

/* As a connection does it: a handshake as far as it goes, then frames. */
static void stream(const uint8_t *p, size_t len) {
    struct tcp_handshake g;
    size_t size;
    while (weft__tcp_handshake_decode(p, len, &g, &size) == WEFT_OK) {
        uint8_t again[TCP_HANDSHAKE_MAX];
        insist(size <= len && weft__tcp_handshake_encode(&g, again) == size &&
               memcmp(again, p, size) == 0);
        p += size;
        len -= size;
    }
    struct tcp_frame f;
    while (tcp_frame_decode(p, len, &f) == WEFT_OK) {
        insist(f.len <= TCP_MAX_FRAME && f.id < 32);
        if (tcp_frame_size(f.len) > len) break;
        len -= tcp_frame_size(f.len);
        p += tcp_frame_size(f.len);
    }
}

static void address(const uint8_t *p, size_t len) {
    struct tcp_address a;
    union tcp_sockaddr at;
    uint8_t again[TCP_ADDRESS_MAX];
    if (weft__tcp_address_decode(p, len, &a) != WEFT_OK) return;
    insist(weft__tcp_address_size(&a) == len && a.n >= 1 && a.n <= TCP_MAX_PLACES);
    weft__tcp_address_encode(&a, again);
    insist(memcmp(again, p, len) == 0);
    for (unsigned i = 0; i < a.n; i++) {
        struct tcp_place *place = &a.place[i], back = *place;
        weft__tcp_place_to_sockaddr(place, &at);
        weft__tcp_sockaddr_to_place(&at, &back);
        insist(back.port == place->port &&
               memcmp(back.ip, place->ip, place->family == 4 ? 4 : 16) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tcp_where where;
    union tcp_sockaddr found[TCP_MAX_SOCKADDRS];
    if (size == 0) return 0;
    const char *text = (const char *)data + 1;
    switch (data[0] % 4) {
    case 0: stream(data + 1, size - 1); break;
    case 1: address(data + 1, size - 1); break;
    case 2:
        if (weft__tcp_where_parse(text, size - 1, &where) == WEFT_OK)
            insist(strlen(where.host) < sizeof where.host);
        break;
    case 3: insist(weft__tcp_hosts_find(text, size - 1, "localhost", 1, found, 2) <= 2); break;
    }
    return 0;
}
