/*
 * What the rooms above core hang on links and endpoints. worker/features.c fills in the tables;
 * core only walks them, in their order. A function that a feature does not need is NULL.
 */
#ifndef WEFT_ENDPOINTS_CORE_FEATURES_H
#define WEFT_ENDPOINTS_CORE_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

struct link;
struct weft_ep;
struct weft_request;
struct weft_worker;

struct link_feature {
    const char *name;
    /* The peer has sent HELLO; endpoints open after it. */
    void (*up)(struct link *link);
    void (*close)(struct link *link, bool abort); /* The link is about to close its own lane. */
    /* The link ends: release what the feature holds. */
    void (*free)(struct link *link);
    /* The endpoint leaves `ep->link`, which still names the link. */
    void (*ep_leaves)(struct weft_ep *ep);
    void (*count)(struct link *link); /* The number of its endpoints changed. */
    void (*note)(struct link *link);  /* Its state changed. */
};

struct ep_feature {
    const char *name;
    /* Sends go at once from now on; the link has those that waited. */
    void (*ready)(struct weft_ep *ep);
    void (*refuses)(struct weft_ep *ep); /* New operations are refused from now on. */
    /* Its requests have been stopped; nothing more comes from the peer. */
    void (*lost)(struct weft_ep *ep);
    /* It closes in good order once its requests have completed. */
    void (*draining)(struct weft_ep *ep);
    void (*ends)(struct weft_ep *ep);   /* It is about to leave its link for good. */
    void (*notify)(struct weft_ep *ep); /* NOTICE_DATA is due: call the program. */
    /* The program's callback comes next, and the handle is gone. */
    void (*free)(struct weft_ep *ep);
};

struct ep_ops;

struct features {
    const struct link_feature *links; /* The last one has no name. */
    const struct ep_feature *eps;     /* The same. */
    const struct ep_ops *wait, *ready, *refuse;
    const struct ep_ops *leased_wait, *leased_ready; /* of endpoints that hold a lease */
    /* Callbacks are held until the program asks for them. */
    void (*callbacks_pending)(struct weft_worker *worker);
    /* The usage tracker has scored the links again. */
    void (*scores_changed)(struct weft_worker *worker);
    void (*handshake)(struct link *link); /* Sends HELLO. */
    /* Dials another lane in place of one that broke before HELLO. */
    void (*lane_again)(struct link *link);
};

void weft__link_features_up(struct link *link);
void weft__link_features_close(struct link *link, bool abort);
void weft__link_features_free(struct link *link);
void weft__link_features_ep_leaves(struct weft_ep *ep);
void weft__link_features_count(struct link *link);
void weft__link_features_note(struct link *link);

void weft__ep_features_ready(struct weft_ep *ep);
void weft__ep_features_refuses(struct weft_ep *ep);
void weft__ep_features_lost(struct weft_ep *ep);
void weft__ep_features_draining(struct weft_ep *ep);
void weft__ep_features_ends(struct weft_ep *ep);
void weft__ep_features_notify(struct weft_ep *ep);
void weft__ep_features_free(struct weft_ep *ep);

#endif
