/* The run queue: first in, first out. A pass runs what was queued when it began; what is posted
 * during the pass waits for the next one. */
#include "local.h"

/* Behind the last, so that every job that is queued has a next. */
static struct job end;

void weft__job_post(struct reactor *r, struct job *job) {
    if (weft__job_queued(job)) return;
    job->next = &end;
    *r->jobs.last = job;
    r->jobs.last = &job->next;
    r->jobs.n++;
    weft__reactor_kick(r);
}

static void unlink_job(struct reactor *r, struct job **link) {
    struct job *job = *link;
    *link = job->next;
    if (r->jobs.last == &job->next) r->jobs.last = link;
    job->next = NULL;
    r->jobs.n--;
}

void weft__job_drop(struct reactor *r, struct job *job) {
    if (!weft__job_queued(job)) return;
    struct job **link = &r->jobs.first;
    while (*link != job) link = &(*link)->next;
    unlink_job(r, link);
}

void weft__job_spare(struct reactor *r, struct job *job) {
    if (r->jobs.first == job) unlink_job(r, &r->jobs.first);
}

unsigned weft__jobs_run(struct reactor *r, unsigned budget) {
    r->jobs.left = budget;
    for (unsigned queued = r->jobs.n; queued && r->jobs.n && r->jobs.left; queued--) {
        struct job *job = r->jobs.first;
        unlink_job(r, &r->jobs.first);
        r->jobs.left--;
        job->run(job);
    }
    unsigned n = budget - r->jobs.left;
    r->gate.count->jobs += n;
    return n;
}
