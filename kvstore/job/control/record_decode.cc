#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/json_fields.h"
#include "base/status_macros.h"
#include "kvstore/job/control/record.h"

namespace telegrad {
namespace {

using Json = JsonFields::Json;

absl::Status Malformed(absl::string_view what) {
  return WithExitCode(
      ExitCode::kMismatch,
      absl::InvalidArgumentError(absl::StrCat("control record: ", what)));
}

// An object of a record, with what such objects have.
class Fields : public JsonFields {
 public:
  Fields(const Json& object, absl::string_view attached)
      : JsonFields(object, "control record: field \"$0\" $1"),
        attached_(attached) {}

  Role NodeRole(const char* name) {
    const std::string text = Text(name, 16);
    if (text == "server") return Role::kServer;
    if (text != "worker") Fail(name, "is neither worker nor server");
    return Role::kWorker;
  }

  Facts FactList(const char* name) {
    Facts facts;
    for (const Json& pair : List(name, kMaxFacts)) {
      const bool is_pair = pair.is_array() && pair.size() == 2 &&
                           pair[0].is_string() && pair[1].is_string();
      if (!is_pair) {
        return Fail(name, "has an entry that is not a pair"), Facts();
      }
      facts.emplace_back(pair[0].get<std::string>(),
                         pair[1].get<std::string>());
      const auto& [fact, value] = facts.back();
      if (std::max(fact.size(), value.size()) > kMaxFactBytes) {
        return Fail(name, "is too long"), Facts();
      }
    }
    return facts;
  }

  std::vector<Member> Members(const char* name, Role role) {
    std::vector<Member> members;
    Each(name, kMaxMembers, [&](JsonFields& one) {
      Member& member = members.emplace_back();
      member.id = {role, static_cast<int>(members.size()) - 1};
      member.host = one.Text("host", kMaxHostBytes);
      member.pid = one.Integer("pid", 0);
    });
    return members;
  }

  std::vector<int> Ranks(const char* name) {
    std::vector<int> ranks;
    for (const Json& rank : List(name, kMaxMembers)) {
      const auto* number = rank.get_ptr<const Json::number_unsigned_t*>();
      if (number == nullptr || *number >= kMaxMembers) {
        return Fail(name, "has an entry that is no rank"), ranks;
      }
      ranks.push_back(static_cast<int>(*number));
    }
    return ranks;
  }

  FatalEvent Event() {
    FatalEvent event;
    const int code = Integer("code", 0, 255);
    if (!IsFatalCode(code)) Fail("code", "is no exit code");
    event.code = static_cast<ExitCode>(code);
    event.message = Text("message", kMaxMessageBytes);
    event.dead = Texts("dead", kMaxMembers, kMaxMessageBytes);
    event.detect_ms = Integer<int64_t>("detect_ms", 0);
    event.details_json = Text("details", kMaxDetailsBytes);
    event.seat = Integer("seat", -1, kMaxMembers - 1);
    event.epoch = Integer<uint64_t>("epoch", 0, INT64_MAX);
    return event;
  }

  std::string Attached(size_t max_bytes) {
    if (attached_.size() > max_bytes) {
      return Fail("attached bytes", "are too many"), "";
    }
    return std::string(attached_);
  }

  // Harmless in log lines and file names of operators.
  std::string Host(const char* name) {
    std::string host = Text(name, kMaxHostBytes);
    const bool is_plain = std::all_of(host.begin(), host.end(), [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' ||
             c == '-' || c == '_' || c == ':';
    });
    if (host.empty() || !is_plain) Fail(name, "is no host name");
    return host;
  }

