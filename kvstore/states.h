#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/bytes.h"
#include "kvstore/options.h"

namespace telegrad {

// What codecs kept of a tensor in a job with other numbers of workers and
// servers, as its workers saved it.
struct OldCodecs {
  int num_servers = 1;
  struct Text {
    int rank = 0;  // the worker whose text it is
    std::string text = {};
  };
  // The first goes on: with what is agreed, vetoes and bases. Residuals and
  // momenta of all are added, in this order; of the first, and with them those
  // of servers, if `takes_first`.
  std::vector<Text> texts = {};
  bool takes_first = true;
};

// What codecs keep of a tensor between rounds, wherever the optimizer is:
// residuals, scales that are agreed, the guard's verdicts, bases and momenta;
// how many rounds there were. A text of its own for each worker; that of rank 0
// has the servers', too. While no worker has an operation under way.
class CodecStates {
 public:
  virtual ~CodecStates() = default;
  // Waits for the device of a tensor that lies on one. Unimplemented for stores
  // without rounds.
  virtual absl::StatusOr<std::string> SaveCodec(Key key) = 0;
  // SaveCodec's text without the servers', which rank 0 may ask for whatever
  // others do: while this worker has no operation of the key under way. A store
  // that has failed gives it, too.
  virtual absl::StatusOr<std::string> SaveOwnCodec(Key key) {
    return SaveCodec(key);
  }
  // Takes what SaveCodec gave the same worker, in a store with as many workers
  // and servers, the same tensors and settings; no worker starts a round before
  // all have loaded. DataLoss for damage; then the store is of no use.
  virtual absl::Status LoadCodec(Key key, absl::string_view text) = 0;

  // A text for LoadCodec of this worker, in this store, of one with other
  // numbers. Changes nothing here. Errors as LoadCodec; Unimplemented where
  // there are no other workers.
  virtual absl::StatusOr<std::string> RecutCodec(Key key, const OldCodecs& old);
  // The L2 norm of what RecutCodec would take over: residuals of `old` and
  // their servers, added up.
  virtual absl::StatusOr<double> HeldNorm(Key key, const OldCodecs& old);
};

// What an optimizer in the store keeps of its tensors, as one text. All workers
// call these, between rounds.
class StateAccess {
 public:
  virtual ~StateAccess() = default;
  // Worker 0 gets the text, the others an empty one.
  virtual absl::StatusOr<std::string> Save() = 0;
  // Takes worker 0's text and ignores those of the others. The text names the
  // same tensors and kind of optimizer, for however many servers. Nothing
  // changes when it is not whole.
  virtual absl::Status Load(absl::string_view text) = 0;
  // What this process's codecs keep; null where it encodes nothing, as another
  // process pushes.
  virtual CodecStates* codec_states() = 0;
};

// The content of such a text.
struct TensorState {
  std::string name;
  uint64_t num_elems = 0;
  uint64_t num_steps = 0;
  std::vector<Buffer> arrays;  // [num_elems] f32 each: momentum; mean, square;
                               // square
};
struct OptimizerStates {
  OptimizerKind kind = OptimizerKind::kSgd;
  std::vector<TensorState> tensors;
};

constexpr size_t kMaxStateArrays = 2;
// How many arrays an optimizer has once it has stepped.
size_t NumStateArrays(OptimizerKind kind);

// Little-endian; docs/wire_format.md tells every byte:
//   states = "TGRS" version:u16=1 kind:u8 zero:u8 tensors:u32 zero:u32
//            tensor* crc:u32
//   tensor = 'T' arrays:u8 name_bytes:u16 zero:u32 elems:u64 steps:u64
//            name { elems floats }
// crc is the CRC-32C of all before it.
std::string SerializeStates(const OptimizerStates& states);
// Bytes from a file: every field is checked, nothing is allocated that the text
// does not hold. DataLoss for damage, InvalidArgument for another version.
absl::StatusOr<OptimizerStates> ParseStates(absl::string_view text);

// InvalidArgument unless `states` are of these tensors and this optimizer.
absl::Status CheckStates(const OptimizerStates& states, OptimizerKind kind,
                         const std::vector<TensorSpec>& tensors);

}  // namespace telegrad
