/*
 * A team that goes on without those of its members that were killed: four processes add up ones,
 * one of them is killed, and the others make a new team.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

enum { SIZE = 4, VICTIM = 2 };

static void must(weft_status_t status, const char *what) {
    char text[512];
    if (status >= 0) return;
    weft_status_describe(status, text, sizeof text);
    fprintf(stderr, "%s: %s\n", what, text);
    _exit(1);
}

static int32_t add_up(weft_team_t *team) {
    int32_t one = 1, sum = 0;
    return weft_allreduce_wait(team, &one, &sum, 1, WEFT_INT32, WEFT_SUM) < 0 ? -1 : sum;
}

static void member(const char *store, uint32_t rank) {
    weft_view_params_t params = {.engine = "store", .store = store, .rank = rank, .size = SIZE};
    weft_view_t *view;
    must(weft_view_create_wait(&params, &view), "view");
    weft_team_t *team = weft_view_team(view), *smaller;
    for (int i = 0; add_up(team) == SIZE; i++)
        if (rank == VICTIM && i == 100) raise(SIGKILL);

    /* Those that still wait in a collective learn of it; then all that are left are in shrink. */
    must(weft_team_revoke(team), "revoke");
    must(weft_team_shrink_wait(team, &smaller), "shrink");
    int32_t sum = add_up(smaller);
    printf("rank %u is rank %u of %u now, and the sum is %d\n", rank, weft_team_rank(smaller),
           weft_team_size(smaller), sum);
    fflush(stdout);
    must(weft_team_close_wait(smaller), "close");
    weft_view_release_wait(view);
    _exit(sum == SIZE - 1 ? 0 : 1);
}

/* It stays reserved, for nothing but the store, while this process has the socket. */
static int reserve_port(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, (struct sockaddr *)&at, len) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        exit(1);
    return ntohs(at.sin_port);
}

int main(void) {
    char store[64];
    int failed = 0, status;
    setenv("WEFT_LOG_LEVEL", "error", 0); /* the death would be a warning */
    snprintf(store, sizeof store, "127.0.0.1:%d", reserve_port());
    for (uint32_t rank = 0; rank < SIZE; rank++)
        if (fork() == 0) member(store, rank);
    while (wait(&status) > 0)
        failed |= status != 0 && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    return failed;
}
