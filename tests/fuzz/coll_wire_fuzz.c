/* What members of a team say to each other, and what they put into the exchange. */
#include "fuzz.h"
#include <collectives/wire.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct coll_wire header;
    struct member_record record;
    struct agree_head head;
    (void)weft__coll_wire_read(data, size, &header);
    (void)weft__member_read(data, size, &record);
    (void)weft__agree_head_read(data, size, &head);
    return 0;
}
