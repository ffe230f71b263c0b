/*
 * Bugs planted on purpose, in one test build alone (-DWEFT_MUTANTS, `bazel build --config=mutants`): the simulation has to
 * find each of them, one at a time. Elsewhere WEFT_MUTANT(name) is 0, and nothing is left of it.
 */
#ifndef WEFT_REACTOR_MUTANT_H
#define WEFT_REACTOR_MUTANT_H

#ifdef WEFT_MUTANTS
enum mutant {
    MUTANT_none,
#define MUTANT(id, text) MUTANT_##id,
#include <reactor/mutants.def>
#undef MUTANT
};
extern enum mutant weft__mutant; /* the one that is planted now */
#define WEFT_MUTANT(name) __builtin_expect(weft__mutant == MUTANT_##name, 0)
#else
#define WEFT_MUTANT(name) 0
#endif

#endif
