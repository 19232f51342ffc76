#pragma once

#include <string>

#include "kvstore/states.h"

namespace telegrad {

class LocalStore;

class LocalStates : public StateAccess, private CodecStates {
 public:
  explicit LocalStates(LocalStore& store) : store_(store) {}
  absl::StatusOr<std::string> Save() override;
  absl::Status Load(absl::string_view text) override;
  CodecStates* codec_states() override { return this; }

 private:
  absl::StatusOr<std::string> SaveCodec(Key key) override;
  absl::Status LoadCodec(Key key, absl::string_view text) override;
  LocalStore& store_;
};

}  // namespace telegrad
