/* The run queue: first in, first out. A pass runs what was queued when it began; what is posted meanwhile waits. */
#include "local.h"

/* Behind the last, so that every job that is queued has a next. */
static struct job end;

void weft__job_post(struct reactor *r, struct job *job) {
    if (weft__job_queued(job)) return;
    job->next = &end;
    *r->last_job = job;
    r->last_job = &job->next;
    r->n_jobs++;
    weft__reactor_kick(r);
}

static void unlink_job(struct reactor *r, struct job **link) {
    struct job *job = *link;
    *link = job->next;
    if (r->last_job == &job->next) r->last_job = link;
    job->next = NULL;
    r->n_jobs--;
}

void weft__job_drop(struct reactor *r, struct job *job) {
    if (!weft__job_queued(job)) return;
    struct job **link = &r->first_job;
    while (*link != job) link = &(*link)->next;
    unlink_job(r, link);
}

void weft__job_spare(struct reactor *r, struct job *job) {
    if (r->first_job == job) unlink_job(r, &r->first_job);
}

unsigned jobs_run(struct reactor *r, unsigned budget) {
    r->jobs_left = budget;
    for (unsigned queued = r->n_jobs; queued && r->n_jobs && r->jobs_left; queued--) {
        struct job *job = r->first_job;
        unlink_job(r, &r->first_job);
        r->jobs_left--;
        job->run(job);
    }
    unsigned n = budget - r->jobs_left;
    r->gate.count->jobs += n;
    return n;
}
