/*
 * A lane that adds a sliding window to an unreliable lane: reliable, first in, first out.
 *
 * Beyond transport.h, the transport below must do two things. A frame that belongs to no lane
 * creates one (`accepted`), so that its sender gets a reply. The interface may be closed while such
 * lanes exist that their owner never knew; they end silently.
 */
#ifndef WEFT_TRANSPORTS_RELIABLE_WINDOW_LANE_H
#define WEFT_TRANSPORTS_RELIABLE_WINDOW_LANE_H

#include <transports/transport.h>

/* Opens `transport`, which lacks CAP_RELIABLE, within an interface that has it. Returns the
 * errors of its open. */
weft_status_t weft__window_iface_open(struct reactor *r, const struct transport *transport,
                                      const struct iface_params *params, struct iface **iface_p);

#endif
