#include "kvstore/backups.h"
#include "python/c/store.h"

using telegrad::c::Give;

namespace {

absl::StatusOr<telegrad::Backups*> BackupsOf(telegrad_store* store) {
  if (store == nullptr) return absl::InvalidArgumentError("store is null");
  if (const absl::Status status = store->owner().Check(); !status.ok()) {
    return status;
  }
  if (telegrad::Backups* const backups = store->store().extras().backups) {
    return backups;
  }
  return absl::FailedPreconditionError(
      "each round of this store waits for all workers: it was made without "
      "drop_slowest");
}

}  // namespace

extern "C" {

int32_t telegrad_store_catch_up(telegrad_store* store, int64_t* missed,
                                telegrad_status* status) {
  const absl::StatusOr<telegrad::Backups*> backups = BackupsOf(store);
  if (!backups.ok()) return Give(backups.status(), status);
  if (missed == nullptr) {
    return Give(absl::InvalidArgumentError("missed is null"), status);
  }
  const absl::StatusOr<int64_t> found = (*backups)->CatchUp();
  if (found.ok()) *missed = *found;
  return Give(found.status(), status);
}

int32_t telegrad_store_take_all(telegrad_store* store, int32_t takes_all,
                                telegrad_status* status) {
  const absl::StatusOr<telegrad::Backups*> backups = BackupsOf(store);
  return Give(
      backups.ok() ? (*backups)->TakeAll(takes_all != 0) : backups.status(),
      status);
}

}  // extern "C"
