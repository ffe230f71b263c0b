/*
 * A team that goes on without a member that was killed. Start it as
 * `weft-run -n 4 --keep-going shrink`: the processes add up ones, one of them is killed, and the
 * others make a new team.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <weft/weft.h>

enum { VICTIM = 2 };

static void must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    exit(1);
}

static int32_t add_up(weft_team_t *team) {
    int32_t one = 1, sum = 0;
    return weft_allreduce_wait(team, &one, &sum, 1, WEFT_INT32, WEFT_SUM) < 0 ? -1 : sum;
}

int main(void) {
    weft_view_t *view;
    setenv("WEFT_LOG_LEVEL", "error", 0); /* the death would be a warning */
    must(weft_view_create_wait(NULL, &view), "view");
    weft_team_t *team = weft_view_team(view), *smaller;
    uint32_t size = weft_team_size(team);
    if (size <= VICTIM) {
        fprintf(stderr, "start it as: weft-run -n 4 --keep-going shrink\n");
        return 1;
    }
    for (int i = 0; add_up(team) == (int32_t)size; i++)
        if (weft_team_rank(team) == VICTIM && i == 100) raise(SIGKILL);

    /* Those that still wait in a collective learn of it; then all that are left are in shrink. */
    must(weft_team_revoke(team), "revoke");
    must(weft_team_shrink_wait(team, &smaller), "shrink");
    int32_t sum = add_up(smaller);
    printf("rank %u is rank %u of %u now, and the sum is %d\n", weft_team_rank(team),
           weft_team_rank(smaller), weft_team_size(smaller), sum);
    uint32_t left = weft_team_size(smaller);
    must(weft_team_close_wait(smaller), "close");
    must(weft_view_release_wait(view), "release");
    return sum == (int32_t)left && left == size - 1 ? 0 : 1;
}
