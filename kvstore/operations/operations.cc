#include "kvstore/operations/operations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/atomic_file.h"
#include "base/exit_code.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "kvstore/operations/fusion.h"
#include "kvstore/operations/gather_texts.h"
#include "kvstore/operations/negotiation.h"
#include "kvstore/operations/runner.h"

namespace telegrad::operations {
namespace {

// Between cycles in which nobody has anything to say.
constexpr Duration kMaxPatience = std::chrono::milliseconds(20);
constexpr size_t kMaxRequestBytes = size_t{256} << 20;  // a rank's, in a cycle

void CountReduced(const std::vector<Response>& batch, Tuner& tuner) {
  for (const Response& response : batch) {
    const Request& request = response.agreed->any();
    if (request.kind != Kind::kAllreduce) continue;
    tuner.Count(request.name, static_cast<size_t>(NumElems(request.shape)) *
                                  SizeOf(request.dtype));
  }
}

// What a kind of operation does not use is the same on all ranks.
void Normalise(const std::vector<int>& ranks, Request* request) {
  const Kind kind = request->kind;
  if (kind != Kind::kBroadcast && kind != Kind::kRemoveSet) request->root = 0;
  if (kind != Kind::kAllreduce && kind != Kind::kReduceScatter) {
    request->op = Op::kSum;
    request->prescale = request->postscale = 1;
  }
  if (kind == Kind::kBarrier || kind == Kind::kJoin) {
    request->shape.clear();
    request->dtype = Dtype::kFloat32;
  }
  if (kind > Kind::kAlltoall) request->device = kHostMemory;
  if (kind >= Kind::kJoin) request->codec.clear();
  if (kind == Kind::kJoin) request->group = request->group_size = 0;
  if (kind != Kind::kAlltoall && kind != Kind::kAddSet) {
    request->splits.clear();
  } else if (kind == Kind::kAlltoall && request->splits.empty() &&
             !request->shape.empty() &&
             request->shape[0] % static_cast<int64_t>(ranks.size()) == 0) {
    request->splits.assign(
        ranks.size(), request->shape[0] / static_cast<int64_t>(ranks.size()));
  }
}

}  // namespace

Operations::Operations(std::unique_ptr<Group> world, const Options& options)
    : options_(options),
      rank_(world->rank()),
      world_size_(world->world_size()),
      devices_(options.timeout),
      setting_{options.fusion_bytes, options.cycle},
      negotiation_(std::make_unique<Negotiation>(rank_, world_size_,
                                                 options.cache_capacity)),
      runner_(std::make_unique<Runner>(
          std::move(world), queue_, devices_,
          DeviceGroups(options.device_group, options.device_backend))) {
  if (rank_ == 0 && options.tuning.is_on) {
    tuner_ = std::make_unique<Tuner>(setting_, options.tuning);
  }
  MutexLock lock(&mutex_);
  sets_[0] = *negotiation_->RanksOf(0);
}

absl::StatusOr<std::unique_ptr<Operations>> Operations::Make(
    std::unique_ptr<Group> world, const Options& options) {
  if (options.fusion_bytes < 0 || options.cache_capacity < 0 ||
      options.cycle < Duration::zero() ||
      options.stall_warning < Duration::zero() ||
      options.stall_deadline < Duration::zero() ||
      options.tuning.warmup_samples < 0 ||
      options.tuning.steps_per_sample < 1) {
    return absl::InvalidArgumentError(
        "operations: sizes and times must be at least 0, and the steps of a "
        "sample at least 1");
  }
  std::unique_ptr<Operations> made(new Operations(std::move(world), options));
  RETURN_IF_ERROR(made->CompareOptions());
  if (!options.timeline.empty()) {
    RETURN_IF_ERROR(
        made->StartTimeline(options.timeline, options.marks_cycles));
  }
  made->thread_ = StartThread([operations = made.get()] { operations->Run(); });
  return made;
}

absl::Status Operations::CompareOptions() {
  using Values = std::array<int64_t, 2>;
  const Values mine = {options_.fusion_bytes, options_.cache_capacity};
  std::vector<Values> all(static_cast<size_t>(world_size_));
  RETURN_IF_ERROR(runner_->world().Allgather(mine.data(), all.data(),
                                             mine.size(), Dtype::kInt64));
  const auto text = [](const Values& values) {
    return absl::StrCat("fusion_bytes ", values[0], " and cache_capacity ",
                        values[1]);
  };
  for (int i = 0; i < world_size_; ++i) {
    const Values& other = all[static_cast<size_t>(i)];
    if (other == all[0]) continue;
    return WithExitCode(ExitCode::kMismatch,
                        absl::FailedPreconditionError(absl::StrCat(
                            "operations: rank 0 has ", text(all[0]), ", rank ",
                            i, " has ", text(other))));
  }
  return absl::OkStatus();
}

Operations::~Operations() {
  if (!thread_.joinable()) return;
  is_stopping_ = true;
  queue_.Wake();
  thread_.join();
  bool has_timeline = false;
  {
    MutexLock lock(&mutex_);
    has_timeline = !timeline_.empty();
  }
  if (!has_timeline) return;
  const absl::Status written = StopTimeline();
  if (!written.ok()) LogWarning("timeline: ", written.message());
}

absl::Status Operations::StartTimeline(const std::string& path,
                                       bool marks_cycles) {
  if (path.empty()) return absl::InvalidArgumentError("timeline: no file");
  MutexLock lock(&mutex_);
  if (!timeline_.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "timeline: it goes to ", timeline_, "; stop that one first"));
  }
  timeline_ = rank_ == 0 ? path : absl::StrCat(path, ".", rank_);
  marks_cycles_ = marks_cycles;
  runner_->SwitchTimeline(true);
  return absl::OkStatus();
}

