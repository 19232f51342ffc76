#pragma once

#include <cstddef>
#include <map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "compression/device_kernels.h"
#include "kernels/dispatch.h"

namespace telegrad {

// Memory of a GPU for calls that are given none: a buffer for each stream, as
// calls on one stream come one after the other. Made in a stream's first call,
// kept as long as this. Not for cudaStreamPerThread, one handle of many
// streams.
class StreamBuffers {
 public:
  // Returns use(bytes), which queues on `stream` whatever uses the `size`
  // bytes; meanwhile no other call's kernels come between. ResourceExhausted
  // where the device has none left.
  template <typename Use>
  absl::Status With(Stream stream, size_t size,
                    const kernels::KernelTable& table, Use use) {
    const MutexLock lock(&mutex_);
    Buffer& buffer = buffers_[stream.handle];
    RETURN_IF_ERROR(MakeRoom(size, table, buffer, stream));
    return use(buffer.view());
  }

 private:
  Mutex mutex_;
  std::map<void*, Buffer> buffers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace telegrad
