#pragma once

#include <cstddef>
#include <vector>

// What the memory allows: loops that move bytes and do next to nothing else.
namespace telegrad::perf {

enum class Traffic {
  kNone,    // no ceiling
  kRead,    // s
  kWrite,   // d = c
  kCopy,    // d = s
  kWiden,   // d = s, of which an element has half as many bytes
  kNarrow,  // d = s, where an element of d has half as many bytes
  kUpdate,  // d += c
  kAdd,     // d += s
};

const char* TrafficName(Traffic traffic);
double TrafficBytesPerElement(Traffic traffic);

// d and s are [n] f32 at borders of 64 bytes; what is half as wide is the first
// half of it.
using CeilingFn = void(const float* s, float* d, size_t n);

struct CeilingVariant {
  const char* name;  // "plain", "prefetch 1024", "non-temporal", "libc"
  CeilingFn* run;
};

// All ways to move these bytes; the ceiling is the fastest of them.
const std::vector<CeilingVariant>& CeilingVariants(Traffic traffic);

}  // namespace telegrad::perf
