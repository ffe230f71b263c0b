/* Which files there are to count, in an order that is the same for every process. */
#ifndef WEFT_TOOLS_WORDCOUNT_FILES_H
#define WEFT_TOOLS_WORDCOUNT_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text_file {
    char *path;
    uint64_t size;
    uint32_t rank; /* who counts it */
};

struct files {
    struct text_file *list;
    size_t n, room;
    uint64_t bytes;
};

/*
 * `names` are files and folders; a folder stands for all regular files in it, at any depth. n 0:
 * the default, as far as it can be read. False after a message, as where a folder cannot be read.
 */
bool files_find(struct files *files, char **names, size_t n, uint32_t n_ranks);
void files_close(struct files *files);

#endif
