#include <collectives/schedule.h>

/*
 * Dissemination (Hensgen, Finkel & Manber 1988): in round k each rank tells the one 2^k further on what it knows, and so
 * knows 2^(k+1) ranks afterwards. Each round waits for the one before, or it would pass on less.
 */
void weft__add_dissemination(struct schedule *s, uint32_t tag) {
    uint32_t size = s->shape.size, rank = s->shape.rank, heard = 0;
    for (uint32_t far = 1; far < size; far *= 2, tag++) {
        weft__add_signal(s, (rank + far) % size, tag, AFTER(heard));
        heard = weft__add_await(s, (rank + size - far) % size, tag, AFTER(heard));
    }
}

void weft__build_BARRIER_dissemination(struct schedule *s) {
    weft__add_dissemination(s, 0);
}

/*
 * A binomial tree, up and down again: 2 (size - 1) messages against size × log2(size), and twice the rounds. Better where
 * messages cost more than rounds, as with many ranks to a core.
 */
void weft__build_BARRIER_tree(struct schedule *s) {
    uint32_t size = s->shape.size, rank = s->shape.rank, heard = 0, bit = 1;
    for (; bit < size && !(rank & bit); bit *= 2)
        if (rank + bit < size) heard = weft__add_await(s, rank + bit, 0, AFTER(heard));
    if (rank != 0) {
        uint32_t told = weft__add_signal(s, rank - bit, 0, AFTER(heard));
        heard = weft__add_await(s, rank - bit, 1, AFTER(told));
    }
    for (bit /= 2; bit > 0; bit /= 2)
        if (rank + bit < size) weft__add_signal(s, rank + bit, 1, AFTER(heard));
}
