#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "kvstore/job/control/record.h"

namespace telegrad {
namespace {

using Json = nlohmann::ordered_json;

struct Encoded {
  Json json;
  const std::string* attached = nullptr;
};

Json MembersJson(const std::vector<Member>& members) {
  Json list = Json::array();
  for (const Member& member : members) {
    list.push_back({{"host", member.host}, {"pid", member.pid}});
  }
  return list;
}

Json EventJson(const char* type, const FatalEvent& event) {
  return {{"t", type},
          {"code", static_cast<int>(event.code)},
          {"message", event.message.substr(0, kMaxMessageBytes)},
          {"dead", event.dead},
          {"detect_ms", event.detect_ms},
          {"details", event.details_json.size() > kMaxDetailsBytes
                          ? std::string("{}")
                          : event.details_json},
          {"seat", event.seat},
          {"epoch", event.epoch}};
}

Encoded ToJson(const JoinRecord& r) {
  Json facts = Json::array();
  for (const auto& [name, value] : r.facts) {
    facts.push_back(Json::array({name, value}));
  }
  return {{{"t", "join"},
           {"version", r.version},
           {"role", RoleName(r.wanted.role)},
           {"rank", r.wanted.rank},
           {"host", r.host},
           {"pid", r.pid},
           {"born", r.born},
           {"facts", facts}}};
}
Encoded ToJson(const BeatRecord& r) {
  return {{{"t", "beat"},
           {"step", r.step},
           {"note", r.note},
           {"notes", r.notes},
           {"left", r.left},
           {"newcomers", r.newcomers}}};
}
Encoded ToJson(const GatherRecord& r) {
  return {{{"t", "gather"}, {"name", r.name}}, &r.payload};
}
Encoded ToJson(const PostRecord& r) {
  return {{{"t", "post"}, {"name", r.name}}, &r.payload};
}
Encoded ToJson(const ReadRecord& r) {
  return {{{"t", "read"}, {"name", r.name}}};
}
Encoded ToJson(const WithdrawRecord& r) {
  return {{{"t", "withdraw"}, {"name", r.name}}};
}
Encoded ToJson(const FailRecord& r) { return {EventJson("fail", r.event)}; }
Encoded ToJson(const SuspectRecord& r) {
  return {{{"t", "suspect"},
           {"role", RoleName(r.peer.role)},
           {"rank", r.peer.rank},
           {"why", r.why.substr(0, kMaxMessageBytes)}}};
}
Encoded ToJson(const LeaveRecord&) { return {{{"t", "leave"}}}; }
Encoded ToJson(const WelcomeRecord&) { return {{{"t", "welcome"}}}; }
Encoded ToJson(const RefuseRecord& r) {
  return {{{"t", "refuse"},
           {"code", r.code},
           {"message", r.message.substr(0, kMaxMessageBytes)}}};
}
Encoded ToJson(const RankRecord& r) {
  return {{{"t", "rank"}, {"rank", r.rank}}};
}
Encoded ToJson(const StartRecord& r) {
  return {{{"t", "start"},
           {"epoch", r.epoch},
           {"workers", MembersJson(r.workers)},
           {"servers", MembersJson(r.servers)},
           {"scheduler", MembersJson({r.scheduler})}}};
}
Encoded ToJson(const GatheredRecord& r) {
  return {{{"t", "gathered"}, {"name", r.name}, {"rank", r.rank}}, &r.payload};
}
Encoded ToJson(const MissingRecord& r) {
  return {{{"t", "missing"}, {"name", r.name}, {"members", r.members}}};
}
Encoded ToJson(const AbortRecord& r) { return {EventJson("abort", r.event)}; }
Encoded ToJson(const ByeRecord&) { return {{{"t", "bye"}}}; }
Encoded ToJson(const EndRecord&) { return {{{"t", "end"}}}; }

}  // namespace

std::string EncodeRecord(const Record& record) {
  const Encoded encoded =
      std::visit([](const auto& one) { return ToJson(one); }, record);
  // replace: bytes that are not UTF-8 must not make dump() throw.
  std::string body =
      encoded.json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (encoded.attached != nullptr)
    absl::StrAppend(&body, "\n", *encoded.attached);
  return body;
}

}  // namespace telegrad
