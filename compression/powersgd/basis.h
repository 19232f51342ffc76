#pragma once

#include <cstddef>
#include <cstdint>

// Bases of PowerSGD. All workers must have the same bits, whatever their
// machines: plain loops in double, in one order, without BLAS or SIMD.
namespace telegrad {

// Makes `count` vectors of `size` elements (vector k at vectors + k * size;
// count <= size, elements finite, |x| < 2^128) orthonormal, by modified
// Gram-Schmidt, twice for each vector. Vectors that depend on those before them
// give way to random ones, always the same.
void Orthonormalize(size_t size, uint32_t count, double* vectors);

// A random orthonormal basis, a function of the arguments alone.
void RandomBasis(uint64_t seed, uint64_t stream, size_t size, uint32_t count,
                 double* vectors);

}  // namespace telegrad
