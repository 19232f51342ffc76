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

// Allgathers are of bytes, whatever their types.
bool AreAlike(const Request& a, const Request& b) {
  if (!a.codec.empty() || !b.codec.empty()) return AreCoded(a, b);
  return a.kind == b.kind && a.set == b.set &&
         (a.kind == Kind::kAllgather ||
          (a.dtype == b.dtype && a.op == b.op && a.prescale == b.prescale &&
           a.postscale == b.postscale));
}

struct Open {
  size_t batch;  // its place
  const Request* like;
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
    const auto like =
        std::find_if(open.begin(), open.end(),
                     [&](const Open& o) { return AreAlike(*o.like, request); });
    const size_t bytes = BytesOf(*response.agreed);
    // A group's requests are neighbours.
    const bool goes_on = before != nullptr && request.group != 0 &&
                         before->group == request.group &&
                         before->set == request.set;
    before = &request;
    if (like == open.end()) {
      open.push_back({batches.size(), &request, bytes});
    } else if (goes_on || AreCoded(*like->like, request) ||
               like->bytes + bytes <= fusion_bytes) {
      like->bytes += bytes;
      batches[like->batch].push_back(std::move(response));
      continue;
    } else {
      *like = {batches.size(), &request, bytes};
    }
    batches.emplace_back().push_back(std::move(response));
  }
  return batches;
}

}  // namespace telegrad::operations
