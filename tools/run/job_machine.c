/* The table's actions: plain data only. */
#include "job.h"
#include <assert.h>

static void job_invariants(const struct fsm *m) {
    const struct job *job = (const struct job *)m;
    assert(job->fsm.state != JOB_RUNNING || job->code == 0);
}

#define FSM_NAME       job
#define FSM_PREFIX     JOB
#define FSM_INVARIANTS job_invariants
#include <fsm/define.h>

static void end_job_machine(struct fsm *m, int code) {
    ((struct job *)m)->code = code;
    fsm_effect(m, JOB_FX_TERMINATE);
    fsm_effect(m, JOB_FX_ARM_GRACE);
}

static void job_act_fail(struct fsm *m) {
    end_job_machine(m, ((struct job *)m)->reason);
}

static void job_act_note(struct fsm *m) {
    struct job *job = (struct job *)m;
    int *first = job->by_signal ? &job->killed : &job->exited;
    if (*first == 0) *first = job->reason;
}

static void job_act_stop(struct fsm *m) {
    end_job_machine(m, ((struct job *)m)->reason);
}

static void job_act_time_out(struct fsm *m) {
    end_job_machine(m, JOB_CODE_TIMEOUT);
}

static void job_act_kill(struct fsm *m) {
    fsm_effect(m, JOB_FX_KILL);
}

/* A process that a signal ended is lost. The codes of the others are the outcome. */
static void job_act_finish(struct fsm *m) {
    struct job *job = (struct job *)m;
    job->code = job->exited ? job->exited : job->well ? 0 : job->killed;
    fsm_effect(m, JOB_FX_LEAVE);
}

static void job_act_over(struct fsm *m) {
    fsm_effect(m, JOB_FX_LEAVE);
}
