#include "json.h"
#include <math.h>

void json_text(FILE *to, const char *text) {
    if (!text) {
        fputs("null", to);
        return;
    }
    fputc('"', to);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\')
            fprintf(to, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            fprintf(to, "\\u%04x", *p);
        else
            fputc(*p, to);
    }
    fputc('"', to);
}

void json_number(FILE *to, double value, int digits) {
    if (isfinite(value))
        fprintf(to, "%.*g", digits, value);
    else
        fputs("null", to);
}
