#include "kvstore/operations/fusion.h"

#include <algorithm>
#include <utility>

namespace telegrad::operations {
namespace {

size_t BytesOf(const Request& request) {
  return static_cast<size_t>(NumElems(request.shape)) * SizeOf(request.dtype);
}

bool CanFuse(const Request& request) {
  return request.kind == Kind::kAllreduce && request.op != Op::kAdasum;
}

bool AreAlike(const Request& a, const Request& b) {
  return a.set == b.set && a.dtype == b.dtype && a.op == b.op &&
         a.prescale == b.prescale && a.postscale == b.postscale;
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
    const size_t bytes = BytesOf(request);
    // A group's requests are neighbours.
    const bool goes_on = before != nullptr && request.group != 0 &&
                         before->group == request.group &&
                         before->set == request.set;
    before = &request;
    if (like == open.end()) {
      open.push_back({batches.size(), &request, bytes});
    } else if (goes_on || like->bytes + bytes <= fusion_bytes) {
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
