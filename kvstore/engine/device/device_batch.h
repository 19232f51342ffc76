#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/bytes.h"
#include "base/mutex.h"
#include "base/stream.h"
#include "compression/encode_many.h"
#include "kernels/device_queue.h"
#include "kernels/dispatch.h"
#include "kernels/gather.h"

namespace telegrad {

// What a lane's thread collects of many chunks, so that few launches do it.
class DeviceBatch {
 public:
  // `queue` outlives it; `stream` is that of kernels.
  DeviceBatch(kernels::DeviceQueue* queue, const kernels::KernelTable* kernels,
              Stream stream);

  // Any thread. Of what may come: so many chunks of so many elements in all,
  // more than before. Prepare allocates for it, and nothing is allocated later.
  void Expect(size_t num_chunks, size_t num_elems);
  absl::Status Prepare();

  // In the order of these methods, before the encodings; Gather by `then`,
  // behind them, too.
  void Power(const PowerItem& item) { powers_.push_back(item); }
  void PushMomentum(const kernels::MomentumSpan& span) {
    momenta_.push_back(span);
  }
  void Gather(const kernels::GatherSpan& span) { gathers_.push_back(span); }
  // `then` is called by Launch when the encoding is queued.
  void Encode(const EncodeItem& item, std::function<absl::Status()> then);
  // Behind the encodings.
  void Decode(const DecodeItem& item, std::function<absl::Status()> then) {
    decodes_.push_back(item);
    decode_thens_.push_back(std::move(then));
  }
  // Until all is queued.
  void Keep(std::shared_ptr<Buffer> buffer) {
    kept_.push_back(std::move(buffer));
  }

  // Queues the powers that were collected: before an encoding that is queued by
  // itself, and changes the residual that they count.
  absl::Status LaunchPowers();
  // Queues what was collected; of what fails some may have been queued. Waits
  // for nothing.
  absl::Status Launch();

 private:
  absl::Status LaunchGathers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LaunchDecodes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status LaunchAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const kernels::KernelTable& kernels_;
  Mutex mutex_;
  BatchTable table_ ABSL_GUARDED_BY(mutex_);
  size_t num_chunks_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t num_elems_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<kernels::GatherSpan> gathers_;
  std::vector<PowerItem> powers_;
  std::vector<kernels::MomentumSpan> momenta_;
  std::vector<EncodeItem> items_;
  std::vector<std::function<absl::Status()>> thens_;
  std::vector<DecodeItem> decodes_;
  std::vector<std::function<absl::Status()>> decode_thens_;
  std::vector<std::shared_ptr<Buffer>> kept_;
};

}  // namespace telegrad
