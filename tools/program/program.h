/* What the programs of this folder have in common: standard streams, and numbers as arguments. */
#ifndef WEFT_TOOLS_PROGRAM_PROGRAM_H
#define WEFT_TOOLS_PROGRAM_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

/* First of all. A standard stream that the caller has closed stays closed for what is printed, and
 * no file that is opened later gets its number. */
void program_begin(void);
/* Last of all. Returns `status`, or 1 after a line that says why what was printed is not all
 * written. */
int program_end(const char *tool, int status);

/* All of `text` is a number of decimal digits, from `least` to `most`. */
bool program_number(const char *text, uint64_t least, uint64_t most, uint64_t *number_p);

#endif
