/* What keys have in common that are asked for by words: words that wait for room, and how a key stands that was refused. */
#ifndef WEFT_TRANSPORTS_KEYS_H
#define WEFT_TRANSPORTS_KEYS_H

#include <transports/region.h>

/* Embedded in a key or a grant: what it has to say as soon as there is room; in one queue, or in none. */
struct queued_word {
    struct queued_word *next;
    uint8_t kind; /* the transport's */
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

/* Nothing, where it is not in that one. */
static inline void words_remove(struct word_queue *words, struct queued_word *word) {
    struct queued_word **at = &words->first;
    while (*at && *at != word) at = &(*at)->next;
    if (!*at) return;
    *at = word->next;
    if (!*at) words->last = at;
    word->queued = false;
}

static inline bool key_is_askable(const struct remote_region *region) {
    return region->base + region->len >= region->base && region->rights && rights_are_known(region->rights);
}

/* What the owner will never grant is an error; what cannot be had now goes by messages. */
static inline void key_refuse(struct lane_key *key, weft_status_t why) {
    bool final = why == WEFT_ERR_REVOKED || why == WEFT_ERR_INVALID_PARAM;
    key->status = final ? why : WEFT_NO_RESOURCE;
    key->refused = !final;
    key->how = weft_status_name(why);
    key->caps = 0;
}

#endif