absl::Status Operations::StopTimeline() {
  std::string path, trace;
  {
    MutexLock lock(&mutex_);
    if (timeline_.empty()) {
      return absl::FailedPreconditionError("timeline: none was started");
    }
    runner_->SwitchTimeline(false);
    path = std::exchange(timeline_, "");
    trace = runner_->Trace();
  }
  return WriteFileAtomically(path, trace);
}

absl::StatusOr<int64_t> Operations::Submit(
    std::shared_ptr<Submission> submission) {
  Request& request = submission->request;
  {
    MutexLock lock(&mutex_);
    const auto set = sets_.find(request.set);
    if (set == sets_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("process set ", request.set, " is none; there are ",
                       sets_.size(), ", 0 with all ranks"));
    }
    Normalise(set->second, &request);
    const auto place = std::find(set->second.begin(), set->second.end(), rank_);
    const int member = place == set->second.end()
                           ? -1
                           : static_cast<int>(place - set->second.begin());
    RETURN_IF_ERROR(CheckRequest(request, set->second, member));
    if (!request.codec.empty() && !runner_->has_store()) {
      return absl::FailedPreconditionError(
          absl::StrCat("codec ", request.codec, " of \"", request.name,
                       "\": give the operations a store first (UseStore)"));
    }
  }
  if (IsOnDevice(request)) RETURN_IF_ERROR(devices_.Note(*submission));
  return queue_.Add(std::move(submission));
}

absl::Status Operations::UseStore(std::shared_ptr<KVStore> store) {
  if (!store->traits().hosts_parts ||
      store->group().num_workers() != world_size_) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a store '", store->traits().type, "' of ",
        store->group().num_workers(), " workers for operations of ",
        world_size_, ": codecs go by 'allreduce' of the same workers"));
  }
  MutexLock lock(&mutex_);
  return runner_->UseStore(std::move(store), options_.timeout);
}

absl::StatusOr<int64_t> Operations::Change(Request request) {
  auto submission = std::make_shared<Submission>();
  submission->request = std::move(request);
  ASSIGN_OR_RETURN(const int64_t handle, Submit(submission));
  bool is_done = false;
  absl::Status status =
      queue_.Wait(handle, Clock::now() + options_.timeout, &is_done);
  if (!is_done) {
    status = absl::DeadlineExceededError(
        absl::StrCat(submission->request.name, ": not all ranks came in ",
                     ToSeconds(options_.timeout), " s"));
  }
  (void)queue_.Release(handle);
  RETURN_IF_ERROR(status);
  return submission->num_elems == 0 ? 0 : *submission->kept.as<int64_t>();
}

