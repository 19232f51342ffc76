#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/folder.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/cursor.h"
#include "trainer/checkpoint/resharding.h"
#include "trainer/checkpoint/worker_part.h"
#include "trainer/run/gradient_exchange.h"
#include "trainer/run/worker_run.h"

namespace telegrad {

// What one worker has put into a checkpoint.
struct OpenedPart {
  std::unique_ptr<PartReader> reader;  // behind the cursor
  Cursor cursor;
};

// All workers' checkpoints of one run: each writes its own part, worker 0 makes
// the whole. All call the same methods in the same order. One thread.
class Checkpointing {
 public:
  Checkpointing(RunContext& context, std::span<Replica> replicas)
      : context_(context),
        replicas_(replicas),
        folder_(context.options.checkpoint) {}

  // First of all: no other run writes there from now on.
  absl::Status Hold();
  // As --checkpoint-every has it, or asked for in the step before.
  bool IsDueAfterStep(int64_t step) const;
  bool IsDueAfterEpoch(int epoch) const;
  // Behind each step that has none: where SIGUSR1 asked any worker for one, or
  // newcomers wait, the next step has at which all have the same weights.
  // Workers ask each other once a second, in each step where steps are longer.
  absl::Status AskAfterStep(int64_t step);
  // The tensors of `replicas` and `cursor`, while no sum is under way. What
  // fails is told, and training goes on; the third time in a row is an error
  // with exit code 41. Where newcomers wait for it, an error has a seat.
  absl::Status Save(const Cursor& cursor);
  // The newest that is whole for all workers, tensors included; nullopt unless
  // --resume is given. Exit code 40: there is none; 31: it is of another run.
  // Before the store has tensors.
  absl::StatusOr<std::optional<Cursor>> Resume();
  // Afterwards, before the first step: what codecs and optimizers keep, in the
  // store, too.
  absl::Status ResumeStore();
  // The state of --local-steps, once there is one.
  void set_alone(LocalSteps* alone) { alone_ = alone; }

 private:
  struct Question {
    int64_t step = 0;
    TimePoint time = Clock::now();
  };
  WorkerPart part() const;
  bool IsOnServer() const;
  Facts MakeFacts() const;
  absl::StatusOr<std::string> WritePart(const std::string& folder,
                                        const Cursor& cursor,
                                        const std::string& optimizer) const;
  // Whether the flags let a run of other numbers go on; then in `resharding_`.
  absl::Status CheckFits(const Manifest& manifest);
  int own_part() const;
  absl::StatusOr<OpenedPart> Open(const Manifest& manifest, int rank) const;
  absl::StatusOr<std::string> ReadState(const Manifest& manifest);
  double StepPerNorm(const Manifest& manifest) const;
  // Whether newcomers wait, which come in now.
  absl::StatusOr<bool> SaveOnce(const Cursor& cursor);
  absl::StatusOr<Cursor> ReadPart(const Manifest& manifest);
  // The texts of all workers; Aborted with the first one's error, if any.
  absl::StatusOr<std::vector<std::string>> Share(
      const char* name, const absl::StatusOr<std::string>& mine) const;

  RunContext& context_;
  const std::span<Replica> replicas_;
  const CheckpointFolder folder_;
  std::unique_ptr<HeldFolder> held_;
  LocalSteps* alone_ = nullptr;
  std::optional<Manifest> resumed_;  // until ResumeStore
  // Until ResumeStore, where the saved run had other numbers of workers.
  std::optional<Resharding> resharding_;
  int num_failed_ = 0;  // in a row
  bool is_asked_for_ = false;
  // AskAfterStep's, the same on all workers but for the time.
  int64_t next_question_ = 0;
  Question last_question_;
};

// Whether a run whose epochs have so many batches can go on from there; else an
// error with exit code 31.
absl::Status CheckPlace(const Cursor& cursor, const TrainOptions& options,
                        int64_t num_batches);

// SIGUSR1 waits for Checkpointing. Before there are other threads.
void HoldCheckpointSignal();

// Whether the folder is one to begin in, or the newest of it to go on from, as
// far as flags and its manifest tell. Exit codes as Resume's.
// `starts_members`: flags, not a launcher, say how many.
absl::Status CheckCheckpointFolder(const TrainOptions& options,
                                   bool starts_members);

// Keeps the folder of --checkpoint, if it is given, and looks into it once
// more: another run may just have ended. InvalidArgument: one has it.
absl::StatusOr<std::unique_ptr<HeldFolder>> HoldCheckpointFolder(
    const TrainOptions& options, bool starts_members);

}  // namespace telegrad
