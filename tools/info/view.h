/* weft-info --view: the processes of a program, and the machines that they have. */
#ifndef WEFT_TOOLS_INFO_VIEW_H
#define WEFT_TOOLS_INFO_VIEW_H

#include <stdbool.h>

/*
 * Every process of the program calls it; rank 0 prints. Returns false after an error, with the
 * reason on stderr.
 */
enum info_format { INFO_TEXT, INFO_JSON, INFO_SVG };
bool info_view(int *argc, char ***argv, enum info_format format);

#endif
