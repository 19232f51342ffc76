#include "tests/python/abi_sizes.c"  // compiles as C++, too
