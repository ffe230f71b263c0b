/*
 * Agreements of the members that are left (agreement.fsm). A value is a word of flags, the lost
 * members, and a blob of each member that is left.
 */
#ifndef WEFT_COLLECTIVES_AGREEMENT_H
#define WEFT_COLLECTIVES_AGREEMENT_H

#include "team.h"

struct agreement;

/* What this member gives, and where the value goes. */
struct agreement_call {
    uint64_t flags;
    const void *blob; /* `blob_len` bytes, equal at all members; copied */
    uint32_t blob_len;
    uint64_t deadline_ms; /* 0: that of the team's collectives */
    /* The value is valid within the callback. `lost`: a bit for each rank. `blobs`: one of each. */
    void (*done)(weft_status_t status, uint64_t flags, const uint8_t *lost, const uint8_t *blobs,
                 void *arg);
    void *arg;
};

weft_status_t weft__agreement_start(weft_team_t *team, const struct agreement_call *call);
/* The next start with blobs of that length lacks no memory, unless it is not reserved any more. */
weft_status_t weft__agreement_reserve(weft_team_t *team, uint32_t blob_len);
void weft__agreement_unreserve(weft_team_t *team);
/* This member takes no part in the next one, which the others may begin: it is in step again. */
void weft__agreement_skip(weft_team_t *team);
void weft__agreement_message(weft_team_t *team, const struct coll_wire *wire, weft_am_t *am);
/* A member was lost, or has left. */
void weft__agreements_go_on(weft_team_t *team);
/* Ends those in progress with `status`. */
void weft__agreements_stop(weft_team_t *team, weft_status_t status);
/* The last team is gone: what is on its way to one reaches none. */
void weft__agreements_forget(struct team_registry *registry);
/* Writes whom the latest one that was begun here waits for, or did at its deadline: "agreement 3 of
 * its parent: rank 1 has not answered in time". False: for no member. */
bool weft__agreement_missing(const weft_team_t *team, const char *of, char *buf, size_t size);
/* One is in progress, or its outcome is not reported yet. */
bool weft__agreements_busy(const weft_team_t *team);

static inline bool agreement_has(const uint8_t *bits, uint32_t rank) {
    return bits[rank / 8] >> rank % 8 & 1;
}

/* Long messages of one member that arrive at a time: a few of each of the latest agreements. */
enum { AGREE_INCOMING_MOST = 16 };

#endif
