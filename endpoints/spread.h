/*
 * What comes of one receive, and by which lanes: the link's own brings its beginning, each rail one range of the rest, in
 * order. Pieces may be here, or on their way into the program's memory (landing.h).
 */
#ifndef WEFT_ENDPOINTS_SPREAD_H
#define WEFT_ENDPOINTS_SPREAD_H

#include "ep.h"

/* Bytes that come by this lane: false when they are not where they may be. */
bool weft__spread_may_come(const struct weft_request *req, const struct lane *lane, size_t offset, size_t n);
/* They are here. NO_MEMORY: what comes by rails cannot be kept track of. */
weft_status_t weft__spread_came(struct weft_request *req, struct lane *lane, size_t offset, size_t n);

/* They are on their way to where they belong: nobody else may bring them. NO_MEMORY as above. */
weft_status_t weft__spread_land(struct weft_request *req, struct lane *lane, size_t offset, size_t n);
/* And there, or not (`arrived` false). */
void weft__spread_landed(struct weft_request *req, const struct lane *lane, bool arrived);
/* Nothing more is to be written there, by any lane. */
void weft__spread_stop(struct weft_request *req);

bool weft__spread_all_came(const struct weft_request *req);
/* All of it came: its sender is told what each lane carried, if there was more than one. */
void weft__spread_report(const struct weft_request *req);

#endif
