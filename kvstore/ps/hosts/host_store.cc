#include "kvstore/ps/hosts/host_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "kvstore/engine/codec/checks.h"
#include "kvstore/ps/wire/job_config.h"

namespace telegrad {
namespace {

constexpr uint64_t kEndOfChains = UINT64_MAX;  // no key

bool HasRows(const TensorSpec& tensor) { return tensor.row_elems > 0; }

// It decodes nothing that would be worth threads.
std::unique_ptr<DistWorker> MakeReader(StoreOptions options,
                                       const StoreTraits& traits,
                                       HostWorkers& workers) {
  options.num_threads = 0;
  options.timeline = nullptr;
  return std::make_unique<DistWorker>(options, traits, *workers.reader());
}

absl::Status CheckSingle(TensorViews views) {
  if (views.size() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError("one view is expected");
}

}  // namespace

HostStore::HostStore(const StoreOptions& options, const StoreTraits& traits,
                     WorkerGroup& job, std::unique_ptr<HostWorkers> workers,
                     const MakeStore& first, const MakeStore& second)
    : options_(options),
      traits_(traits),
      job_(job),
      workers_(std::move(workers)),
      first_(workers_->host() == nullptr ? nullptr : first(*workers_->host())),
      second_(workers_->pushes() ? second(*workers_->pushers()) : nullptr),
      reader_(workers_->pushes() ? nullptr
                                 : MakeReader(options, traits_, *workers_)),
      chains_(StartThread([this] { RunChains(); })) {}

HostStore::~HostStore() { Close(); }

absl::Status HostStore::SetCompression(const CompressionConfig& config) {
  {
    MutexLock lock(&mutex_);
    if (!tensors_.empty()) {
      return absl::FailedPreconditionError("SetCompression after Init");
    }
  }
  if (second_ != nullptr) RETURN_IF_ERROR(second_->SetCompression(config));
  compression_ = config;
  pusher_.SetNumCodecs(1 + static_cast<int>(config.alternatives.size()));
  if (first_ == nullptr) return absl::OkStatus();
  // A gradient that ends the job is named here, by its own worker; all else is
  // decided of the host's sum.
  const bool is_error = config.nonfinite == NonFinitePolicy::kError;
  return first_->SetCompression(
      {.nonfinite =
           is_error ? NonFinitePolicy::kError : NonFinitePolicy::kPropagate});
}

absl::Status HostStore::SetOptimizer(const OptimizerConfig& config) {
  bool is_first = false;
  {
    MutexLock lock(&mutex_);
    is_first = tensors_.empty();
  }
  if (is_first) {
    if (second_ != nullptr) RETURN_IF_ERROR(second_->SetOptimizer(config));
  } else {
    RETURN_IF_ERROR(workers_->Together(
        [&](const auto&) { return second_->SetOptimizer(config); },
        [](const std::string&) { return absl::OkStatus(); }));
  }
  optimizer_ = config;
  return absl::OkStatus();
}

// All workers of the job, of which the second store sees those that push.
absl::Status HostStore::Agree(std::span<const TensorSpec> tensors,
                              TensorViews values) {
  const JobConfig config{.tensors = {tensors.begin(), tensors.end()},
                         .compression = compression_,
                         .optimizer = optimizer_,
                         .chunk_elems = options_.chunk_elems,
                         .has_values = !values.empty()};
  size_t first = 0;
  {
    MutexLock lock(&mutex_);
    first = tensors_.size();
  }
  const absl::Status status =
      AgreeOnConfig(job_, absl::StrCat("tier1 init ", first), config);
  if (!status.ok()) job_.Fail(status);  // others may wait for us
  return status;
}

absl::StatusOr<std::vector<Key>> HostStore::Init(
    std::span<const TensorSpec> tensors, TensorViews values) {
  RETURN_IF_ERROR(CheckTensors(tensors));
  RETURN_IF_ERROR(CheckConfig(compression_, optimizer_, tensors));
  RETURN_IF_ERROR(Agree(tensors, values));
  RETURN_IF_ERROR(InitSecond(tensors, values));
  absl::StatusOr<std::vector<Key>> firsts = InitFirst(tensors, values);
  absl::Status status = firsts.status();
  if (status.ok()) status = InitReader(tensors);
  if (!status.ok()) job_.Fail(status);
  RETURN_IF_ERROR(status);
  RETURN_IF_ERROR(job_.Gather("tier1 ready", "").status());
  std::vector<Key> keys;
  auto notes = firsts->begin() + static_cast<std::ptrdiff_t>(tensors.size());
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < tensors.size(); ++i) {
    keys.push_back(static_cast<Key>(tensors_.size()));
    Tensor& added = tensors_.emplace_back();
    added.name = tensors[i].name;
    added.first = (*firsts)[i];
    if (!HasRows(tensors[i])) continue;
    added.rows = std::make_unique<HostRows>(
        tensors[i],
        HostRows::Stores{first_.get(), second_.get(), reader_.get()},
        HostRows::Keys{keys.back(), added.first, *notes++}, !values.empty());
  }
  return keys;
}

// The keys of the tensors there, then of the notes of those with rows.
absl::StatusOr<std::vector<Key>> HostStore::InitFirst(
    std::span<const TensorSpec> tensors, TensorViews values) {
  std::vector<TensorSpec> notes;
  {
    MutexLock lock(&mutex_);
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!HasRows(tensors[i])) continue;
      notes.push_back(HostRows::Notes(tensors[i], tensors_.size() + i));
    }
  }
  if (first_ == nullptr) {
    return std::vector<Key>(tensors.size() + notes.size());
  }
  ASSIGN_OR_RETURN(std::vector<Key> keys, first_->Init(tensors, values));
  if (notes.empty()) return keys;
  ASSIGN_OR_RETURN(const std::vector<Key> more, first_->Init(notes, {}));
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

