#pragma once

#include <string>

#include "kvstore/states.h"

namespace telegrad {

class LocalStore;

class LocalStates : public StateAccess {
 public:
  explicit LocalStates(LocalStore& store) : store_(store) {}
  absl::StatusOr<std::string> Save() override;
  absl::Status Load(absl::string_view text) override;

 private:
  LocalStore& store_;
};

}  // namespace telegrad
