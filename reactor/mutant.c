#include <reactor/mutant.h>

#ifdef WEFT_MUTANTS
enum mutant weft__mutant;
#endif
