/*
 * The parts of one receive, by lane. The link's own lane brings the beginning, and each rail brings
 * one range of the rest, in order. A part has arrived, or a transport is placing it (placement.h).
 */
#ifndef WEFT_ENDPOINTS_TRANSFER_RAIL_RANGES_H
#define WEFT_ENDPOINTS_TRANSFER_RAIL_RANGES_H

#include <endpoints/core/endpoint.h>

/* False if this lane may not bring these bytes. */
bool weft__rail_ranges_may_come(const struct weft_request *req, const struct lane *lane,
                                size_t offset, size_t n);
/* The bytes have arrived. NO_MEMORY: the ranges cannot be tracked. */
weft_status_t weft__rail_ranges_came(struct weft_request *req, struct lane *lane, size_t offset,
                                     size_t n);

/* A transport begins to place the bytes; no other lane may bring them. NO_MEMORY as above. */
weft_status_t weft__rail_ranges_place(struct weft_request *req, struct lane *lane, size_t offset,
                                      size_t n, uint32_t placement);
/* The placement ended. `arrived` is false if its bytes are missing. */
void weft__rail_ranges_placed(struct weft_request *req, const struct lane *lane, uint32_t placement,
                              bool arrived);
/* Stops the placements of all lanes. */
void weft__rail_ranges_stop(struct weft_request *req);

bool weft__rail_ranges_all_came(const struct weft_request *req);
/* All bytes arrived. If several lanes brought them, sends the sender the rate of each. */
void weft__rail_ranges_report(const struct weft_request *req);

#endif
