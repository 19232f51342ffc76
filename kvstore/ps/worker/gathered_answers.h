#pragma once

#include <atomic>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "kvstore/options.h"

namespace telegrad {

// Answers that have come and wait for others, so that one launch decodes many.
// One thread, but for Expect.
template <typename Item>
class GatheredAnswers {
 public:
  // So many are to come, each of which Add gets.
  void Expect(size_t count) { num_awaited_ += count; }

  void Add(Item item, size_t num_elems) {
    num_awaited_.fetch_sub(1);
    if (items_.empty()) since_ = Clock::now();
    num_elems_ += num_elems;
    items_.push_back(std::move(item));
  }

  // Adds them to `items` where they wait for none, or for no longer.
  void MoveTo(std::vector<Item>& items, const StoreOptions& options,
              bool has_failed) {
    if (num_awaited_ > 0 && num_elems_ < kGroups * options.device_group_elems &&
        !has_failed && Clock::now() < since_ + options.device_patience) {
      return;
    }
    items.insert(items.end(), std::make_move_iterator(items_.begin()),
                 std::make_move_iterator(items_.end()));
    items_.clear();
    num_elems_ = 0;
  }

  bool empty() const { return items_.empty(); }

 private:
  // Decoding takes a third of what encoding takes, and nothing waits for parts
  // of a tensor.
  static constexpr size_t kGroups = 4;

  std::atomic<size_t> num_awaited_{0};
  std::vector<Item> items_;
  TimePoint since_;
  size_t num_elems_ = 0;
};

}  // namespace telegrad
