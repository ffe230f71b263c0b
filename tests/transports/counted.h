/* Completions that count their calls. */
#ifndef WEFT_TESTS_TRANSPORTS_COUNTED_H
#define WEFT_TESTS_TRANSPORTS_COUNTED_H

#include <transports/transport.h>

struct counted {
    struct completion completion;
    int calls;
    weft_status_t status;
};
static inline void counted_done(struct completion *c, weft_status_t status) {
    struct counted *counted = (struct counted *)c;
    counted->calls++;
    counted->status = status;
}
static inline struct counted counted(uint32_t count) {
    return (struct counted){.completion = {counted_done, count, WEFT_OK}};
}

#endif
