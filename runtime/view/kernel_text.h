/* Small files of /proc and /sys. */
#ifndef WEFT_RUNTIME_VIEW_KERNEL_TEXT_H
#define WEFT_RUNTIME_VIEW_KERNEL_TEXT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The beginning of a file, as text. False: it is empty, or not there. */
static inline bool read_text(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "re");
    size_t n = file ? fread(text, 1, size - 1, file) : 0;
    if (file) fclose(file);
    text[n] = 0;
    return n > 0;
}

/* A number at the beginning of a file; `otherwise` where there is none ("max"). */
static inline uint64_t read_number(const char *path, uint64_t otherwise) {
    char text[64], *end;
    if (!read_text(path, text, sizeof text)) return otherwise;
    uint64_t value = strtoull(text, &end, 10);
    return end == text ? otherwise : value;
}

/* The bytes of a line such as "MemTotal: 16 kB"; 0: there is none. */
static inline uint64_t bytes_after(const char *text, const char *name) {
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

#endif
