/* Processes started by weft-run: who they are, and how they find each other. */
#ifndef WEFT_RUNTIME_H
#define WEFT_RUNTIME_H

#include <weft/team.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The exchange served by weft-run, one per process, made on first call from the environment that weft-run
 * sets. A process started alone gets a team of one. NULL when the environment is broken (see the log).
 */
WEFT_API const weft_exchange_t *weft_run_exchange(void);

#ifdef __cplusplus
}
#endif
#endif
