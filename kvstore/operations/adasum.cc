#include "kvstore/operations/adasum.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "kvstore/operations/scale.h"

namespace telegrad::operations {
namespace {

// Products of two vectors, or of parts of them.
struct Products {
  double ab = 0, aa = 0, bb = 0;
};

template <typename T>
Products ProductsOf(size_t count, const T* a, const T* b) {
  Products all;
  for (size_t i = 0; i < count; ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    all.ab += x * y;
    all.aa += x * x;
    all.bb += y * y;
  }
  return all;
}

// `out` may be `a` or `b`.
template <typename T>
void Combine(const Products& all, size_t count, const T* a, const T* b,
             T* out) {
  const double share_a = all.aa > 0 ? 1 - all.ab / (2 * all.aa) : 1;
  const double share_b = all.bb > 0 ? 1 - all.ab / (2 * all.bb) : 1;
  for (size_t i = 0; i < count; ++i) {
    out[i] = static_cast<T>(share_a * static_cast<double>(a[i]) +
                            share_b * static_cast<double>(b[i]));
  }
}

template <typename T>
absl::Status GatherAndCombine(Group& group, Dtype type, size_t count, T* data) {
  const auto n = static_cast<size_t>(group.world_size());
  ASSIGN_OR_RETURN(const Buffer all, Buffer::Create(n * count * sizeof(T)));
  RETURN_IF_ERROR(group.Allgather(data, all.data(), count, type));
  T* const rows = all.as<T>();
  for (size_t step = 1; step < n; step *= 2) {
    for (size_t row = 0; row + step < n; row += 2 * step) {
      T* const a = rows + row * count;
      const T* const b = rows + (row + step) * count;
      Combine(ProductsOf(count, a, b), count, a, b, a);
    }
  }
  std::copy_n(rows, count, data);
  return absl::OkStatus();
}

// Part of a vector, in elements.
struct Part {
  size_t begin = 0;
  size_t count = 0;
};

template <typename T>
class Halving {
 public:
  Halving(Group& group, Dtype type, size_t count, T* data)
      : group_(group), type_(type), data_(data), whole_({.count = count}) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(came_, Buffer::Create((whole_.count / 2 + 1) * sizeof(T)));
    std::vector<std::pair<Part, Part>> swapped;  // kept, given
    Part part = whole_;
    for (int distance = 1; distance < group_.world_size(); distance *= 2) {
      Part low{part.begin, part.count / 2};
      Part high{part.begin + low.count, part.count - low.count};
      if (is_right(distance)) std::swap(low, high);
      RETURN_IF_ERROR(Halve(distance, low, high));
      swapped.emplace_back(low, high);
      part = low;
    }
    for (int distance = group_.world_size() / 2; distance > 0; distance /= 2) {
      const auto [kept, given] = swapped.back();
      swapped.pop_back();
      RETURN_IF_ERROR(Swap(distance, kept, given.count, data_ + given.begin));
    }
    return absl::OkStatus();
  }

 private:
  bool is_right(int distance) const { return (group_.rank() & distance) != 0; }

  // Gives the other rank of a pair the part `gives`, and gets `count`.
  absl::Status Swap(int distance, const Part& gives, size_t count, T* out) {
    const auto n = static_cast<size_t>(group_.world_size());
    std::vector<size_t> sends(n), receives(n);
    const auto other = static_cast<size_t>(group_.rank() ^ distance);
    sends[other] = gives.count;
    receives[other] = count;
    return group_.Alltoallv(data_ + gives.begin, sends, out, receives, type_);
  }

  // `kept` becomes that part of the sum of both sides, of which each rank among
  // 2 * distance neighbours has another one; all of them add the products.
  absl::Status Halve(int distance, const Part& kept, const Part& given) {
    T* const theirs = came_.as<T>();
    T* const mine = data_ + kept.begin;
    RETURN_IF_ERROR(Swap(distance, given, kept.count, theirs));
    const T* const a = is_right(distance) ? theirs : mine;
    const T* const b = is_right(distance) ? mine : theirs;
    const Products part = ProductsOf(kept.count, a, b);
    std::vector<Products> parts(static_cast<size_t>(group_.world_size()));
    RETURN_IF_ERROR(group_.Allgather(&part, parts.data(),
                                     sizeof(Products) / sizeof(double),
                                     Dtype::kFloat64));
    const int first = group_.rank() & ~(2 * distance - 1);
    Products all;
    for (int rank = first; rank < first + 2 * distance; ++rank) {
      const Products& one = parts[static_cast<size_t>(rank)];
      all.ab += one.ab;
      all.aa += one.aa;
      all.bb += one.bb;
    }
    Combine(all, kept.count, a, b, mine);
    return absl::OkStatus();
  }

  Group& group_;
  const Dtype type_;
  T* const data_;
  const Part whole_;
  Buffer came_;
};

template <typename T>
absl::Status CombineAll(Group& group, Dtype type, size_t count, T* data) {
  const auto n = static_cast<unsigned>(group.world_size());
  if (!std::has_single_bit(n)) {
    return GatherAndCombine(group, type, count, data);
  }
  return Halving<T>(group, type, count, data).Run();
}

}  // namespace

absl::Status Adasum(Group& group, Dtype type, size_t count, void* data) {
  if (type == Dtype::kFloat32) {
    return CombineAll(group, type, count, static_cast<float*>(data));
  }
  if (type == Dtype::kFloat64) {
    return CombineAll(group, type, count, static_cast<double*>(data));
  }
  std::vector<float> wide = Widen(type, data, count);
  RETURN_IF_ERROR(CombineAll(group, Dtype::kFloat32, count, wide.data()));
  Narrow(type, wide, data);
  return absl::OkStatus();
}

}  // namespace telegrad::operations
