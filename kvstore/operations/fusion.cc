#include "kvstore/operations/fusion.h"

#include <algorithm>
#include <utility>

namespace telegrad::operations {
namespace {

// In the buffer that they share: of an allgather all ranks' rows.
size_t BytesOf(const Agreed& agreed) {
  const Request& any = agreed.any();
  int64_t elems = NumElems(any.shape);
  if (any.kind == Kind::kAllgather) {
    elems = 0;
    for (const auto& request : agreed.requests) {
      elems += NumElems(request->shape);
    }
  }
  return static_cast<size_t>(elems) * SizeOf(any.dtype);
}

bool CanFuse(const Request& request) {
  return request.kind == Kind::kAllgather ||
         (request.kind == Kind::kAllreduce && request.op != Op::kAdasum);
}

// The store fuses what goes by codecs itself.
bool AreCoded(const Request& a, const Request& b) {
  return !a.codec.empty() && !b.codec.empty();
}

bool AreOnSameDevices(const Agreed& a, const Agreed& b) {
  return std::ranges::equal(
      a.requests, b.requests, [](const auto& one, const auto& other) {
        return (one == nullptr) == (other == nullptr) &&
               (one == nullptr || one->device == other->device);
      });
}

// Allgathers are of bytes, whatever their types.
bool AreAlike(const Agreed& agreed, const Agreed& other) {
  const Request& a = agreed.any();
  const Request& b = other.any();
  if (!a.codec.empty() || !b.codec.empty()) return AreCoded(a, b);
  return a.kind == b.kind && a.set == b.set &&
         (a.kind == Kind::kAllgather ||
          (a.dtype == b.dtype && a.op == b.op && a.prescale == b.prescale &&
           a.postscale == b.postscale)) &&
         AreOnSameDevices(agreed, other);
}

struct Open {
  size_t batch;  // its place
  const Agreed* like;
  size_t bytes;
};

}  // namespace

std::vector<std::vector<Response>> Fuse(std::vector<Response> due,
                                        size_t fusion_bytes) {
  std::vector<std::vector<Response>> batches;
  std::vector<Open> open;
  const Request* before = nullptr;
  for (Response& response : due) {
    const Request& request = response.agreed->any();
    if (!CanFuse(request)) {
      batches.emplace_back().push_back(std::move(response));
      before = nullptr;
      continue;
    }
    const auto like = std::find_if(
        open.begin(), open.end(),
        [&](const Open& o) { return AreAlike(*o.like, *response.agreed); });
    const size_t bytes = BytesOf(*response.agreed);
    // A group's requests are neighbours.
    const bool goes_on = before != nullptr && request.group != 0 &&
                         before->group == request.group &&
                         before->set == request.set;
    before = &request;
    if (like == open.end()) {
      open.push_back({batches.size(), response.agreed.get(), bytes});
    } else if (goes_on || AreCoded(like->like->any(), request) ||
               like->bytes + bytes <= fusion_bytes) {
      like->bytes += bytes;
      batches[like->batch].push_back(std::move(response));
      continue;
    } else {
      *like = {batches.size(), response.agreed.get(), bytes};
    }
    batches.emplace_back().push_back(std::move(response));
  }
  return batches;
}

}  // namespace telegrad::operations
