/*
 * The memory that members of one host offer to each other (single_copy.c), and how it is read.
 * What lies in an exposed region is mapped by its reader, once, and read where it lies. All other
 * memory is read by process_vm_readv.
 */
#ifndef WEFT_COLLECTIVES_OFFERED_H
#define WEFT_COLLECTIVES_OFFERED_H

#include "segment.h"
#include <weft/collective.h>

/* Of a team: made when first needed. */
struct offered_maps;

/* Where a buffer of this member lies, for its offer. */
void weft__offered_place(const weft_team_t *team, const void *buffer, struct segment_place *place);
/* Bytes [at, at + len) of that place, which is `rank`'s, where this process has them mapped. NULL:
 * they are to be read. */
const uint8_t *weft__offered_map(weft_team_t *team, uint32_t rank,
                                 const struct segment_offer *offer,
                                 const struct segment_place *place, uint64_t at, uint64_t len);
/* Does `rank` still offer what it offered? If so, all bytes read so far are those that it had. */
bool weft__offered_stands(const weft_team_t *team, uint32_t rank);
/* Why it does not. */
extern const char weft__offer_withdrawn[];
/* Reads from the memory of another. NULL: all of it, and it still stands; otherwise why not. */
const char *weft__offered_read(const weft_team_t *team, uint32_t rank, uint64_t from, void *to,
                               size_t len);
void weft__offered_unmap(weft_team_t *team);

#endif
