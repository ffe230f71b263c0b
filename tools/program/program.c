#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The open gets the lowest number that is free. What is written there fails. */
void program_begin(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)!open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

int program_end(const char *tool, int status) {
    errno = 0;
    bool lost = ferror(stdout);
    lost |= fflush(stdout) != 0;
    if (!lost) return status;
    fprintf(stderr, "%s: standard output: %s\n", tool,
            errno ? strerror(errno) : "not all was written");
    return status ? status : 1;
}

bool program_number(const char *text, uint64_t least, uint64_t most, uint64_t *number_p) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || number < least || number > most)
        return false;
    *number_p = number;
    return true;
}
