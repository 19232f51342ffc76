#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kvstore/collective/message.h"

namespace telegrad::collective {

// Another rank's error, of exit code `code`, in its words.
absl::Status StatusAsSaid(uint32_t code, absl::string_view said);

// Which collective this rank is in, compared with what the others say, and the
// first error of the group, which stays. One thread.
class Agreement {
 public:
  explicit Agreement(int rank) : rank_(rank) {}

  void Begin(const Signature& signature) {
    ++sequence_;
    signature_ = signature;
  }
  uint64_t sequence() const { return sequence_; }
  const Signature& signature() const { return signature_; }
  std::string Now() const;  // "collective 7 (allreduce ...)"

  // Whether it was said in this collective.
  bool Includes(const Header& header) const {
    return header.sequence == sequence_ && header.signature == signature_;
  }
  // OK if so; else `from` is elsewhere, which is an error of the group.
  absl::Status Compare(int from, const Header& header);

  void Break(absl::Status why) {
    if (broken_.ok()) broken_ = std::move(why);
  }
  // Another rank's error, of exit code `code`, in its words.
  void BreakAsSaid(uint32_t code, absl::string_view said);
  const absl::Status& broken() const { return broken_; }
  // What the others are told. Also what was heard from another rank: whoever
  // sees this rank close its connections has to know why.
  std::string AbortText() const;

 private:
  const int rank_;
  uint64_t sequence_ = 0;
  Signature signature_;
  absl::Status broken_;
  std::string said_;  // by another rank, passed on as it is
};

}  // namespace telegrad::collective
