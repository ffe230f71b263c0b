/* The table of functions by which transfer/ calls the rooms above it. */
#include "transfer_users.h"

#include <endpoints/failover/retain.h>
#include <endpoints/messages/am.h>
#include <endpoints/messages/am_recv.h>
#include <endpoints/messages/tag.h>
#include <endpoints/rma/rma.h>
#include <endpoints/threads/thread.h>

/* A thread may hold an offered active message until the program polls for it; or its receive waits
 * for a stream. */
static bool am_withdrawn(struct link *link, uint32_t offer) {
    return weft__thread_withdrawn(link, offer) || weft__am_late_withdrawn(link, offer);
}

const struct transfer_users weft__transfer_users = {
    .offer = {[WIRE_OFFER_AM] = {.offered = weft__am_offered, .withdrawn = am_withdrawn},
              [WIRE_OFFER_TAG] = {.offered = weft__tag_offered,
                                  .withdrawn = weft__tag_offer_withdrawn}},
    .late_data = weft__rma_came_late,
    .place = {[WIRE_TAG] = weft__place_tag,
              [WIRE_DATA] = weft__place_data,
              [WIRE_PUT] = weft__place_put},
    .receiver = weft__retain_receiver,
    .begun = weft__retain_places,
    .ended = weft__retain_placed,
};
