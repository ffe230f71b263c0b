/*
 * A window around a lane that loses: to its owner it is a reliable lane, first in, first out.
 *
 * What a window asks of the transport below it, beyond transport.h: a frame that finds no lane makes one (`accepted`),
 * so that the one who sent it can be told; and its iface may be closed while such lanes, which their owner never heard
 * of, are still there: they go without a word.
 */
#ifndef WEFT_ENDPOINTS_WINDOW_LANE_H
#define WEFT_ENDPOINTS_WINDOW_LANE_H

#include <transports/transport.h>

/* Opens `transport`, whose iface lacks CAP_RELIABLE, within an iface that has it. Errors are those of its own open. */
weft_status_t weft__window_iface_open(struct reactor *r, const struct transport *transport,
                                      const struct iface_params *params, struct iface **iface_p);

#endif