// Where a chunk is depends on all tensors, of whatever codecs.
absl::Status HostStore::InitReader(std::span<const TensorSpec> tensors) {
  if (reader_ == nullptr) return absl::OkStatus();
  for (TensorSpec tensor : tensors) {
    tensor.codec.clear();
    unread_.push_back(std::move(tensor));
  }
  reads_ |= std::ranges::any_of(tensors, HasRows);
  if (!reads_) return absl::OkStatus();
  return reader_->Init(std::exchange(unread_, {}), {}).status();
}

absl::Status HostStore::InitSecond(std::span<const TensorSpec> tensors,
                                   TensorViews values) {
  return workers_->Together(
      [&](const HostWorkers::Tell& tell) -> absl::Status {
        RETURN_IF_ERROR(second_->Init(tensors, values).status());
        for (const std::string& text : PusherTexts(*second_, tensors.size())) {
          RETURN_IF_ERROR(pusher_.Hear(text));
          RETURN_IF_ERROR(tell(text));
        }
        return absl::OkStatus();
      },
      [this](const std::string& text) { return pusher_.Hear(text); });
}

Ticket HostStore::PushPull(Key key, TensorViews grads, TensorViews outs,
                           int priority) {
  absl::Status status = CheckSingle(grads);
  status.Update(CheckSingle(outs));
  if (!status.ok()) return FinishedTicket(status);
  const TensorView in = grads[0];
  const TensorView out = outs[0];
  const Known to = At(key);
  if (to.rows != nullptr) {
    std::vector<Step> steps = to.rows->Push(in, priority);
    steps.push_back(to.rows->Pull(out, priority));
    return Start(key, std::move(steps));
  }
  std::vector<Step> steps;
  if (second_ == nullptr) {
    steps.push_back(
        [=, this] { return first_->Push(to.first, OneView(in), priority); });
  } else if (first_ != nullptr) {
    steps.push_back([=, this] {
      return first_->PushPull(to.first, OneView(in), OneView(out), priority);
    });
  }
  if (second_ != nullptr) {
    const TensorView sum = first_ == nullptr ? in : out;
    steps.push_back([=, this] {
      return second_->PushPull(key, OneView(sum), OneView(out), priority);
    });
  }
  if (first_ != nullptr) {
    steps.push_back([=, this] {
      return first_->Broadcast(to.first, 0, OneView(out), priority);
    });
  }
  return Start(key, std::move(steps));
}

Ticket HostStore::Push(Key key, TensorViews grads, int priority) {
  HostRows* const rows = At(key).rows;
  if (rows == nullptr) return PushPull(key, grads, grads, priority);
  const absl::Status status = CheckSingle(grads);
  if (!status.ok()) return FinishedTicket(status);
  return Start(key, rows->Push(grads[0], priority));
}

Ticket HostStore::Pull(Key key, TensorViews outs, int priority) {
  const absl::Status status = CheckSingle(outs);
  if (!status.ok()) return FinishedTicket(status);
  const TensorView out = outs[0];
  const Known from = At(key);
  if (from.rows != nullptr) {
    return Start(key, {from.rows->Pull(out, priority)});
  }
  return Start(key, {[=, this] {
                 return first_ == nullptr
                            ? second_->Pull(key, OneView(out), priority)
                            : first_->Pull(from.first, OneView(out), priority);
               }});
}

// From its root to the one that pushes there, to the other hosts, and to all of
// each.
Ticket HostStore::Broadcast(Key key, int root, TensorViews values,
                            int priority) {
  absl::Status status = CheckRoot(root, job_.num_workers());
  status.Update(CheckSingle(values));
  if (!status.ok()) return FinishedTicket(status);
  const TensorView value = values[0];
  const Known to = At(key);
  const int host = workers_->HostOf(root);
  const int place = workers_->PlaceOf(root);
  std::vector<Step> steps;
  if (first_ != nullptr && place > 0 && host == workers_->HostOf(job_.rank())) {
    steps.push_back([=, this] {
      return first_->Broadcast(to.first, place, OneView(value), priority);
    });
  }
  if (second_ != nullptr) {
    steps.push_back([=, this] {
      return second_->Broadcast(key, host, OneView(value), priority);
    });
  }
  if (first_ != nullptr) {
    steps.push_back([=, this] {
      return first_->Broadcast(to.first, 0, OneView(value), priority);
    });
  }
  if (to.rows != nullptr) steps.push_back(to.rows->Follow());
  return Start(key, std::move(steps));
}