 private:
  absl::string_view attached_;
};

Record Join(Fields& f) {
  JoinRecord r;
  r.version = f.Integer("version", 0);
  r.wanted.role = f.NodeRole("role");
  r.wanted.rank = f.Integer("rank", -1, kMaxMembers - 1);
  r.host = f.Host("host");
  r.pid = f.Integer("pid", 0);
  // It is refused by its version; what else it has, only that one knows.
  if (r.version != kControlVersion) return r;
  r.born = f.Integer<uint64_t>("born", 0, UINT64_MAX);
  r.facts = f.FactList("facts");
  return r;
}
Record Beat(Fields& f) {
  return BeatRecord{
      .step = f.Integer<int64_t>("step"),
      .note = f.Text("note", kMaxNoteBytes),
      .notes = f.Texts("notes", kMaxNotedWorkers, kMaxMessageBytes),
      .left = f.Ranks("left"),
      .newcomers = f.Integer("newcomers", 0)};
}
Record Gather(Fields& f) {
  return GatherRecord{.name = f.Text("name", kMaxNameBytes),
                      .payload = f.Attached(kMaxGatherBytes)};
}
Record Post(Fields& f) {
  return PostRecord{.name = f.Text("name", kMaxNameBytes),
                    .payload = f.Attached(kMaxGatherBytes)};
}
Record Read(Fields& f) {
  return ReadRecord{.name = f.Text("name", kMaxNameBytes)};
}
Record Withdraw(Fields& f) {
  return WithdrawRecord{.name = f.Text("name", kMaxNameBytes)};
}
Record Fail(Fields& f) { return FailRecord{.event = f.Event()}; }
Record Suspect(Fields& f) {
  SuspectRecord r;
  r.peer.role = f.NodeRole("role");
  r.peer.rank = f.Integer("rank", 0, kMaxMembers - 1);
  r.why = f.Text("why", kMaxMessageBytes);
  return r;
}
Record Refuse(Fields& f) {
  RefuseRecord r;
  r.code = f.Integer("code", 1, 255);
  r.message = f.Text("message", kMaxMessageBytes);
  return r;
}
Record Rank(Fields& f) {
  return RankRecord{.rank = f.Integer("rank", 0, kMaxMembers - 1)};
}
Record Start(Fields& f) {
  StartRecord r;
  r.epoch = f.Integer<uint64_t>("epoch", 1, INT64_MAX);
  r.workers = f.Members("workers", Role::kWorker);
  r.servers = f.Members("servers", Role::kServer);
  const std::vector<Member> scheduler = f.Members("scheduler", Role::kServer);
  if (!scheduler.empty()) r.scheduler = scheduler[0];
  return r;
}
Record Gathered(Fields& f) {
  GatheredRecord r;
  r.name = f.Text("name", kMaxNameBytes);
  r.rank = f.Integer("rank", 0, kMaxMembers - 1);
  r.payload = f.Attached(kMaxGatherBytes);
  return r;
}
Record Missing(Fields& f) {
  MissingRecord r;
  r.name = f.Text("name", kMaxNameBytes);
  r.members = f.Texts("members", kMaxMembers, kMaxMessageBytes);
  return r;
}
Record Abort(Fields& f) { return AbortRecord{.event = f.Event()}; }
template <typename Empty>
Record NoFields(Fields&) {
  return Empty{};
}

struct TypeLine {
  const char* name;
  Record (*read)(Fields&);
};
constexpr TypeLine kTypes[] = {
    {"join", Join},
    {"beat", Beat},
    {"gather", Gather},
    {"post", Post},
    {"read", Read},
    {"withdraw", Withdraw},
    {"fail", Fail},
    {"suspect", Suspect},
    {"leave", NoFields<LeaveRecord>},
    {"welcome", NoFields<WelcomeRecord>},
    {"refuse", Refuse},
    {"rank", Rank},
    {"start", Start},
    {"gathered", Gathered},
    {"missing", Missing},
    {"abort", Abort},
    {"bye", NoFields<ByeRecord>},
    {"end", NoFields<EndRecord>},
};

}  // namespace

bool IsFatalCode(int64_t code) {
  if (code <= 0 || code > 255) return false;
  const ExitCode exit_code = static_cast<ExitCode>(code);
  return absl::string_view(ExitReason(exit_code)) != "unknown";
}

absl::StatusOr<Record> DecodeRecord(absl::string_view body) {
  const size_t newline = body.find('\n');
  const absl::string_view text = body.substr(0, newline);
  const absl::string_view attached =
      newline == absl::string_view::npos ? "" : body.substr(newline + 1);
  if (text.size() > kMaxJsonBytes) return Malformed("object too long");
  const Json object = ParseJson(text);
  if (!object.is_object()) return Malformed("not a JSON object");
  Fields fields(object, attached);
  const std::string type = fields.Text("t", 16);
  const auto status = [&] {
    return WithExitCode(ExitCode::kMismatch, fields.status());
  };
  RETURN_IF_ERROR(status());
  for (const TypeLine& line : kTypes) {
    if (type != line.name) continue;
    Record record = line.read(fields);
    RETURN_IF_ERROR(status());
    return record;
  }
  return Malformed("unknown type");
}

}  // namespace telegrad
