/* The directory of the sockets: no other user may enter it. */
#ifndef WEFT_TRANSPORTS_SHM_MEMORY_DIRECTORY_H
#define WEFT_TRANSPORTS_SHM_MEMORY_DIRECTORY_H

#include <inttypes.h>
#include <reactor/reactor.h>
#include <transports/shm/wire/wire.h>

/* The name of a worker's own socket: its pid and its worker id. */
#define SHM_OWN_NAME "w-%d-%016" PRIx64
enum { SHM_OWN_NAME_SIZE = 32, SHM_PATH_SIZE = 108 };

/* The directory for the listeners of this process. It is made if it does not exist. */
weft_status_t weft__shm_directory(weft_context_t *context, char directory[SHM_DIRECTORY_MAX + 1]);
/* The path of a listener's socket by its name. REFUSED if none of the directories has that name. */
weft_status_t weft__shm_find(weft_context_t *context, const char *name, char path[SHM_PATH_SIZE]);
/* `directory` and `name` as one path. ADDRESS if the name is not allowed or too long. */
weft_status_t weft__shm_path(const char *directory, const char *name, char path[SHM_PATH_SIZE]);
/* The id of this boot of this machine. */
weft_status_t weft__shm_host(uint8_t host[16]);
/* A listening socket at `path`. `own`: the name belongs to one worker, so no other process wants
 * it. */
weft_status_t weft__shm_bind(const char *path, bool own, int backlog, int *fd_p);
/* Removes the sockets, of workers and of named listeners, whose processes died. A name that another
 * process binds now is left to it. */
void weft__shm_sweep(const char *directory);

#endif
