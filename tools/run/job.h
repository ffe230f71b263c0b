/*
 * Processes of one job on this machine: started together, ended together, served with an exchange.
 */
#ifndef WEFT_TOOLS_RUN_JOB_H
#define WEFT_TOOLS_RUN_JOB_H

#include <fsm/fsm.h>
#include <stdbool.h>
#include <stdint.h>

#include "job.fsm"
#define FSM_NAME   job
#define FSM_PREFIX JOB
#define FSM_SETS   JOB_SETS
#include <fsm/declare.h>

/* The machine's data. */
struct job {
    struct fsm fsm;
    int reason;         /* the exit code that FAILED, LOST or STOP brings */
    bool by_signal;     /* what LOST reports */
    bool well;          /* a process has exited with 0 */
    int exited, killed; /* of LOST: the first code of either kind */
    int code;           /* of weft-run */
};

enum {
    JOB_CODE_TIMEOUT = 124,
    JOB_CODE_OUTPUT = 125,
    JOB_CODE_NOT_RUN = 126,
    JOB_CODE_NOT_FOUND = 127
};

struct job_params {
    const char *tool; /* for messages */
    uint32_t n;
    const char *file;  /* looked for in PATH */
    char *const *argv; /* NULL-terminated */
    double timeout_s;  /* 0: none */
    bool keep_going;   /* a process that fails does not end the others */
    bool plain;        /* the processes write to our own output, unprefixed */
};

/*
 * Runs it to its end. The exit code: 0, or that of the first failure (128 + signal, 124 on a
 * timeout, 125 where our own output cannot be written). With `keep_going` a process that a signal
 * ended is no failure where another one has exited with 0.
 */
int job_run(const struct job_params *params);

#endif
