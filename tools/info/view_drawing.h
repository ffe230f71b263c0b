/* The machines of a program, drawn: hosts, packages, NUMA nodes, caches, memory, devices, and the
 * ranks on them. */
#ifndef WEFT_TOOLS_INFO_VIEW_DRAWING_H
#define WEFT_TOOLS_INFO_VIEW_DRAWING_H

#include <stdint.h>
#include <weft/view.h>

/* `set` has one of each rank. */
void info_draw_text(const weft_resource_set_t *const *set, uint32_t n);
void info_draw_svg(const weft_resource_set_t *const *set, uint32_t n);

#endif
