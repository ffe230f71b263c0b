/*
 * weft-info --transports: the RDMA devices of this machine, whether or not a transport uses them.
 */
#ifndef WEFT_TOOLS_INFO_DEVICES_H
#define WEFT_TOOLS_INFO_DEVICES_H

#include <weft/weft.h>

struct rd_list;

/* NULL: there are none, or it was built without RDMA. It goes with the context. */
struct rd_list *info_devices_of(weft_context_t *context);
void info_devices(const struct rd_list *list);
void info_devices_json(const struct rd_list *list);

#endif
