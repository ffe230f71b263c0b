/* Shared by transports whose keys are requested by control messages: the queue of control
 * messages that wait for room, and the status of a refused key. */
#ifndef WEFT_TRANSPORTS_KEYS_H
#define WEFT_TRANSPORTS_KEYS_H

#include <transports/region.h>

/* Embedded in a key or a grant: its next control message. It is in at most one queue. */
struct queued_word {
    struct queued_word *next;
    uint8_t kind; /* defined by the transport */
    bool queued;
};
struct word_queue {
    struct queued_word *first, **last;
};

static inline void words_init(struct word_queue *words) {
    words->first = NULL;
    words->last = &words->first;
}

static inline void words_add(struct word_queue *words, struct queued_word *word) {
    word->next = NULL;
    word->queued = true;
    *words->last = word;
    words->last = &word->next;
}

/* No effect if the entry is not in the queue. */
static inline void words_remove(struct word_queue *words, struct queued_word *word) {
    struct queued_word **at = &words->first;
    while (*at && *at != word) at = &(*at)->next;
    if (!*at) return;
    *at = word->next;
    if (!*at) words->last = at;
    word->queued = false;
}

static inline bool key_is_askable(const struct remote_region *region) {
    return region->base + region->len >= region->base && region->rights &&
           rights_are_known(region->rights);
}

/* A final refusal by the owner is an error. A temporary one means: use messages. */
static inline void key_refuse(struct lane_key *key, weft_status_t why) {
    bool final = why == WEFT_ERR_REVOKED || why == WEFT_ERR_INVALID_PARAM;
    key->status = final ? why : WEFT_NO_RESOURCE;
    key->refused = !final;
    key->how = weft_status_name(why);
    key->caps = 0;
}

#endif