absl::StatusOr<int> Operations::AddProcessSet(const std::vector<int>& ranks) {
  {
    MutexLock lock(&mutex_);
    for (const auto& [id, others] : sets_) {
      if (others != ranks) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "process set ", id,
          " has these ranks already: ", absl::StrJoin(ranks, ", ")));
    }
  }
  Request request;
  request.kind = Kind::kAddSet;
  request.name = absl::StrCat("process set of ", RanksText(ranks));
  request.splits.assign(ranks.begin(), ranks.end());
  ASSIGN_OR_RETURN(const int64_t id, Change(std::move(request)));
  return static_cast<int>(id);
}

absl::Status Operations::RemoveProcessSet(int set) {
  {
    MutexLock lock(&mutex_);
    if (set == 0 || sets_.count(set) == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("process set ", set,
                       set == 0 ? " has all ranks and stays" : " is none"));
    }
  }
  Request request;
  request.kind = Kind::kRemoveSet;
  request.name = absl::StrCat("end of process set ", set);
  request.root = set;
  return Change(std::move(request)).status();
}

void Operations::Run() {
  Duration patience = setting_.cycle;
  absl::Status status;
  while (status.ok()) {
    bool is_busy = false;
    status = Cycle(patience, &is_busy);
    patience = is_busy ? setting_.cycle
                       : std::min(2 * patience + std::chrono::microseconds(1),
                                  kMaxPatience);
  }
  runner_->Drain();
  queue_.Close(status);
  runner_->Close();
}

absl::Status Operations::Cycle(Duration patience, bool* is_busy) {
  // Who has told all that it can waits in the collective, where the last rank
  // wakes it; there is always one that lacks something.
  const TimePoint until =
      negotiation_->waits_for_others() ? TimePoint() : Clock::now() + patience;
  const auto taken = queue_.TakeNew(setting_.cycle, until);
  const TimePoint begin = Clock::now();
  for (const auto& submission : taken) {
    negotiation_->Tell(submission->handle, submission->request);
  }
  for (const auto& submission : queue_.TakeCancelled()) {
    negotiation_->End(submission->request.set, submission->request.name,
                      /*waited_s=*/-1);
  }
  if (is_stopping_) negotiation_->Stop();
  std::vector<uint64_t> mine = negotiation_->notice();
  mine[0] |= std::exchange(told_choice_, 0);
  notices_.resize(mine.size() * static_cast<size_t>(world_size_));
  RETURN_IF_ERROR(runner_->world().Allgather(mine.data(), notices_.data(),
                                             mine.size(), Dtype::kInt64));
  *is_busy = std::any_of(notices_.begin(), notices_.end(),
                         [](uint64_t word) { return word != 0; });
  HearChoice(notices_[0]);
  ASSIGN_OR_RETURN(const std::vector<std::string> requests,
                   ExchangeRequests(notices_, mine.size()));
  ASSIGN_OR_RETURN(Decision decision,
                   negotiation_->Advance(notices_, requests, Clock::now()));
  if (*is_busy) {
    agreeing_ns_ += std::chrono::nanoseconds(Clock::now() - begin).count();
  }
  // Before anybody hears that it is done, who may stop the timeline.
  if (*is_busy && marks_cycles_) runner_->NoteCycle(begin);
  RETURN_IF_ERROR(RunDue(std::move(decision.due)));
  Tune();
  LookForStalls();
  if (decision.stopped_by < 0) return absl::OkStatus();
  RETURN_IF_ERROR(runner_->world().Barrier());
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", decision.stopped_by,
                   " has ended the operations: nothing runs any more"));
}

