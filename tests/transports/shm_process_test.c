/* Two processes, by rings. */
#include "shm_process.h"
