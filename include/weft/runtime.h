/* Processes started by weft-run: their ranks, and the exchange between them. */
#ifndef WEFT_RUNTIME_H
#define WEFT_RUNTIME_H

#include <weft/team.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Returns the exchange that weft-run serves, for weft_team_create. There is one per process,
 * created by the first call from the environment that weft-run sets. A process that was started
 * without weft-run gets an exchange of one member. NULL if the environment is malformed; the log
 * says why.
 *
 * It serves one creation of a team at a time, since members match their calls by their order alone.
 * Create the next team after on_ready of the one before, on every member; until then
 * weft_team_create returns BUSY. weft_team_split and others make further teams without it.
 */
WEFT_API const weft_exchange_t *weft_run_exchange(void);

#ifdef __cplusplus
}
#endif
#endif
