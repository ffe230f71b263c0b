/* Trials of a ring's tactics: measures windows of answers, and keeps what shortens them. */
#include "tactics.h"

/* Orders of a trial's windows, half of them with the switch. */
static const uint8_t orders[] = {0x5a, 0xa5, 0x3c, 0xc3, 0x69, 0x96, 0x33, 0xcc};

static uint32_t random_of(struct tactics *t) {
    t->seed = t->seed * 1664525 + 1013904223;
    return t->seed >> 16;
}

static void begin_trial(struct tactics *t) {
    t->in_trial = true;
    t->window = 0;
    t->order = orders[random_of(t) % sizeof orders];
    t->shortest[0] = t->shortest[1] = UINT64_MAX;
}

static bool gains(const struct tactics *t) {
    uint64_t as_kept = t->shortest[0], switched = t->shortest[1];
    return switched != UINT64_MAX && as_kept != UINT64_MAX &&
           switched + switched / TACTICS_GAIN < as_kept;
}

/* The rest grows when each tactic was tried in vain; a change shortens it to the least. */
static void end_trial(struct tactics *t) {
    if (gains(t)) {
        t->kept ^= (uint8_t)(1 << t->tried);
        t->unchanged = 0;
        t->rest = TACTICS_REST;
    } else if (++t->unchanged == N_TACTICS) {
        t->unchanged = 0;
        if (t->rest < TACTICS_REST_MOST) t->rest *= 4;
    }
    t->tried = (uint8_t)((t->tried + 1) % N_TACTICS);
    t->in_trial = false;
    t->resting = (uint16_t)(t->rest + random_of(t) % TACTICS_REST);
}

static void count_window(struct tactics *t, uint64_t now) {
    unsigned with = t->order >> t->window & 1;
    if (t->began && now - t->began < t->shortest[with]) t->shortest[with] = now - t->began;
    if (++t->window == TACTICS_TRIAL) end_trial(t);
}

static void end_window(struct tactics *t, uint64_t now) {
    if (t->in_trial)
        count_window(t, now);
    else if (--t->resting == 0)
        begin_trial(t);
    bool with = t->in_trial && (t->order >> t->window & 1);
    t->used = with ? t->kept ^ (uint8_t)(1 << t->tried) : t->kept;
    t->handed_over = tactics_use(t, TACTIC_HAND_OVER) ? TACTICS_MOST_HANDED : 0;
    t->timed = false;
    t->left = TACTICS_SETTLE;
}

void weft__tactics_turn(struct tactics *t, uint64_t now) {
    if (t->timed) {
        end_window(t, now);
        return;
    }
    t->timed = true;
    t->began = now;
    t->left = TACTICS_WINDOW - TACTICS_SETTLE;
}
