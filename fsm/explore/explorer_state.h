/* The state of all peers together while it is worked on (`live`), and how it is kept: flat bytes
 * that compare and hash. */
#ifndef WEFT_FSM_EXPLORE_EXPLORER_STATE_H
#define WEFT_FSM_EXPLORE_EXPLORER_STATE_H

#include <fsm/explore/explorer.h>

struct live {
    struct explore_world world;
    uint64_t armed[EXPLORE_PEERS];
    uint8_t used[EXPLORE_PEERS][EXPLORE_LOCALS]; /* of the locals' budgets */
    uint8_t losses, repeats;                     /* of the channel's */
    bool overflow;                               /* a message found no room: this is no state */
    struct {
        _Alignas(16) unsigned char bytes[EXPLORE_STRUCT];
    } memory[EXPLORE_PEERS];
};

/* A permutation: place i of the kept state holds what was peer p[i]. */
typedef uint8_t places[EXPLORE_PEERS];

static inline unsigned live_room(const struct explore_model *model) {
    return model->channel.room ? model->channel.room : EXPLORE_MESSAGES;
}
size_t stats_size(const struct explore_model *model);
void stats_load(struct live *l, const struct explore_model *model, const struct fsm_port *ports,
                const unsigned char *kept);
/* Writes the state that stands for all that differ by a change of places among equal peers only. */
void live_keep(const struct live *l, const struct explore_model *model, unsigned char *kept,
               places p);

#endif
