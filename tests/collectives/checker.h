/*
 * Proof of an algorithm for one team size, without a network: all ranks' schedules are run on
 * symbols. A symbol is one rank's contribution to one element, or the reduction of a left symbol
 * and a right one.
 *
 * Proved: every send has its one receive, of the same length, and the reverse; nothing waits for
 * ever, even where a send ends only when its receive has been posted; steps that touch the same
 * bytes are ordered by their dependencies (hence the result is the same in whatever order messages
 * come); a put into a member's memory is ordered, by messages, against all that this member does
 * with those bytes, and comes before the member's end; what may only be read is not written; the
 * result is right in every element: each contribution once, the same tree of operations at every
 * member, and in fixed-order algorithms the fold by rank from the left; and where that was asked
 * for, no rank ends before all have begun.
 *
 * Of an algorithm that asks for counts, the schedule of counts is proved first; the other is built
 * with its result.
 */
#ifndef WEFT_TESTS_COLLECTIVES_CHECKER_H
#define WEFT_TESTS_COLLECTIVES_CHECKER_H

#include <collectives/schedule.h>

struct check {
    enum coll_algorithm algorithm;
    struct coll_shape shape; /* `rank` is not looked at */
    bool in_place;
    /* in place of the algorithm's own, for tests of the checker; or NULL */
    void (*build)(struct schedule *s);
    uint32_t every; /* ordering is proved for each `every`-th rank; 0 means 1 */
};

/* True when all of it holds; otherwise `why` names the first thing that does not. */
bool weft__schedule_check(const struct check *check, char *why, size_t size);

#endif
