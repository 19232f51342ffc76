#include "tests/kvstore/simulation/async_worker.h"

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/kvstore/simulation/virtual_world.h"

namespace telegrad::testing {
namespace {

constexpr int64_t kStepsPerLetIn = 4;

Bytes BytesOf(Values& values) {
  return {reinterpret_cast<std::byte*>(values.data()), 4 * values.size()};
}

}  // namespace

AsyncWorker::AsyncWorker(const Scenario& scenario, JobOracle& oracle,
                         PushLedger& pushes, DistOptions options, size_t place)
    : scenario_(scenario),
      oracle_(oracle),
      pushes_(pushes),
      options_(std::move(options)),
      place_(place),
      weights_(oracle.At(0).weights) {}

absl::Status AsyncWorker::Run() {
  absl::StatusOr<std::unique_ptr<WorkerGroup>> group = JoinWorkers(options_);
  while (group.ok()) {
    group_ = *std::move(group);
    oracle_.OnJoined(group_->membership());
    const absl::Status status = Train();
    store_.reset();
    if (status.ok()) return status;
    if (!group_->seat().has_value()) {
      group_->Fail(status);
      return status;
    }
    oracle_.OnEpochsEnd(status);
    group = JoinNextEpoch(std::move(group_));
  }
  return group.status();
}

absl::Status AsyncWorker::Train() {
  RETURN_IF_ERROR(Begin());
  while (step_ < scenario_.steps) {
    if (scenario_.is_elastic && step_ % kStepsPerLetIn == 0) {
      RETURN_IF_ERROR(LetIn(*group_));
    }
    RETURN_IF_ERROR(Step());
    ++step_;
  }
  return End();
}

absl::Status AsyncWorker::Begin() {
  ASSIGN_OR_RETURN(store_, MakeKVStore("dist_async", options_, group_.get()));
  CompressionConfig compression{.type = scenario_.codec, .has_guard = false};
  compression.threshold = {.kind = ThresholdSpec::Kind::kAbsolute,
                           .value = 0.5f};
  RETURN_IF_ERROR(store_->SetCompression(compression));
  // Weights grow by what is pushed.
  RETURN_IF_ERROR(
      store_->SetOptimizer({.update_on = UpdateOn::kServer,
                            .sgd = {.learning_rate = 1, .rescale = -1}}));
  const uint64_t epoch = group_->membership().epoch;
  if (group_->rank() == group_->elder()) pushes_.OnGiven(epoch, weights_);
  std::vector<TensorSpec> tensors;
  std::vector<TensorView> views;
  for (size_t i = 0; i < weights_.size(); ++i) {
    tensors.push_back(
        {.name = absl::StrCat("tensor", i), .num_elems = weights_[i].size()});
    views.push_back(FloatTensor(BytesOf(weights_[i])));
  }
  RETURN_IF_ERROR(store_->Init(tensors, views).status());
  // Who gave values does not hear that servers go on with others.
  RETURN_IF_ERROR(PullAll());
  pushes_.OnBegin(group_->membership(), weights_);
  // Where one had done a step more all go on from the eldest's.
  ASSIGN_OR_RETURN(const std::vector<std::string> steps,
                   group_->Gather("step", absl::StrCat(step_)));
  const std::string& agreed = steps[static_cast<size_t>(group_->elder())];
  if (!absl::SimpleAtoi(agreed, &step_)) {
    return absl::InternalError(absl::StrCat("no step: ", agreed));
  }
  return absl::OkStatus();
}

absl::Status AsyncWorker::Step() {
  const Pace& pace = scenario_.pace;
  const auto span = static_cast<uint64_t>((pace.most - pace.least) /
                                          std::chrono::milliseconds(1));
  std::this_thread::sleep_for(
      pace.least + std::chrono::milliseconds(
                       VirtualWorld::The()->random().NextBelow(span + 1)));
  const uint64_t epoch = group_->membership().epoch;
  const int64_t number = num_pushes_++;
  OfTensors outs = weights_;
  std::vector<std::vector<size_t>> known;
  std::vector<Ticket> tickets;
  for (size_t tensor = 0; tensor < outs.size(); ++tensor) {
    Values& out = outs[tensor];
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = pushes_.is_of(place_, i)
                   ? PushLedger::Gradient(place_, number, tensor, i)
                   : 0.0f;
    }
    known.push_back(pushes_.OnPush(epoch, place_, number, tensor));
    tickets.push_back(store_->PushPull(static_cast<Key>(tensor), BytesOf(out),
                                       BytesOf(out), 0));
  }
  absl::Status status;
  for (size_t tensor = 0; tensor < outs.size(); ++tensor) {
    const absl::Status own =
        tickets[tensor].Wait(Clock::now() + options_.operation_timeout);
    status.Update(own);
    if (!own.ok()) continue;
    pushes_.OnAnswer(epoch, place_, tensor, known[tensor], outs[tensor]);
    oracle_.OnCompared();
    weights_[tensor] = std::move(outs[tensor]);
  }
  RETURN_IF_ERROR(status);
  group_->SetStep(step_ + 1);
  return absl::OkStatus();
}

absl::Status AsyncWorker::PullAll() {
  for (size_t tensor = 0; tensor < weights_.size(); ++tensor) {
    RETURN_IF_ERROR(
        store_->Pull(static_cast<Key>(tensor), BytesOf(weights_[tensor]), 0)
            .Wait(Clock::now() + options_.operation_timeout));
  }
  return absl::OkStatus();
}

absl::Status AsyncWorker::End() {
  RETURN_IF_ERROR(group_->Gather("pushed", "").status());
  RETURN_IF_ERROR(PullAll());
  for (size_t tensor = 0; tensor < weights_.size(); ++tensor) {
    pushes_.OnEnd(group_->membership().epoch, tensor, weights_[tensor]);
  }
  oracle_.OnLeaving();
  store_->Close();
  return absl::OkStatus();
}

}  // namespace telegrad::testing
