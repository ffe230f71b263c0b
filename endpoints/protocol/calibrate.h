/*
 * Measured rates of this machine for the cost model. Measured once, in a few milliseconds, and
 * stored in a file of the user. If the file cannot be used, the measured values are used without
 * it. Calibration never fails.
 */
#ifndef WEFT_ENDPOINTS_PROTOCOL_CALIBRATE_H
#define WEFT_ENDPOINTS_PROTOCOL_CALIBRATE_H

#include <reactor/reactor.h>
#include <transports/transport.h>

/* name, built-in value, unit, what it is */
#define CALIBRATION(C)                                                                            \
    C(COPY_4K, "copy.4k", 40000000000, "B/s", "memcpy of 4 KiB again and again")                  \
    C(COPY_64K, "copy.64k", 30000000000, "B/s", "of 64 KiB")                                      \
    C(COPY_1M, "copy.1m", 20000000000, "B/s", "of 1 MiB")                                         \
    C(COPY_4M, "copy.4m", 10000000000, "B/s", "of 4 MiB")                                         \
    C(SYSCALL, "syscall", 200000, "ps", "a system call that does nothing")                        \
    C(VM_READ, "vm_read", 8000000000, "B/s", "process_vm_readv of 256 KiB; 0: it is not allowed") \
    C(SHM_BANDWIDTH, "shm.bandwidth", 0, "B/s",                                                   \
      "copies into a shared segment; 0 here and below: not measured")                             \
    C(TCP_LATENCY, "tcp.latency", 0, "ps",                                                        \
      "until a small message has come, by loopback and to another processor")                     \
    C(TCP_OVERHEAD, "tcp.overhead", 0, "ps", "a call that takes it")                              \
    C(TCP_BANDWIDTH, "tcp.bandwidth", 0, "B/s", "1 MiB sent and taken in turns of 64 KiB")
enum calibration_id {
#define CALIBRATION_ID(id, name, value, unit, help) CALIBRATE_##id,
    CALIBRATION(CALIBRATION_ID)
#undef CALIBRATION_ID
        N_CALIBRATIONS
};

enum calibration_origin { CALIBRATION_BUILT_IN, CALIBRATION_MEASURED, CALIBRATION_FILE };

struct calibration {
    uint64_t value[N_CALIBRATIONS];
    enum calibration_origin origin;
};

/* By the setting "calibration". In virtual time the built-in values: runs replay. */
void weft__calibration(struct reactor *r, struct calibration *c);
/* What these transports cost, which are open: found likewise, each when a worker first opens it,
 * and their attributes say so from then on. Built-in values leave those as they are. */
void weft__calibration_transports(struct reactor *r, struct calibration *c,
                                  struct iface *const *iface, unsigned n);

/* Nanoseconds for a copy of `len` bytes. */
double weft__calibration_copy_ns(const struct calibration *c, double len);

const char *weft__calibration_name(unsigned id, const char **unit_p, const char **help_p);

/* ---- the file */

enum { CALIBRATION_FILE_MAX = 2048, CALIBRATION_KEY = 256 };
/* False when it is no such file, or one of another key; then `c` is as it was. */
bool weft__calibration_read(const char *text, size_t len, const char *key, struct calibration *c);
/* The text for weft__calibration_read; its length. */
size_t weft__calibration_write(const struct calibration *c, const char *key,
                               char text[CALIBRATION_FILE_MAX]);

#endif
