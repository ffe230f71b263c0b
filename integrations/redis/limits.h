/* Limits of the server's configuration, which hold for the module's clients and leases, too. */
#ifndef WEFT_REDIS_LIMITS_H
#define WEFT_REDIS_LIMITS_H

#include <stddef.h>

/* client-output-buffer-limit of normal clients, in bytes that wait for one. */
struct output_limits {
    size_t hard;               /* 1 GiB where the server sets none */
    size_t soft, soft_seconds; /* above `soft` for longer than that; 0: none */
};
extern struct output_limits output_limits;

/* Reads the limits if they may have changed. Not while the server is busy. */
void limits_refresh(void);
/* The configuration may have changed. */
void limits_forget(void);
/* Bytes that maxmemory leaves to leases. */
size_t limits_lease_room(void);

#endif