absl::StatusOr<std::vector<std::string>> Operations::ExchangeRequests(
    const std::vector<uint64_t>& notices, size_t size) {
  std::vector<size_t> sizes;
  bool has_any = false;
  for (size_t i = 0; i < notices.size(); i += size) {
    const size_t bytes = Negotiation::RequestBytes(notices[i]);
    if (bytes > kMaxRequestBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("rank ", i / size, " has ", bytes,
                       " bytes of requests; at most ", kMaxRequestBytes));
    }
    sizes.push_back(bytes);
    has_any |= bytes > 0;
  }
  if (!has_any) return std::vector<std::string>();
  return GatherTexts(runner_->world(), negotiation_->requests(), sizes);
}

absl::Status Operations::RunDue(std::vector<Response> due) {
  const TimePoint now = Clock::now();
  std::vector<Response> good;
  good.reserve(due.size());
  for (Response& response : due) {
    if (response.error.ok()) {
      good.push_back(std::move(response));
      continue;
    }
    queue_.Finish(queue_.Find({response.handle}),
                  [&](const Submission&) { return response.error; });
  }
  for (const auto& batch :
       Fuse(std::move(good), static_cast<size_t>(setting_.fusion_bytes))) {
    const Request& request = batch.front().agreed->any();
    if (tuner_ != nullptr) CountReduced(batch, *tuner_);
    const auto set = static_cast<int>(batch.front().value);
    if (request.kind == Kind::kRemoveSet) {
      MutexLock lock(&mutex_);
      if (set > 0) sets_.erase(set);
    } else if (request.kind == Kind::kAddSet) {
      MutexLock lock(&mutex_);
      sets_[set].assign(request.splits.begin(), request.splits.end());
    }
    RETURN_IF_ERROR(runner_->Run(batch, now));
  }
  return absl::OkStatus();
}

void Operations::HearChoice(uint64_t first_word) {
  const std::optional<int> told = Tuner::ToldBy(first_word);
  if (!told.has_value()) return;
  setting_ = Tuner::SettingOf({options_.fusion_bytes, options_.cycle}, *told);
}

void Operations::Tune() {
  if (tuner_ == nullptr) return;
  const size_t before = tuner_->log().size();
  if (tuner_->Advance(Clock::now())) {
    told_choice_ = Tuner::FlagsOf(tuner_->choice());
  }
  const std::string& path = options_.tuning.log;
  if (!path.empty() && tuner_->log().size() > before) {
    const absl::Status written = WriteFileAtomically(path, tuner_->log());
    if (!written.ok()) LogWarning("autotune's log: ", written.message());
  }
  if (tuner_->is_done()) tuner_.reset();
}

void Operations::LookForStalls() {
  const Duration warning = options_.stall_warning;
  const Duration deadline = options_.stall_deadline;
  const Duration least = warning == Duration::zero() ? deadline
                         : deadline == Duration::zero()
                             ? warning
                             : std::min(warning, deadline);
  const TimePoint now = Clock::now();
  if (least == Duration::zero() || now < next_look_) return;
  next_look_ = now + std::min<Duration>(std::chrono::seconds(1), least / 4);
  std::map<std::pair<int, std::string>, TimePoint> next;
  for (const Stall& stall : negotiation_->Stalls(now, least)) {
    if (stall.told.front() != rank_) continue;  // one rank speaks
    const Duration waited = FromSeconds(stall.waited_s);
    if (deadline > Duration::zero() && waited >= deadline) {
      negotiation_->End(stall.set, stall.name, stall.waited_s);
      continue;
    }
    if (warning == Duration::zero() || waited < warning) continue;
    const std::pair<int, std::string> name(stall.set, stall.name);
    const auto before = next_warnings_.find(name);
    if (before != next_warnings_.end() && now < before->second) {
      next.insert(*before);
      continue;
    }
    next[name] = now + warning;
    LogWarning("\"", stall.name, "\" has waited ",
               std::round(stall.waited_s * 10) / 10,
               " s: ", RanksText(stall.told), " submitted it, ",
               stall.missing.empty()
                   ? "others of its group are missing"
                   : absl::StrCat(RanksText(stall.missing), " did not"));
  }
  next_warnings_ = std::move(next);
}

}  // namespace telegrad::operations
