/*
 * A PMIx client library, loaded at run time: OpenPMIx 3 and later, whose ABI this declares (PMIx
 * Standard 4, "API interfaces" and "Data structures").
 */
#ifndef WEFT_RUNTIME_VIEW_PMIX_LIBRARY_H
#define WEFT_RUNTIME_VIEW_PMIX_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/base.h>

enum {
    PMIX_SUCCESS_CODE = 0,
    PMIX_TYPE_BOOL = 1,
    PMIX_TYPE_UINT32 = 14,
    PMIX_TYPE_BYTES = 27,
    PMIX_SCOPE_GLOBAL = 3,
    PMIX_NAME_ROOM = 256,
    PMIX_KEY_ROOM = 512
};
#define PMIX_ANY_RANK ((uint32_t)-2)

struct pmix_process {
    char name_space[PMIX_NAME_ROOM];
    uint32_t rank;
};
struct pmix_value {
    uint16_t type;
    union {
        bool flag;
        uint32_t number;
        struct {
            char *bytes;
            size_t size;
        } bytes;
        char *room[3]; /* the largest member of the ABI's union has this size */
    } data;
};
struct pmix_info {
    char key[PMIX_KEY_ROOM];
    uint32_t flags;
    struct pmix_value value;
};

struct pmix_library {
    int (*init)(struct pmix_process *me, struct pmix_info *info, size_t n);
    int (*finalize)(const struct pmix_info *info, size_t n);
    int (*put)(uint8_t scope, const char *key, struct pmix_value *value);
    int (*commit)(void);
    int (*get)(const struct pmix_process *of, const char *key, const struct pmix_info *info,
               size_t n, struct pmix_value **value_p);
    /* calls back from a thread of the library's own */
    int (*fence)(const struct pmix_process *of, size_t n, const struct pmix_info *info,
                 size_t n_info, void (*done)(int status, void *arg), void *arg);
    const char *(*error_text)(int status);
};

/* Whether a PMIx server started this process. */
bool weft__pmix_present(void);
/* WEFT_ERR_NOT_FOUND: there is none. */
weft_status_t weft__pmix_load(struct pmix_library *pmix);

#endif
