#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "python/c/bytes.h"
#include "python/c/store.h"

using telegrad::TensorView;
using telegrad::c::Give;
using telegrad::c::GiveBytes;

namespace {

using Json = nlohmann::ordered_json;

absl::Status CheckStore(telegrad_store* store) {
  if (store == nullptr) return absl::InvalidArgumentError("store is null");
  return store->owner().Check();
}

int32_t PriorityOf(const int32_t* priorities, size_t i) {
  return priorities == nullptr ? 0 : priorities[i];
}

// NaN and infinities have no place in JSON.
Json Number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json JsonOf(const telegrad::TensorReport& report) {
  Json json = {{"name", report.name},
               {"num_elems", report.num_elems},
               {"codec", report.codec},
               {"setting", report.setting},
               {"has_rule", report.has_rule},
               {"reason", report.reason},
               {"reply", report.reply},
               {"push_bytes", report.push_bytes},
               {"is_dense", report.is_dense},
               {"gave_up", report.gave_up},
               {"num_nonfinite", report.num_nonfinite}};
  if (!report.has_sample) return json;
  json["residual_ratio"] = Number(report.residual_ratio);
  json["zero_share"] = Number(report.zero_share);
  json["saturated_share"] = Number(report.saturated_share);
  json["cosine"] = Number(report.cosine);
  json["relative_error"] = Number(report.relative_error);
  return json;
}

const telegrad::c::Verdict* VerdictOf(const telegrad_store* store) {
  return store == nullptr ? nullptr : store->verdict();
}

// Push or Pull; `rows` may be null.
int32_t RunHalf(telegrad_store* store,
                telegrad::Ticket (telegrad::KVStore::*half)(
                    telegrad::Key, telegrad::TensorViews, int),
                const telegrad_store::Call& call,
                const telegrad_tensor* tensors, const telegrad_rows* rows,
                const int32_t* priorities, telegrad_status* status) {
  absl::Status result = CheckStore(store);
  if (result.ok()) result = store->CheckTensors(call.num, tensors, rows);
  if (result.ok()) {
    result = store->Run(call, [&](size_t i) {
      return (store->store().*half)(call.keys[i],
                                    store->ViewsOf(tensors, rows, i),
                                    PriorityOf(priorities, i));
    });
  }
  return Give(result, VerdictOf(store), status);
}

absl::StatusOr<telegrad::StateAccess*> StatesOf(telegrad_store* store) {
  RETURN_IF_ERROR(CheckStore(store));
  telegrad::StateAccess* const states = store->store().states();
  if (states != nullptr) return states;
  return absl::UnimplementedError(
      absl::StrCat("states of a store of type '", store->store().traits().type,
                   "', which runs no optimizer and no codec"));
}

// Of a worker for which another one pushes: none, "".
int32_t SaveBy(
    absl::StatusOr<std::string> (telegrad::CodecStates::*save)(telegrad::Key),
    telegrad_store* store, uint32_t key, telegrad_bytes** state,
    telegrad_status* status) {
  if (state == nullptr) {
    return Give(absl::InvalidArgumentError("state is null"), status);
  }
  const absl::StatusOr<telegrad::StateAccess*> states = StatesOf(store);
  if (!states.ok()) return Give(states.status(), status);
  telegrad::CodecStates* const codecs = (*states)->codec_states();
  return GiveBytes(codecs == nullptr ? std::string() : (codecs->*save)(key),
                   VerdictOf(store), state, status);
}

absl::Status LoadCodec(telegrad_store* store, uint32_t key,
                       absl::string_view text) {
  ASSIGN_OR_RETURN(telegrad::StateAccess* const states, StatesOf(store));
  telegrad::CodecStates* const codecs = states->codec_states();
  if (codecs != nullptr) return codecs->LoadCodec(key, text);
  if (text.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "what codecs kept of a worker that pushed: another one pushes for this "
      "one now (tier1)");
}

}  // namespace

