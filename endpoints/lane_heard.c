/* WIRE_LANE: who is told what about a link's lanes. */
#include "lane_wire.h"
#include "link.h"

typedef void (*lane_word_fn)(struct link *link, struct lane *lane, const void *data, size_t len);

static void no_such_word(struct link *link, struct lane *lane, const void *data, size_t len) {
    weft__link_violation(link, "a word about lanes");
}

/* Each looks at its own bytes; the kind is known. A kind that nobody put here is a violation. */
static const lane_word_fn word[LANE_KINDS] = {
    [0 ... LANE_KINDS - 1] = no_such_word,
};

void weft__on_lane(struct lane *lane, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "a word about lanes before hello");
    if (link) word[weft__lane_kind(data, len)](link, lane, data, len);
}
