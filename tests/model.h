/* What model tests ask of an exploration. */
#ifndef WEFT_TESTS_MODEL_H
#define WEFT_TESTS_MODEL_H

#include <fsm/explore/explorer.h>

/* Nothing is wrong, and all was seen. Only a channel that loses may be too short to follow every
 * move: what is not said into a full one is said again later. How much was seen is printed. */
static inline bool model_holds(const struct explore_model *model) {
    static struct explore_result result;
    bool ok = explore(model, &result);
    printf("  ");
    explore_print(&result, stdout);
    return ok && result.complete && (result.truncated == 0 || model->channel.losses > 0);
}

#endif
