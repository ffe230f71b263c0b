/*
 * A gate in a CUDA stream of the program: an operation that takes its turn among the stream's work.
 *
 * When the stream gets there, the driver's thread calls `reached`. Later work of the stream waits,
 * in the stream, until the gate is opened: for a word in registered memory, which the opener
 * writes. So no thread waits, and nothing is polled.
 */
#ifndef WEFT_TRANSPORTS_CUDA_STREAM_GATE_H
#define WEFT_TRANSPORTS_CUDA_STREAM_GATE_H

#include "driver.h"

struct cuda_gate;

/*
 * Makes a gate that is not in its stream yet. `owner` is any pointer (weft__cuda_gates_leave).
 * `reached` is called once, with locks held: it only submits. Any thread.
 * Errors: UNSUPPORTED: no driver, no stream memory operations, or the stream is being captured;
 * NO_MEMORY; QUOTA: too many gates are closed; IO.
 */
weft_status_t weft__cuda_gate_new(void *stream, void *owner, void (*reached)(void *arg), void *arg,
                                  struct cuda_gate **gate_p);
/* For one that is not in its stream. */
void weft__cuda_gate_free(struct cuda_gate *gate);
/* Puts it into its stream. `reached` may be called before this returns. IO: the gate is gone. */
weft_status_t weft__cuda_gate_place(struct cuda_gate *gate);

/* True: `reached` has not been called, and will not be. Any thread. */
bool weft__cuda_gate_leave(struct cuda_gate *gate);
/* Later work of the stream may run. The gate is gone for its owner, who was reached or has left. */
void weft__cuda_gate_open(struct cuda_gate *gate);
/*
 * True: no gate holds back a stream, and none is placed until weft__cuda_gates_go_on. The driver
 * may wait for all work of a context where it unmaps or unpins memory. Such a call is made in
 * between, as it might else wait for a gate that the calling thread is to open. False: a gate is
 * closed, or recorded, or being placed. Any thread; it does not wait.
 */
bool weft__cuda_gates_rest(void);
void weft__cuda_gates_go_on(void);
/* The program captures this stream in a graph. */
bool weft__cuda_stream_is_captured(void *stream);
/*
 * Records a gate in the graph of a stream that is being captured. Each launch calls `reached`, and
 * the graph's later work waits until the gate is opened, which it then is for that launch. The gate
 * stays until weft__cuda_gates_leave, or for ever: later launches pass it. Launches must not
 * overlap. Errors: as of weft__cuda_gate_new; UNSUPPORTED if the driver captures no wait for a
 * value.
 */
weft_status_t weft__cuda_gate_record(void *stream, void *owner, void (*reached)(void *arg),
                                     void *arg, struct cuda_gate **gate_p);
/* Leaves the gates of an owner for which `leaves` says so. It gets the `arg` of each, with locks
 * held, and only submits. `which` NULL: the owner ends; recorded gates are left without a call. */
void weft__cuda_gates_leave(const void *owner, bool (*leaves)(void *arg, const void *which),
                            const void *which);

#endif
