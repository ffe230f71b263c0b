/* Views of one process, and of several that are forked and meet at a store on loopback. */
#ifndef WEFT_TESTS_RUNTIME_VIEW_PROCESSES_H
#define WEFT_TESTS_RUNTIME_VIEW_PROCESSES_H

#include "../harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <tests/support/reserved_port.h>
#include <unistd.h>
#include <weft/weft.h>

static inline weft_view_t *view_of_one(void) {
    weft_view_t *view = NULL;
    CHECK_EQ(weft_view_create_wait(&(weft_view_params_t){.engine = "single"}, &view), WEFT_OK);
    return view;
}

/* Where a store may listen, until the descriptor that is returned is closed. */
static inline int store_address(char text[64]) {
    struct reserved_port reserved = port_reserve();
    snprintf(text, 64, "127.0.0.1:%u", reserved.port);
    return reserved.fd;
}

static inline weft_view_t *join(const char *store, uint32_t rank, uint32_t size) {
    weft_view_t *view = NULL;
    weft_view_params_t params = {
        .engine = "store", .store = store, .rank = rank, .size = size, .deadline_ms = 60000};
    CHECK_EQ(weft_view_create_wait(&params, &view), WEFT_OK);
    return view;
}

/* Runs `body` in `size` processes, each a rank; every one of them has to end well. */
static inline void in_processes(uint32_t size,
                                void (*body)(const char *store, uint32_t rank, uint32_t n)) {
    char store[64];
    pid_t pid[64];
    uint32_t n_bad = 0;
    CHECK(size <= sizeof pid / sizeof *pid);
    int reserved = store_address(store);
    fflush(stdout);
    for (uint32_t rank = 0; rank < size; rank++) {
        pid[rank] = fork();
        CHECK(pid[rank] >= 0);
        if (pid[rank] > 0) continue;
        if (setjmp(test_out) == 0) body(store, rank, size); /* a failed CHECK ends the process */
        fflush(stdout);
        _exit(test_result == 1);
    }
    for (uint32_t rank = 0; rank < size; rank++) {
        int status;
        CHECK_EQ(waitpid(pid[rank], &status, 0), pid[rank]);
        if (status == 0) continue;
        printf("  rank %u ended with 0x%x\n", rank, (unsigned)status);
        n_bad++;
    }
    close(reserved);
    CHECK_EQ(n_bad, 0);
}

#endif
