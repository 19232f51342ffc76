#include "kvstore/job/path/hosted_part.h"

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/start_thread.h"
#include "kvstore/job/control/cancellation.h"
#include "kvstore/job/control/fatal_event.h"
#include "kvstore/job/control/roster.h"

namespace telegrad {

HostedPart::HostedPart(const JobOptions& job)
    : jobs_(job.cancellation), cancellation_(std::make_shared<Cancellation>()) {
  if (jobs_ != nullptr) {
    cancel_id_ = jobs_->Add(
        [own = cancellation_](const FatalEvent& event) { own->Cancel(event); });
  }
  JobOptions own = job;
  own.facts = {{kPartFact, "worker"}};
  own.on_fatal = nullptr;                   // the worker is told, too
  own.on_wait = [](const std::string&) {};  // the worker says it
  own.cancellation = cancellation_;
  thread_ =
      StartThread([this, own = std::move(own)] { status_ = own.part(own); });
}

HostedPart::~HostedPart() { Join(); }

void HostedPart::Join() {
  if (!thread_.joinable()) return;
  thread_.join();
  if (jobs_ != nullptr) jobs_->Remove(cancel_id_);
}

absl::Status HostedPart::Cancel(const absl::Status& why) {
  FatalEvent event{.code = ExitCodeOf(why)};
  event.message =
      absl::StrCat("the worker beside it could not join: ", why.message());
  cancellation_->Cancel(event);
  Join();
  return status_;
}

}  // namespace telegrad
