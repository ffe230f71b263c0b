/*
 * One run of the live fuzzer. Two real workers, the victim and its honest partner, do real work.
 * Raw peers hold the key, connect to the victim, and send any message in any state. One thread
 * drives all of them, and a seed decides every step.
 */
#ifndef WEFT_TESTS_FUZZ_LIVE_WORLD_H
#define WEFT_TESTS_FUZZ_LIVE_WORLD_H

#include <stdbool.h>
#include <stdio.h>
#include <tests/random/chance.h>
#include <tests/random/shape.h>
#include <transports/trust.h>
#include <weft/weft.h>

enum { ENDS = 64, FIELDS = 4, KEYS = 16, MESSAGES = 128 };
enum { VICTIM, PARTNER };

/* Which states a run aims at. */
enum scenario { OVER_TCP, OVER_SHM, SURVIVAL, PLACEMENT, LANES, SCENARIOS };

/* Half of an endpoint, of the victim or of the partner. */
struct end {
    weft_ep_t *ep; /* NULL: it is closed */
    unsigned worker;
    bool honest, lost;
    uint64_t stream_out, stream_in; /* bytes, of an honest one */
};

/* An operation of a real worker. It is called back once if it was accepted, and never otherwise. */
struct op {
    struct op *next; /* all of a run, the newest first */
    const char *name;
    unsigned number;
    bool posting, accepted, cancelled;
    int calls;
    weft_status_t status;
    weft_request_t *request;
    struct shape shape;
    weft_tag_info_t info;
    struct message *message; /* an honest one; or NULL */
    struct end *end;
    size_t got;
    uint64_t old;
    void (*ended)(struct op *op); /* looks at what came; or NULL */
};

/* A tagged message from the partner to the victim. */
struct message {
    size_t len;
    struct op *send, *receive;
};

struct field {
    weft_mem_t *mem;
    uint8_t *base;
    size_t len;
    uint8_t key[WEFT_RKEY_MAX];
    size_t key_len;
    bool going;
};

struct world {
    uint64_t seed;
    enum scenario scenario;
    weft_context_t *context;
    weft_worker_t *worker[2];
    weft_listener_t *listener;
    char address[256]; /* of the victim */
    size_t address_len;
    struct trust_key key;
    struct end end[ENDS], *honest[2]; /* the pair: the victim's half, and the partner's */
    unsigned n_ends;
    struct op *ops;
    unsigned n_ops;
    struct message message[MESSAGES];
    unsigned n_messages, pings, pongs;
    struct field field[FIELDS];
    weft_rkey_t *rkey[KEYS];
    unsigned n_rkeys;
    const void *kept[8];
    unsigned n_kept;
    weft_tag_message_t *taken;
    uint64_t spin_ns;
    bool receiving; /* from the honest stream */
    /* raw peers send much that no peer may send; else little, and links live longer */
    bool crude;
    bool starves;    /* allocations fail at times */
    bool stream_gap; /* a part of the honest stream was not sent */
    bool starved;    /* some may have failed: whatever needed memory may have ended */
    bool closing;
};
extern struct world *world;
extern bool fuzz_traces;

__attribute__((format(printf, 1, 2), noreturn)) void wrong(const char *format, ...);
__attribute__((format(printf, 1, 2))) void trace(const char *format, ...);

/* What all raw peers send as a payload: the byte at each offset of a message. */
#define RAW_NAME UINT64_C(5)
/* Tags of honest messages; no raw peer sends one. */
#define HONEST_TAG (UINT64_C(1) << 63)

/* machine.c: the clock and the random bytes that the library is given */
void machine_begin(uint64_t seed);
void machine_pass(uint64_t ns);

/* What the victim has come to, of its counters: a fuzzer that reaches no state finds nothing
 * there. */
enum { REACHED = 9 };
extern const char *const reached_name[REACHED];

/* world.c */
void world_run(uint64_t seed, enum scenario scenario, bool starves, const bool *keep,
               uint64_t reached[REACHED]);
void run_worker(unsigned which, unsigned budget);
void run_all(unsigned turns);
struct op *op_new(const char *name);
weft_op_t op_of(struct op *op);
void op_answered(struct op *op, weft_status_t status);
#define POST(op, call)             \
    do {                           \
        (op)->posting = true;      \
        op_answered((op), (call)); \
    } while (0)
bool op_is_over(const struct op *op);
struct end *end_new(weft_ep_t *ep, unsigned worker);
bool honest_lost(void); /* the pair has lost its connection */
void honest_send(void);
void honest_receive(void);
void honest_ping(void);
void honest_stream(void);

/* actions.c */
enum { ACTIONS_MAX = 240 };
unsigned actions_count(void); /* of the world's seed */
void actions_run(const bool *keep);

#endif
