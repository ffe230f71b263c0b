/* WIRE_LANE: who is told what about a link's lanes. */
#include "beat.h"
#include "introduce.h"
#include "lane_wire.h"
#include "link.h"
#include "negotiate.h"
#include "switch.h"

typedef void (*lane_word_fn)(struct link *link, struct lane *lane, const void *data, size_t len);

static void no_such_word(struct link *link, struct lane *lane, const void *data, size_t len) {
    weft__link_violation(link, "a word about lanes");
}

/* Each looks at its own bytes; the kind is known. A kind that nobody put here is a violation. */
static const lane_word_fn word[LANE_KINDS] = {
    [LANE_ASK] = weft__lanes_heard,    [LANE_GRANT] = weft__lanes_heard,    [LANE_DENY] = weft__lanes_heard,
    [LANE_CANCEL] = weft__lanes_heard, [LANE_BACK] = weft__lanes_heard,     [LANE_SCORE] = weft__lanes_heard,
    [LANE_END] = weft__switch_heard,   [LANE_DRAINED] = weft__switch_heard, [LANE_BEAT_ASK] = weft__beat_heard,
    [LANE_BEAT] = weft__beat_heard,    [LANE_PROCESS] = weft__introduced,
};

void weft__on_lane(struct lane *lane, const void *data, size_t len) {
    struct link *link = weft__link_of(lane, "a word about lanes before hello");
    if (!link) return;
    lane_word_fn fn = word[weft__lane_kind(data, len)];
    (fn ? fn : no_such_word)(link, lane, data, len);
}
