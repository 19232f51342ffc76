#include "python/c/store_trace.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/atomic_file.h"
#include "base/log.h"
#include "kvstore/trace_ring.h"

namespace telegrad::c {

std::string TracePrefix(absl::string_view folder, absl::string_view job_id) {
  std::string name(job_id);
  for (char& each : name) {
    if (!absl::ascii_isalnum(each) && each != '-' && each != '.') each = '_';
  }
  return absl::StrCat(folder, "/", name);
}

std::string StoreTrace::Base(int rank) const {
  return absl::StrCat(prefix_, "-worker", rank);
}

void StoreTrace::BeforeOperation(Key key, int rank,
                                 const std::vector<std::string>& names) {
  if (num_names_ != names.size()) {
    num_names_ = names.size();
    KeepLastIn(timeline_, Base(rank), rank, absl::StrCat("worker", rank),
               names);
  }
  if (key != 0) return;
  const int64_t noted = num_steps_++ - kFirstNotedStep;
  if (noted == 0) timeline_.Switch(true);
  if (noted == kNumNotedSteps) timeline_.Switch(false);
}

void StoreTrace::FinishWell(int rank, const std::vector<std::string>& names) {
  if (num_names_ == 0) return;
  timeline_.ForgetLast();
  uint64_t num_left_out = 0;
  const std::vector<Timeline::Span> spans = timeline_.Take(&num_left_out);
  const absl::Status written =
      WriteFileAtomically(absl::StrCat(Base(rank), ".json"),
                          ChromeTrace(spans, rank, absl::StrCat("worker", rank),
                                      names, num_left_out));
  if (!written.ok()) LogWarning("TELEGRAD_TIMELINE: ", written.message());
}

}  // namespace telegrad::c
