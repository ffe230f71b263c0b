#include "files.h"
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

/* Of the documents of a system only the copyright files are taken: the rest is often compressed. */
static bool wanted_files(const FTSENT *entry, bool copyright_only) {
    return entry->fts_info == FTS_F &&
           (!copyright_only || strcmp(entry->fts_name, "copyright") == 0);
}

static bool walk(struct files *f, const char *name, bool copyright_only) {
    char *roots[] = {(char *)name, NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    bool ok = tree != NULL;
    for (FTSENT *entry; ok && (entry = fts_read(tree));)
        if (wanted_files(entry, copyright_only))
            ok = add_files(f, entry->fts_path, (uint64_t)entry->fts_statp->st_size);
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
        if (!walk(f, names[i], false)) return false;
    }
    return true;
}

bool files_find(struct files *f, char **names, size_t n, uint32_t n_ranks) {
    *f = (struct files){0};
    bool found =
        n > 0 ? find_named(f, names, n)
              : walk(f, "/usr/share/common-licenses", false) && walk(f, "/usr/share/doc", true);
    if (found && f->n == 0) fprintf(stderr, "wordcount: no files to count\n");
    return found && f->n > 0 && share_out(f, n_ranks);
}

void files_close(struct files *f) {
    for (size_t i = 0; i < f->n; i++) free(f->list[i].path);
    free(f->list);
}
