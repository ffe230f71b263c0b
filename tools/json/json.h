/* JSON, written to a stream as it comes. */
#ifndef WEFT_TOOLS_JSON_JSON_H
#define WEFT_TOOLS_JSON_JSON_H

#include <stdint.h>
#include <stdio.h>

/* A text in quotes, escaped; U+FFFD stands for each byte that is not UTF-8. NULL: null. */
void json_text(FILE *to, const char *text);
/* The shortest number that has `digits` significant ones; what is no number becomes null. */
void json_number(FILE *to, double value, int digits);

#endif
