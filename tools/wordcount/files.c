#include "files.h"
#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool add_files(struct files *f, const char *path, uint64_t size) {
    if (f->n == f->room) {
        size_t room = f->room ? 2 * f->room : 256;
        struct text_file *more = realloc(f->list, room * sizeof f->list[0]);
        if (!more) return false;
        f->list = more;
        f->room = room;
    }
    char *copy = strdup(path);
    if (!copy) return false;
    f->list[f->n++] = (struct text_file){copy, size, 0};
    f->bytes += size;
    return true;
}

/* Where a folder comes from. Of the documents of a system only the copyright files are taken: the
 * rest is often compressed. */
enum origin { NAMED, LICENSES, DOCUMENTS };

static bool wanted_files(const FTSENT *entry, enum origin origin) {
    return entry->fts_info == FTS_F &&
           (origin != DOCUMENTS || strcmp(entry->fts_name, "copyright") == 0);
}

/* What is named and cannot be looked into would be missing in the count, and in its check, too. Of
 * a system what can be read will do. */
static bool take_entry(struct files *f, const FTSENT *entry, enum origin origin) {
    unsigned short info = entry->fts_info;
    if (origin == NAMED && (info == FTS_DNR || info == FTS_ERR || info == FTS_NS)) {
        fprintf(stderr, "%s: %s\n", entry->fts_path, strerror(entry->fts_errno));
        return false;
    }
    if (!wanted_files(entry, origin) ||
        add_files(f, entry->fts_path, (uint64_t)entry->fts_statp->st_size))
        return true;
    fprintf(stderr, "wordcount: out of memory\n");
    return false;
}

static bool walk(struct files *f, const char *name, enum origin origin) {
    char *roots[] = {(char *)name, NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    const FTSENT *entry = NULL;
    bool ok = true;
    while (ok && tree && (entry = fts_read(tree)) != NULL) ok = take_entry(f, entry, origin);
    if (ok && errno != 0) { /* fts_read() leaves 0 at the end */
        perror(name);
        ok = false;
    }
    if (tree) fts_close(tree);
    return ok;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct text_file *)a)->path, ((const struct text_file *)b)->path);
}

static int by_size(const void *a, const void *b) {
    const struct text_file *x = a, *y = b;
    return x->size != y->size ? (x->size < y->size ? 1 : -1) : by_path(a, b);
}

/* The largest first, each to who has least: shares differ by one small file. */
static bool share_out(struct files *f, uint32_t n_ranks) {
    uint64_t *load = calloc(n_ranks, sizeof load[0]);
    if (!load) return false;
    qsort(f->list, f->n, sizeof f->list[0], by_size);
    for (size_t i = 0; i < f->n; i++) {
        uint32_t least = 0;
        for (uint32_t r = 1; r < n_ranks; r++)
            if (load[r] < load[least]) least = r;
        f->list[i].rank = least;
        load[least] += f->list[i].size + 1;
    }
    free(load);
    return true;
}

static bool find_named(struct files *f, char **names, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct stat about;
        if (stat(names[i], &about) < 0) {
            perror(names[i]);
            return false;
        }
        if (!walk(f, names[i], NAMED)) return false;
    }
    return true;
}

bool files_find(struct files *f, char **names, size_t n, uint32_t n_ranks) {
    *f = (struct files){0};
    bool found = n > 0 ? find_named(f, names, n)
                       : walk(f, "/usr/share/common-licenses", LICENSES) &&
                             walk(f, "/usr/share/doc", DOCUMENTS);
    if (found && f->n == 0) fprintf(stderr, "wordcount: no files to count\n");
    return found && f->n > 0 && share_out(f, n_ranks);
}

void files_close(struct files *f) {
    for (size_t i = 0; i < f->n; i++) free(f->list[i].path);
    free(f->list);
}
