/* Two processes, by the mailbox. */
#include <stdlib.h>
__attribute__((constructor)) static void without_rings(void) {
    setenv("WEFT_SHM_RINGS", "0", 1);
}
#include "shm_process.h"
