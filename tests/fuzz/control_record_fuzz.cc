// libFuzzer: records of the control plane, as they come and as good ones with
// some bytes changed; what is read survives another writing.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "kvstore/job/control/record.h"

namespace telegrad {
namespace {

std::vector<std::string> GoodRecords() {
  FatalEvent event;
  event.code = ExitCode::kTimeout;
  event.message = "why";
  event.dead = {"worker/1@here:7"};
  event.details_json = R"({"missing":["worker/1"]})";
  const JoinRecord join = {.wanted = {Role::kWorker, 1},
                           .host = "here",
                           .pid = 7,
                           .facts = {{"a", "b"}, {"c", "d"}}};
  StartRecord start;
  start.epoch = 1;
  start.workers.resize(2);
  start.servers.resize(1);
  std::vector<std::string> all;
  for (const Record& record :
       {Record(join),
        Record(BeatRecord{
            .step = 9, .note = "n", .notes = {"a", "b"}, .left = {0, 1}}),
        Record(GatherRecord{.name = "g", .payload = "p"}),
        Record(PostRecord{.name = "n", .payload = std::string("\0\n{", 3)}),
        Record(ReadRecord{.name = "n"}), Record(WithdrawRecord{.name = "n"}),
        Record(FailRecord{event}),
        Record(SuspectRecord{.peer = {Role::kServer, 0}, .why = "no answer"}),
        Record(RefuseRecord{.code = 30, .message = "m"}),
        Record(RankRecord{.rank = 3}), Record(start),
        Record(GatheredRecord{.name = "g", .rank = 2, .payload = "p"}),
        Record(MissingRecord{.name = "g", .members = {"worker/1"}}),
        Record(AbortRecord{event}), Record(LeaveRecord{})}) {
    all.push_back(EncodeRecord(record));
  }
  return all;
}

void Read(const std::string& body) {
  const auto record = DecodeRecord(body);
  if (!record.ok()) return;
  const std::string again = EncodeRecord(*record);
  const auto reread = DecodeRecord(again);
  if (!reread.ok() || EncodeRecord(*reread) != again) std::abort();
}

}  // namespace
}  // namespace telegrad

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto* const good =
      new std::vector<std::string>(telegrad::GoodRecords());
  telegrad::Read(std::string(reinterpret_cast<const char*>(data), size));
  if (size == 0) return 0;
  std::string body = (*good)[data[0] % good->size()];
  // Each three bytes: where, what, and whether it is put there or inserted.
  for (size_t i = 1; i + 2 < size && !body.empty(); i += 3) {
    const size_t at = data[i] % body.size();
    const char byte = static_cast<char>(data[i + 1]);
    if (data[i + 2] % 3 == 0) {
      body[at] = byte;
    } else if (data[i + 2] % 3 == 1) {
      body.insert(at, 1, byte);
    } else {
      body.erase(at, 1 + data[i + 1] % 8);
    }
    telegrad::Read(body);
  }
  return 0;
}
