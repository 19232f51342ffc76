#include "kvstore/local/merge_places.h"

#include <algorithm>
#include <numeric>

namespace telegrad {

std::vector<size_t> DealOut(std::span<const TensorSpec> tensors,
                            std::span<size_t> loads) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensors[a].num_elems > tensors[b].num_elems;
  });
  std::vector<size_t> places(tensors.size());
  for (const size_t i : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += tensors[i].num_elems;
    places[i] = static_cast<size_t>(least - loads.begin());
  }
  return places;
}

}  // namespace telegrad
