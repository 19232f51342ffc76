#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "base/socket.h"
#include "kvstore/job/control/membership.h"
#include "kvstore/ps/server/aggregator.h"

namespace telegrad {

// What a server has summed, for whoever wants to count again: lines of JSON at
// the end of FOLDER/<host>-<process>-server<rank>.jsonl.
// docs/when_a_machine_dies.md has their fields. One thread.
class Ledger {
 public:
  // Begins with the members. Nothing is written where `folder` is empty.
  static absl::StatusOr<Ledger> Open(const std::string& folder,
                                     const Membership& membership);
  bool is_open() const { return file_.is_open(); }
  // A chunk's round has ended with this answer.
  void Add(const std::string& tensor, const Chunk& chunk,
           const PayloadFormat& format, const Answer& answer);

 private:
  void Write(const nlohmann::ordered_json& fields);

  UniqueFd file_;
  std::string path_;
};

}  // namespace telegrad
