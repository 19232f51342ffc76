#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kvstore/job/control/job.h"

// The messages of the control plane after the handshake, each the body of one
// frame: a JSON object with its type in "t", then, for those with attached
// bytes, "\n" and the bytes. docs/control_plane.md has the grammar.
namespace telegrad {

constexpr int kControlVersion = 10;
constexpr size_t kMaxJsonBytes = size_t{1} << 20;
constexpr size_t kMaxRecordBytes = kMaxGatherBytes + kMaxJsonBytes;
constexpr size_t kMaxHostBytes = 255;
constexpr size_t kMaxFacts = 256;
constexpr size_t kMaxFactBytes = 1024;
constexpr size_t kMaxNameBytes = 256;
constexpr int kMaxPosts = 16;                          // posts of one member
constexpr size_t kMaxPostedBytes = size_t{256} << 20;  // posts of all members
// Reads of one member, per member of the job.
constexpr int kMaxReadsPerMember = 16;
constexpr size_t kMaxNoteBytes = 256;
// Workers; in larger jobs no notes are passed on.
constexpr int kMaxNotedWorkers = 1024;
constexpr size_t kMaxMessageBytes = 4096;
constexpr size_t kMaxDetailsBytes = 16384;
constexpr int kMaxMembers = 65536;  // ranks are u16 in frame headers

// Member to scheduler.
struct JoinRecord {
  NodeId wanted;  // rank -1: the scheduler chooses
  std::string host = {};
  int pid = 0;
  Facts facts = {};
  uint64_t born = 0;  // another one where a pid comes again on a host
  int version = kControlVersion;
};
struct BeatRecord {  // in both directions
  int64_t step = 0;
  // A worker's, for worker 0; to one that waits to come in: why it does.
  std::string note = {};
  std::vector<std::string> notes = {};  // to worker 0: all workers', by rank
  std::vector<int> left = {};  // to all: workers that have left in order
  int newcomers = 0;           // to worker 0: members that wait to come in
};
struct GatherRecord {
  std::string name;
  std::string payload;  // attached
};
struct PostRecord {  // an entry that all members may read, once per name
  std::string name;
  std::string payload;  // attached
};
struct ReadRecord {  // answered as soon as the entry is there
  std::string name;
};
struct WithdrawRecord {  // a gather or a read whose deadline has passed
  std::string name;
};
struct FailRecord {
  FatalEvent event;
};
struct SuspectRecord {
  NodeId peer;
  std::string why;
};
struct LeaveRecord {};

// Scheduler to member.
struct WelcomeRecord {};  // the proof was right: JOIN may come
struct RefuseRecord {     // and the connection closes
  int code = 0;
  std::string message;
};
struct RankRecord {
  int rank = 0;
};
struct StartRecord {
  uint64_t epoch = 0;
  std::vector<Member> workers;  // by rank
  std::vector<Member> servers;
  Member scheduler = {};  // its host and process
};
struct GatheredRecord {  // one for each rank; of ReadRecord one
  std::string name;
  int rank = 0;
  std::string payload;  // attached
};
struct MissingRecord {  // the answer to WithdrawRecord
  std::string name;
  std::vector<std::string> members;
};
struct AbortRecord {
  FatalEvent event;
};
struct ByeRecord {};
struct EndRecord {};

using Record =
    std::variant<JoinRecord, BeatRecord, GatherRecord, PostRecord, ReadRecord,
                 WithdrawRecord, FailRecord, SuspectRecord, LeaveRecord,
                 WelcomeRecord, RefuseRecord, RankRecord, StartRecord,
                 GatheredRecord, MissingRecord, AbortRecord, ByeRecord,
                 EndRecord>;

std::string EncodeRecord(const Record& record);

// InvalidArgument (exit code 31) names the field that is missing, of a wrong
// type or out of bounds. Unknown fields are ignored. Takes any bytes.
absl::StatusOr<Record> DecodeRecord(absl::string_view body);

// True for a number of base/exit_code.h other than 0.
bool IsFatalCode(int64_t code);

}  // namespace telegrad
