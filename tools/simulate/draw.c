#include "draw.h"

/* The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014). */
static uint64_t mix_draw(uint64_t z) {
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t draw(uint64_t seed, enum draw_site site, uint64_t actor, uint64_t n) {
    return mix_draw(mix_draw(mix_draw(mix_draw(seed) ^ (uint64_t)site << 32) ^ actor) ^ n);
}
