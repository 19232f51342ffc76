#include "kvstore/hosted_part.h"

#include "base/exit_code.h"
#include "kvstore/kvstore.h"

namespace telegrad {

HostedPart::HostedPart(const JobOptions& job, int num_threads)
    : cancellation_(std::make_shared<Cancellation>()) {
  ServerOptions options{.job = job, .num_threads = num_threads};
  options.job.facts = {};
  options.job.on_fatal = nullptr;  // the worker is told, too
  options.job.cancellation = cancellation_;
  thread_ = std::thread(
      [this, options = std::move(options)] { status_ = RunServer(options); });
}

HostedPart::~HostedPart() {
  if (thread_.joinable()) thread_.join();
}

absl::Status HostedPart::Cancel() {
  FatalEvent event{.code = ExitCode::kCancelled};
  event.message = "the worker beside it could not join";
  cancellation_->Cancel(event);
  thread_.join();
  return status_;
}

}  // namespace telegrad
