/* What the room transfer/ calls in the rooms above it. */
#ifndef WEFT_ENDPOINTS_WORKER_TRANSFER_USERS_H
#define WEFT_ENDPOINTS_WORKER_TRANSFER_USERS_H

#include <endpoints/transfer/placement.h>

extern const struct transfer_users weft__transfer_users;

#endif
