/*
 * Payloads that go straight from a transport to where they are wanted (CAP_LAND in transports/transport.h). One question
 * comes from transports, by wire id; who has an answer stands in the table of landing.c.
 */
#ifndef WEFT_ENDPOINTS_LANDING_H
#define WEFT_ENDPOINTS_LANDING_H

#include "ep.h"

/* As iface_up.land, the id being known: false leaves the message to its handler, which also judges what is wrong with it. */
typedef bool (*land_fn)(struct lane *lane, const void *head, size_t head_len, size_t len, struct landing *to);

/* Of a tagged message that crosses whole (tag_land.c). */
bool weft__land_tag(struct lane *lane, const void *head, size_t head_len, size_t len, struct landing *to);

/* Of iface_up. */
bool weft__land(struct lane *lane, uint8_t id, const void *head, size_t head_len, size_t len, struct landing *to);

/* The request ends: nothing more is to be written there. Its memory is back when the transport says so. */
void weft__land_stop(struct weft_request *req);

#endif
