/* The exchange of a team of one member. */
#include <string.h>
#include <weft/team.h>

static weft_status_t copy_own(void *arg, weft_worker_t *worker, const void *mine, size_t len,
                              void *all, weft_done_fn done, void *done_arg) {
    memcpy(all, mine, len);
    done(WEFT_OK, done_arg);
    return WEFT_OK;
}

const weft_exchange_t *weft_self_exchange(void) {
    static const weft_exchange_t of_one = {.rank = 0, .size = 1, .allgather = copy_own};
    return &of_one;
}
