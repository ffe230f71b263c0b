#include "shipped.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Calls `each` with the name of every symbol and the source file that a local one came from. */
static bool walk(void (*each)(const char *symbol, const char *source, void *arg), void *arg) {
    char self[512] = "", command[700], line[1000], kind[40], name[400], source[400] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return false;
    snprintf(command, sizeof command, "readelf --symbols --wide '%s'", self);
    FILE *in = popen(command, "r");
    if (!in) return false;
    while (fgets(line, sizeof line, in)) {
        bool defined = !strstr(line, " UND ");
        if (sscanf(line, "%*s %*s %*s %39s %*s %*s %*s %399s", kind, name) != 2 || !defined)
            continue;
        if (strcmp(kind, "FILE") == 0)
            snprintf(source, sizeof source, "%s", name);
        else
            each(name, source, arg);
    }
    return pclose(in) == 0;
}

struct search {
    const char *name;
    unsigned found;
    char source[400];
};

static void match(const char *symbol, const char *source, void *arg) {
    struct search *s = arg;
    if (strcmp(symbol, s->name) != 0) return;
    s->found++;
    snprintf(s->source, sizeof s->source, "%s", source);
}

unsigned symbols_named(const char *name) {
    struct search s = {.name = name};
    return walk(match, &s) ? s.found : 0;
}

bool links_shipped(const char *machine, const char *source) {
    char cells[100], constant[100];
    snprintf(cells, sizeof cells, "%s_cells", machine);
    snprintf(constant, sizeof constant, "weft__%s_machine", machine);
    struct search s = {.name = cells};
    if (!walk(match, &s) || s.found != 1 || symbols_named(constant) != 1) {
        printf("  %u tables %s\n", s.found, cells);
        return false;
    }
    if (strcmp(s.source, source) != 0) printf("  %s is from %s\n", cells, s.source);
    return strcmp(s.source, source) == 0;
}
