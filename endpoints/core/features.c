/* Calls the functions that rooms above hang on links and endpoints, in the order of the tables. */
#include "features.h"

#include "worker.h"

void weft__link_features_up(struct link *link) {
    for (const struct link_feature *f = link->worker->features->links; f->name; f++)
        if (f->up) f->up(link);
}

void weft__link_features_close(struct link *link, bool abort) {
    for (const struct link_feature *f = link->worker->features->links; f->name; f++)
        if (f->close) f->close(link, abort);
}

void weft__link_features_free(struct link *link) {
    for (const struct link_feature *f = link->worker->features->links; f->name; f++)
        if (f->free) f->free(link);
}

void weft__link_features_ep_leaves(struct weft_ep *ep) {
    for (const struct link_feature *f = ep->worker->features->links; f->name; f++)
        if (f->ep_leaves) f->ep_leaves(ep);
}

void weft__link_features_count(struct link *link) {
    for (const struct link_feature *f = link->worker->features->links; f->name; f++)
        if (f->count) f->count(link);
}

void weft__link_features_note(struct link *link) {
    for (const struct link_feature *f = link->worker->features->links; f->name; f++)
        if (f->note) f->note(link);
}

void weft__ep_features_ready(struct weft_ep *ep) {
    for (const struct ep_feature *f = ep->worker->features->eps; f->name; f++)
        if (f->ready) f->ready(ep);
}

void weft__ep_features_refuses(struct weft_ep *ep) {
    for (const struct ep_feature *f = ep->worker->features->eps; f->name; f++)
        if (f->refuses) f->refuses(ep);
}

void weft__ep_features_lost(struct weft_ep *ep) {
    for (const struct ep_feature *f = ep->worker->features->eps; f->name; f++)
        if (f->lost) f->lost(ep);
}

void weft__ep_features_draining(struct weft_ep *ep) {
    for (const struct ep_feature *f = ep->worker->features->eps; f->name; f++)
        if (f->draining) f->draining(ep);
}

void weft__ep_features_ends(struct weft_ep *ep) {
    for (const struct ep_feature *f = ep->worker->features->eps; f->name; f++)
        if (f->ends) f->ends(ep);
}

void weft__ep_features_notify(struct weft_ep *ep) {
    for (const struct ep_feature *f = ep->worker->features->eps; f->name; f++)
        if (f->notify) f->notify(ep);
}

void weft__ep_features_free(struct weft_ep *ep) {
    for (const struct ep_feature *f = ep->worker->features->eps; f->name; f++)
        if (f->free) f->free(ep);
}