extern "C" {

void telegrad_store_options_init(telegrad_store_options* options,
                                 uint64_t size) {
  telegrad_store_options standard = {};
  standard.num_devices = 1;
  standard.max_staleness = telegrad::kAnyStaleness;
  telegrad::c::SetKnown(standard, size, options);
}

int32_t telegrad_store_create(telegrad_job* job, const char* type,
                              const telegrad_store_options* options,
                              telegrad_store** store, telegrad_status* status) {
  if (store == nullptr) {
    return Give(absl::InvalidArgumentError("store is null"), status);
  }
  telegrad_store_options known;
  telegrad_store_options_init(&known, sizeof(known));
  absl::Status result = telegrad::c::TakeKnown(options, &known);
  std::unique_ptr<telegrad_store> made;
  if (result.ok()) {
    result = telegrad_store::Create(job, type, known, &made);
  }
  if (result.ok()) *store = made.release();
  return Give(result, status);
}

void telegrad_compression_init(telegrad_compression* compression,
                               uint64_t size) {
  telegrad_compression standard = {};
  standard.batch_size = 1;
  standard.has_guard = 1;
  telegrad::c::SetKnown(standard, size, compression);
}

int32_t telegrad_store_set_compression(telegrad_store* store,
                                       const telegrad_compression* compression,
                                       telegrad_status* status) {
  telegrad_compression known;
  telegrad_compression_init(&known, sizeof(known));
  absl::Status result = telegrad::c::TakeKnown(compression, &known);
  if (result.ok()) result = CheckStore(store);
  if (result.ok()) result = store->SetCompression(known);
  return Give(result, status);
}

void telegrad_optimizer_init(telegrad_optimizer* optimizer, uint64_t size) {
  const telegrad::OptimizerConfig standard;
  telegrad::c::SetKnown(
      telegrad_optimizer{.size = 0,
                         .kind = TELEGRAD_SGD,
                         .learning_rate = standard.sgd.learning_rate,
                         .momentum = standard.sgd.momentum_rate,
                         .weight_decay = standard.sgd.weight_decay,
                         .rescale_grad = standard.sgd.rescale,
                         .beta1 = standard.adam.beta1,
                         .beta2 = standard.adam.beta2,
                         .epsilon = standard.adam.epsilon,
                         .reserved = 0},
      size, optimizer);
}

int32_t telegrad_store_set_optimizer(telegrad_store* store,
                                     const telegrad_optimizer* optimizer,
                                     telegrad_status* status) {
  telegrad_optimizer known;
  telegrad_optimizer_init(&known, sizeof(known));
  absl::Status result = telegrad::c::TakeKnown(optimizer, &known);
  if (result.ok()) result = CheckStore(store);
  if (result.ok()) result = store->SetOptimizer(known);
  return Give(result, VerdictOf(store), status);
}

int32_t telegrad_store_init(telegrad_store* store, int64_t num,
                            const char* const* names,
                            const telegrad_tensor* tensors, const float* rates,
                            int32_t has_values, uint32_t* keys,
                            telegrad_status* status) {
  return telegrad_store_init_rows(store, num, names, tensors, nullptr, rates,
                                  has_values, keys, status);
}

int32_t telegrad_store_without_momentum(telegrad_store* store, const char* name,
                                        telegrad_status* status) {
  const absl::Status result = CheckStore(store);
  if (result.ok()) store->LeaveMomentumOut(name);
  return Give(result, VerdictOf(store), status);
}

int32_t telegrad_store_init_rows(telegrad_store* store, int64_t num,
                                 const char* const* names,
                                 const telegrad_tensor* tensors,
                                 const int64_t* row_elems, const float* rates,
                                 int32_t has_values, uint32_t* keys,
                                 telegrad_status* status) {
  absl::Status result = CheckStore(store);
  if (result.ok()) {
    result = store->Init(num, names, tensors, row_elems, rates, has_values != 0,
                         keys);
  }
  return Give(result, VerdictOf(store), status);
}

int32_t telegrad_store_push_pull(telegrad_store* store, int64_t num,
                                 const uint32_t* keys,
                                 const telegrad_tensor* grads,
                                 const telegrad_tensor* outs,
                                 const int32_t* priorities,
                                 telegrad_queue* queue, uint64_t tag,
                                 telegrad_status* status) {
  absl::Status result = CheckStore(store);
  if (result.ok()) result = store->CheckTensors(num, grads, nullptr);
  if (result.ok()) result = store->CheckTensors(num, outs, nullptr);
  if (result.ok()) {
    result = store->Run({"push_pull", num, keys, queue, tag}, [&](size_t i) {
      return store->store().PushPull(keys[i], store->ViewsOf(grads, nullptr, i),
                                     store->ViewsOf(outs, nullptr, i),
                                     PriorityOf(priorities, i));
    });
  }
  return Give(result, VerdictOf(store), status);
}

int32_t telegrad_store_push(telegrad_store* store, int64_t num,
                            const uint32_t* keys, const telegrad_tensor* grads,
                            const int32_t* priorities, telegrad_queue* queue,
                            uint64_t tag, telegrad_status* status) {
  return RunHalf(store, &telegrad::KVStore::Push,
                 {"push", num, keys, queue, tag}, grads, nullptr, priorities,
                 status);
}

int32_t telegrad_store_pull(telegrad_store* store, int64_t num,
                            const uint32_t* keys, const telegrad_tensor* outs,
                            const int32_t* priorities, telegrad_queue* queue,
                            uint64_t tag, telegrad_status* status) {
  return RunHalf(store, &telegrad::KVStore::Pull,
                 {"pull", num, keys, queue, tag}, outs, nullptr, priorities,
                 status);
}

int32_t telegrad_store_push_rows(telegrad_store* store, int64_t num,
                                 const uint32_t* keys,
                                 const telegrad_tensor* grads,
                                 const telegrad_rows* rows,
                                 const int32_t* priorities,
                                 telegrad_queue* queue, uint64_t tag,
                                 telegrad_status* status) {
  return RunHalf(store, &telegrad::KVStore::Push,
                 {"push", num, keys, queue, tag}, grads, rows, priorities,
                 status);
}

int32_t telegrad_store_pull_rows(telegrad_store* store, int64_t num,
                                 const uint32_t* keys,
                                 const telegrad_tensor* outs,
                                 const telegrad_rows* rows,
                                 const int32_t* priorities,
                                 telegrad_queue* queue, uint64_t tag,
                                 telegrad_status* status) {
  return RunHalf(store, &telegrad::KVStore::Pull,
                 {"pull", num, keys, queue, tag}, outs, rows, priorities,
                 status);
}

int32_t telegrad_store_broadcast(telegrad_store* store, int64_t num,
                                 const uint32_t* keys, int32_t root,
                                 const telegrad_tensor* values,
                                 telegrad_queue* queue, uint64_t tag,
                                 telegrad_status* status) {
  absl::Status result = CheckStore(store);
  if (result.ok()) result = store->CheckTensors(num, values, nullptr);
  if (result.ok()) {
    result = store->Run({"broadcast", num, keys, queue, tag}, [&](size_t i) {
      return store->store().Broadcast(keys[i], root,
                                      store->ViewsOf(values, nullptr, i), 0);
    });
  }
  return Give(result, VerdictOf(store), status);
}

const void* telegrad_bytes_data(const telegrad_bytes* bytes) {
  return bytes == nullptr ? nullptr : bytes->text.data();
}

uint64_t telegrad_bytes_size(const telegrad_bytes* bytes) {
  return bytes == nullptr ? 0 : bytes->text.size();
}

void telegrad_bytes_free(telegrad_bytes* bytes) { delete bytes; }

int32_t telegrad_store_save_states(telegrad_store* store,
                                   telegrad_bytes** states,
                                   telegrad_status* status) {
  if (states == nullptr) {
    return Give(absl::InvalidArgumentError("states is null"), status);
  }
  absl::StatusOr<telegrad::StateAccess*> access = StatesOf(store);
  if (!access.ok()) return Give(access.status(), status);
  return GiveBytes((*access)->Save(), VerdictOf(store), states, status);
}

int32_t telegrad_store_load_states(telegrad_store* store, const void* states,
                                   uint64_t num_bytes,
                                   telegrad_status* status) {
  absl::StatusOr<telegrad::StateAccess*> access = StatesOf(store);
  if (!access.ok()) return Give(access.status(), status);
  const absl::string_view text(static_cast<const char*>(states),
                               states == nullptr ? 0 : num_bytes);
  return Give((*access)->Load(text), VerdictOf(store), status);
}

int32_t telegrad_store_save_codec(telegrad_store* store, uint32_t key,
                                  telegrad_bytes** state,
                                  telegrad_status* status) {
  return SaveBy(&telegrad::CodecStates::SaveCodec, store, key, state, status);
}

int32_t telegrad_store_save_own_codec(telegrad_store* store, uint32_t key,
                                      telegrad_bytes** state,
                                      telegrad_status* status) {
  return SaveBy(&telegrad::CodecStates::SaveOwnCodec, store, key, state,
                status);
}

int32_t telegrad_store_load_codec(telegrad_store* store, uint32_t key,
                                  const void* state, uint64_t num_bytes,
                                  telegrad_status* status) {
  const absl::string_view text(static_cast<const char*>(state),
                               state == nullptr ? 0 : num_bytes);
  return Give(LoadCodec(store, key, text), VerdictOf(store), status);
}

int32_t telegrad_store_timeline(telegrad_store* store, int32_t is_on,
                                telegrad_bytes** events,
                                telegrad_status* status) {
  if (const absl::Status result = CheckStore(store); !result.ok()) {
    return Give(result, status);
  }
  std::string noted = store->SetTimeline(is_on != 0);
  if (events == nullptr) return Give(absl::OkStatus(), status);
  return GiveBytes(std::move(noted), VerdictOf(store), events, status);
}

int32_t telegrad_store_stats(telegrad_store* store, telegrad_stats* stats,
                             telegrad_status* status) {
  absl::Status result = CheckStore(store);
  if (stats == nullptr) {
    result.Update(absl::InvalidArgumentError("stats is null"));
  } else if (result.ok()) {
    const telegrad::StoreStats now = store->store().stats();
    *stats = {.push_raw_bytes = now.push_raw_bytes,
              .push_wire_bytes = now.push_wire_bytes,
              .pull_raw_bytes = now.pull_raw_bytes,
              .pull_wire_bytes = now.pull_wire_bytes,
              .num_nonfinite = now.num_nonfinite,
              .num_frames = now.num_frames,
              .max_staleness = now.max_staleness,
              .mean_staleness = now.mean_staleness,
              .num_late = now.num_late};
  }
  return Give(result, status);
}

int32_t telegrad_store_report(telegrad_store* store, char* text,
                              uint64_t text_bytes, uint64_t* needed,
                              telegrad_status* status) {
  if (const absl::Status result = CheckStore(store); !result.ok()) {
    return Give(result, status);
  }
  Json all = Json::array();
  for (const auto& report : store->store().codecs().Report()) {
    all.push_back(JsonOf(report));
  }
  return telegrad::c::GiveText(
      all.dump(-1, ' ', false, Json::error_handler_t::replace), text,
      text_bytes, needed, status);
}

void telegrad_store_close(telegrad_store* store) {
  if (store == nullptr || !store->owner().is_here()) return;
  store->Close();
  delete store;
}

}  // extern "C"
