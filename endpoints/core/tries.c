/* Joins the reasons of failed tries, and decides after which failures another try makes sense. */
#include "tries.h"

#include "cause.h"

void weft__tries_begin(struct tries *tries) {
    tries->left = UINT16_MAX;
}

void weft__tries_end(struct tries *tries) {
    weft__cause_drop(tries->why);
    tries->why = NULL;
}

void weft__tries_add(struct weft_worker *worker, struct tries *tries, weft_status_t status,
                     struct cause *why) {
    struct cause *before = tries->why;
    tries->status = (int8_t)status;
    tries->why =
        before && why ? weft__cause_join(worker, before, status, why->text) : weft__cause_hold(why);
    weft__cause_drop(before);
}

void weft__tries_replace(struct tries *tries, weft_status_t status, struct cause *why) {
    weft__cause_drop(tries->why);
    tries->status = (int8_t)status;
    tries->why = weft__cause_hold(why);
}

bool weft__tries_goes_on(weft_status_t status) {
    switch (status) {
    case WEFT_ERR_AUTH:
    case WEFT_ERR_VERSION:
    case WEFT_ERR_PROTOCOL:
    case WEFT_ERR_REJECTED:
    case WEFT_ERR_CLOSED:
    case WEFT_ERR_CANCELLED:
    case WEFT_ERR_INTERNAL: return false;
    default: return status < 0;
    }
}