HostStore::Known HostStore::At(Key key) const {
  MutexLock lock(&mutex_);
  if (key >= tensors_.size()) return {};  // Start refuses it
  return {tensors_[key].first, tensors_[key].rows.get()};
}

Ticket HostStore::Start(Key key, std::vector<Step> steps) {
  auto op = std::make_unique<Op>();
  op->steps = std::move(steps);
  op->ticket = std::make_shared<Ticket::State>();
  const std::shared_ptr<Ticket::State> ticket = op->ticket;
  Op* const started = op.get();
  {
    MutexLock lock(&mutex_);
    if (is_closed_) {
      return FinishedTicket(
          absl::FailedPreconditionError("the store is closed"));
    }
    if (key >= tensors_.size() || tensors_[key].op != nullptr) {
      return FinishedTicket(absl::InvalidArgumentError(
          absl::StrCat("key ", key, " of ", tensors_.size(), ", or busy")));
    }
    ticket->describe = [this, key] {
      Ticket running;
      {
        MutexLock describing(&mutex_);
        if (tensors_[key].op != nullptr) running = tensors_[key].op->running;
      }
      const std::string missing = running.Missing();
      MutexLock describing(&mutex_);
      return missing.empty() ? absl::StrCat("tensor ", tensors_[key].name)
                             : missing;
    };
    tensors_[key].op = std::move(op);
    ++num_ops_;
  }
  const Ticket running = started->steps[0]();
  {
    MutexLock lock(&mutex_);
    started->running = running;
  }
  running.NotifyTo(done_, key);
  return Ticket(ticket);
}

// An operation is this thread's from its first step's end on.
void HostStore::RunChains() {
  for (;;) {
    const auto tag = done_.Next(Clock::now() + std::chrono::seconds(60));
    if (!tag.has_value()) continue;
    if (*tag == kEndOfChains) return;
    Op* op = nullptr;
    Ticket running;
    {
      MutexLock lock(&mutex_);
      op = tensors_[*tag].op.get();
      running = op->running;
    }
    const absl::Status status = running.Wait(Clock::now());  // it is done
    if (status.ok() && ++op->num_done < op->steps.size()) {
      const Ticket next = op->steps[op->num_done]();
      {
        MutexLock lock(&mutex_);
        op->running = next;
      }
      next.NotifyTo(done_, *tag);
      continue;
    }
    const std::shared_ptr<Ticket::State> ticket = op->ticket;
    {
      MutexLock lock(&mutex_);
      tensors_[*tag].op = nullptr;
    }
    ticket->Finish(status);
    MutexLock lock(&mutex_);
    if (--num_ops_ == 0) ops_changed_.NotifyAll();
  }
}

CodecControl& HostStore::codecs() {
  return second_ == nullptr ? pusher_ : second_->codecs();
}

absl::StatusOr<std::string> HostStore::Save() {
  std::string text;
  RETURN_IF_ERROR(workers_->Together(
      [&](const auto&) -> absl::Status {
        ASSIGN_OR_RETURN(text, second_->states()->Save());
        return absl::OkStatus();
      },
      [](const std::string&) { return absl::OkStatus(); }));
  return text;
}

absl::Status HostStore::Load(absl::string_view text) {
  return workers_->Together(
      [&](const auto&) { return second_->states()->Load(text); },
      [](const std::string&) { return absl::OkStatus(); });
}

StoreStats HostStore::stats() const {
  StoreStats stats;
  if (second_ != nullptr) stats = second_->stats();
  if (reader_ != nullptr) stats = reader_->stats();  // pulls of rows
  if (first_ != nullptr) {
    const StoreStats first = first_->stats();
    stats.io_cpu_s += first.io_cpu_s;
    stats.codec_s += first.codec_s;
  }
  return stats;
}

void HostStore::Close() {
  {
    MutexLock lock(&mutex_);
    if (is_closed_) return;
    is_closed_ = true;
  }
  job_.Leave();
  if (first_ != nullptr) first_->Close();  // its tickets end with it
  if (second_ != nullptr) second_->Close();
  if (reader_ != nullptr) reader_->Close();
  {
    MutexLock lock(&mutex_);
    while (num_ops_ > 0) {
      ops_changed_.WaitUntil(&mutex_, Clock::now() + std::chrono::seconds(1));
    }
  }
  FinishedTicket(absl::OkStatus()).NotifyTo(done_, kEndOfChains);
  chains_.join();
}

}  // namespace telegrad
