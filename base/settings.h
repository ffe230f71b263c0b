/* Settings by id. base/settings.def is the one table: name, type, default, range, unit, help. */
#ifndef WEFT_BASE_SETTINGS_H
#define WEFT_BASE_SETTINGS_H

#include <stdint.h>
#include <weft/context.h>

enum setting {
#define SETTING(id, name, type, value, range, unit, help) SETTING_##id,
#include <base/settings.def>
#undef SETTING
    N_SETTINGS
};
/* Of an AUTOSIZE that is "auto". */
#define SETTING_AUTO UINT64_MAX
/* sizes, times, numbers, booleans */
uint64_t weft__setting_u64(const weft_context_t *context, enum setting id);
/* The same, where what keeps it holds no more than `most`. */
uint32_t weft__setting_u32(const weft_context_t *context, enum setting id, uint32_t most);
const char *weft__setting_str(const weft_context_t *context, enum setting id);

#endif
