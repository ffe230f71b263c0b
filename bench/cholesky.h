/* The Cholesky factorisation by blocks: its steps, which the graphs of several libraries order. */
#ifndef WEFT_BENCH_CHOLESKY_H
#define WEFT_BENCH_CHOLESKY_H

#include <math.h>

enum { BLOCKS = 12, B = 64, N = BLOCKS * B };
static double lower[N][N];

static inline void cholesky_fill(void) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++) lower[i][j] = i == j ? N : 1.0 / (1 + i + j);
}

static inline void cholesky_factor(int k) {
    for (int j = k * B; j < k * B + B; j++)
        for (int i = j; i < k * B + B; i++) {
            double sum = lower[i][j];
            for (int l = k * B; l < j; l++) sum -= lower[i][l] * lower[j][l];
            lower[i][j] = i == j ? sqrt(sum) : sum / lower[j][j];
        }
}
static inline void cholesky_solve(int row, int k) {
    for (int i = row * B; i < row * B + B; i++)
        for (int j = k * B; j < k * B + B; j++) {
            double sum = lower[i][j];
            for (int l = k * B; l < j; l++) sum -= lower[i][l] * lower[j][l];
            lower[i][j] = sum / lower[j][j];
        }
}
static inline void cholesky_update(int row, int col, int k) {
    for (int i = row * B; i < row * B + B; i++)
        for (int j = col * B; j < col * B + B; j++) {
            double sum = 0;
            for (int l = k * B; l < k * B + B; l++) sum += lower[i][l] * lower[j][l];
            lower[i][j] -= sum;
        }
}

static inline void cholesky_serial(void) {
    for (int k = 0; k < BLOCKS; k++) {
        cholesky_factor(k);
        for (int i = k + 1; i < BLOCKS; i++) cholesky_solve(i, k);
        for (int i = k + 1; i < BLOCKS; i++)
            for (int j = k + 1; j <= i; j++) cholesky_update(i, j, k);
    }
}

#endif
