/* weft-info --transports: the GPUs of this machine, and the paths to their memory. */
#ifndef WEFT_TOOLS_INFO_GPUS_H
#define WEFT_TOOLS_INFO_GPUS_H

#include <stdbool.h>

/* Loads the driver, in this program. False: there is none, or it has no device. */
bool info_gpus_open(void);
void info_gpus(void);
void info_gpus_json(void);

#endif
