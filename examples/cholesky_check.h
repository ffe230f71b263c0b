/* What the Cholesky example checks its result by. */
#ifndef CHOLESKY_CHECK_H
#define CHOLESKY_CHECK_H
#include <dlfcn.h>
#include <math.h>
#include <stddef.h>

/* By how much an element of L times its transpose differs from that of the matrix, at most. Both
 * have n rows of n elements, of which the lower triangle counts. */
static double largest_error(int n, const double *lower, const double *matrix) {
    double worst = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double sum = 0;
            for (int k = 0; k <= j; k++) sum += lower[i * n + k] * lower[j * n + k];
            worst = fmax(worst, fabs(sum - matrix[i * n + j]));
        }
    return worst;
}

/* By how much an element of L differs from LAPACK's factor, at most; below 0: there is no LAPACK.
 * Overwrites the matrix. LAPACK's columns are our rows, so our lower triangle is its upper one. */
static double difference_from_lapack(int n, const double *lower, double *matrix) {
    void (*dpotrf)(const char *uplo, const int *n, double *a, const int *lda, int *info, size_t) =
        NULL;
    void *lapack = dlopen("liblapack.so.3", RTLD_NOW);
    if (lapack) *(void **)&dpotrf = dlsym(lapack, "dpotrf_");
    if (!dpotrf) return -1;
    int info = 0;
    double worst = 0;
    dpotrf("U", &n, matrix, &n, &info, 1);
    if (info) return INFINITY;
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++)
            worst = fmax(worst, fabs(lower[i * n + j] - matrix[i * n + j]));
    return worst;
}
#endif
