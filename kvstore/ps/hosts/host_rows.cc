#include "kvstore/ps/hosts/host_rows.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kvstore/ticket_state.h"

namespace telegrad {
namespace {

size_t RowsOf(const TensorSpec& tensor) {
  return tensor.num_elems / tensor.row_elems;
}

}  // namespace

TensorSpec HostRows::Notes(const TensorSpec& tensor, size_t key) {
  return {.name = absl::StrCat("telegrad.rows/", key),
          .num_elems = RowsOf(tensor) + 1,
          .row_elems = 1};
}

HostRows::HostRows(const TensorSpec& tensor, const Stores& stores,
                   const Keys& keys, bool has_value)
    : tensor_(tensor), stores_(stores), keys_(keys) {
  if (has_value) Follow()();
}

std::vector<HostRows::Step> HostRows::Push(const TensorView& grad,
                                           int priority) {
  KVStore* const first = stores_.first;
  KVStore* const second = stores_.second;
  if (first == nullptr) {
    return {
        [=, this] { return second->Push(keys_.own, OneView(grad), priority); }};
  }
  std::vector<Step> steps;
  steps.push_back(
      [=, this] { return first->Push(keys_.first, OneView(grad), priority); });
  steps.push_back([=, this] { return Note(grad, priority); });
  if (second != nullptr) {
    steps.push_back([=, this] {
      notes_ = Buffer(4 * (RowsOf(tensor_) + 1));
      return first->Pull(keys_.notes, notes_.view(), priority);
    });
    steps.push_back([=, this] { return TakeSums(priority); });
    steps.push_back([=, this] { return PushSums(priority); });
  }
  // Without a row: the others wait until the one that pushes has done so.
  steps.push_back([=, this] { return PushNotes({}, priority); });
  steps.push_back(Follow());
  return steps;
}

Ticket HostRows::Note(const TensorView& grad, int priority) {
  if (!grad.rows.has_value()) {
    return PushNotes({static_cast<int64_t>(RowsOf(tensor_))}, priority);
  }
  std::vector<int64_t> rows(grad.rows->begin(), grad.rows->end());
  return PushNotes(std::move(rows), priority);
}

Ticket HostRows::PushNotes(std::vector<int64_t> rows, int priority) {
  std::vector<float> ones(rows.size(), 1.0f);  // copied at once, as rows are
  TensorView view = HostTensor(ones.data(), static_cast<int64_t>(ones.size()));
  view.rows = rows;
  return stores_.first->Push(keys_.notes, OneView(view), priority);
}

Ticket HostRows::TakeSums(int priority) {
  const size_t num_rows = RowsOf(tensor_);
  const float* const notes = notes_.as<float>();
  is_whole_ = notes[num_rows] > 0;
  rows_.clear();
  for (size_t row = 0; !is_whole_ && row < num_rows; ++row) {
    if (notes[row] > 0) rows_.push_back(static_cast<int64_t>(row));
  }
  notes_ = Buffer();
  sums_ = Buffer(
      4 * (is_whole_ ? tensor_.num_elems : tensor_.row_elems * rows_.size()));
  const TensorView sums = Sums();
  return stores_.first->Pull(keys_.first, OneView(sums), priority);
}

Ticket HostRows::PushSums(int priority) {
  const TensorView sums = Sums();
  return stores_.second->Push(keys_.own, OneView(sums), priority);
}

TensorView HostRows::Sums() const {
  TensorView view = FloatTensor(sums_.view());
  if (!is_whole_) view.rows = rows_;
  return view;
}

HostRows::Step HostRows::Pull(const TensorView& out, int priority) {
  KVStore* const from =
      stores_.second != nullptr ? stores_.second : stores_.reader;
  return [=, this] { return from->Pull(keys_.own, OneView(out), priority); };
}

HostRows::Step HostRows::Follow() {
  return [this] {
    if (stores_.reader != nullptr) stores_.reader->Follow(keys_.own);
    return FinishedTicket(absl::OkStatus());
  };
}

}  // namespace telegrad
