// Inputs that are a function of the seed and of their place, so that those who check have them too.
#ifndef INPUT_H
#define INPUT_H

#include "gpu.h"

static inline uint32_t input_word(uint64_t place) {
    uint64_t x = (place + 1) * 0x9e3779b97f4a7c15u + (uint64_t)gpu.seed;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(x >> 32 ^ x);
}

// From 0 to below 1.
static inline float input_fraction(uint64_t place) { return (float)(input_word(place) >> 16) / (1 << 16); }

#endif
