/*
 * fsm-pictures [DIRECTORY]: writes every machine of the library into docs/fsm (or DIRECTORY):
 * NAME.txt, NAME.dot and, by Graphviz, NAME.svg. Run it after a table has changed; a test compares.
 */
#include <errno.h>
#include <fsm/explore/print.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *directory = "docs/fsm";

static int fail_fsm_pictures(const char *what, int code) {
    fprintf(stderr, "fsm-pictures: %s: %s\n", what, strerror(code));
    return -1;
}

static int write_as(const struct fsm_machine *m, const char *ending,
                    void (*print)(const struct fsm_machine *, FILE *)) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s.%s", directory, m->name, ending);
    FILE *out = fopen(path, "w");
    if (!out) return fail_fsm_pictures(path, errno);
    print(m, out);
    return fclose(out) == 0 ? 0 : fail_fsm_pictures(path, errno);
}

static int draw(const struct fsm_machine *m) {
    char from[512], to[512];
    snprintf(from, sizeof from, "%s/%s.dot", directory, m->name);
    snprintf(to, sizeof to, "%s/%s.svg", directory, m->name);
    char *args[] = {"dot", "-Tsvg", "-o", to, from, NULL};
    pid_t child;
    int status, code = posix_spawnp(&child, "dot", NULL, NULL, args, environ);
    if (code) return fail_fsm_pictures("dot", code);
    if (waitpid(child, &status, 0) < 0) return fail_fsm_pictures("dot", errno);
    return status == 0 ? 0 : fail_fsm_pictures(from, EIO);
}

int main(int argc, char **argv) {
    unsigned n;
    int failed = 0;
    if (argc > 2 || (argc == 2 && argv[1][0] == '-')) {
        fputs("fsm-pictures [DIRECTORY]: writes a picture of each machine (docs/fsm)\n", stderr);
        return 2;
    }
    if (argc > 1) directory = argv[1];
    for (const struct fsm_machine *const *p = weft__fsm_machines(&n); n--; p++)
        failed |= write_as(*p, "txt", weft__fsm_print_text) ||
                  write_as(*p, "dot", weft__fsm_print_dot) || draw(*p);
    return failed != 0;
}
