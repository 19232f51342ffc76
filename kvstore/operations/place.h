#pragma once

#include <cstddef>
#include <cstring>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "base/dtype.h"
#include "kvstore/collective/collective.h"
#include "kvstore/operations/queue.h"
#include "kvstore/operations/scale.h"

namespace telegrad::operations {

// Where a batch's arrays lie: what moves and multiplies them there, in order,
// and the group that sums them. One thread.
class Place {
 public:
  virtual ~Place() = default;

  virtual void Copy(const void* from, size_t bytes, void* to) = 0;
  virtual void Multiply(Dtype type, double factor, size_t count,
                        void* data) = 0;
  virtual absl::StatusOr<Buffer> Make(size_t bytes) = 0;
  // The group, when all of the above has been done.
  virtual absl::StatusOr<Group*> Ready() = 0;

  // Memory that one batch after the other has.
  absl::StatusOr<std::byte*> Reserve(size_t bytes) {
    Buffer& memory = fusion();
    if (memory.size() < bytes) {
      memory = Buffer();
      auto made = Make(bytes);
      if (!made.ok()) return made.status();
      memory = *std::move(made);
    }
    return memory.data();
  }
  absl::StatusOr<std::byte*> ResultOf(Submission& mine, size_t count) {
    return PlaceResult(mine, count, [this](size_t size) { return Make(size); });
  }

 private:
  virtual Buffer& fusion() = 0;
};

// Host memory, where all is done at once. `fusion` is Reserve's.
class HostPlace : public Place {
 public:
  HostPlace(Group& group, Buffer& fusion) : group_(group), fusion_(fusion) {}

  void Copy(const void* from, size_t bytes, void* to) override {
    if (bytes > 0 && from != to) std::memcpy(to, from, bytes);
  }
  void Multiply(Dtype type, double factor, size_t count, void* data) override {
    Scale(type, factor, count, data);
  }
  absl::StatusOr<Buffer> Make(size_t bytes) override {
    return Buffer::Create(bytes);
  }
  absl::StatusOr<Group*> Ready() override { return &group_; }

 private:
  Buffer& fusion() override { return fusion_; }

  Group& group_;
  Buffer& fusion_;
};

}  // namespace telegrad::operations
