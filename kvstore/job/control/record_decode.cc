#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kvstore/job/control/record.h"

namespace telegrad {
namespace {

using Json = nlohmann::json;

absl::Status Malformed(absl::string_view what) {
  return WithExitCode(
      ExitCode::kMismatch,
      absl::InvalidArgumentError(absl::StrCat("control record: ", what)));
}

// Typed, bounded access to one object; the first error sticks.
class Fields {
 public:
  Fields(const Json& object, absl::string_view attached)
      : object_(object), attached_(attached) {}

  int64_t Integer(const char* name, int64_t low, int64_t high) {
    const Json* value = Find(name);
    if (value == nullptr) return low;
    // An unsigned value above INT64_MAX must not wrap.
    if (!value->is_number_integer() ||
        (value->is_number_unsigned() &&
         value->get<uint64_t>() > uint64_t{INT64_MAX})) {
      return Bad(name, "is not an integer"), low;
    }
    const int64_t number = value->get<int64_t>();
    if (number < low || number > high) return Bad(name, "is out of range"), low;
    return number;
  }

  std::string Text(const char* name, size_t max_bytes) {
    const Json* value = Find(name);
    return value == nullptr ? "" : TextOf(name, *value, max_bytes);
  }

  Role NodeRole(const char* name) {
    const std::string text = Text(name, 16);
    if (text == "server") return Role::kServer;
    if (text != "worker") Bad(name, "is neither worker nor server");
    return Role::kWorker;
  }

  const Json* List(const char* name, size_t max_size) {
    const Json* value = Find(name);
    if (value == nullptr) return nullptr;
    if (!value->is_array()) return Bad(name, "is not a list"), nullptr;
    if (value->size() > max_size) return Bad(name, "is too long"), nullptr;
    return value;
  }

  std::vector<std::string> Texts(const char* name, size_t max_size) {
    std::vector<std::string> texts;
    const Json* list = List(name, max_size);
    if (list == nullptr) return texts;
    for (const Json& one : *list) {
      texts.push_back(TextOf(name, one, kMaxMessageBytes));
    }
    return texts;
  }

  Facts FactList(const char* name) {
    Facts facts;
    const Json* list = List(name, kMaxFacts);
    if (list == nullptr) return facts;
    for (const Json& pair : *list) {
      if (!pair.is_array() || pair.size() != 2) {
        return Bad(name, "has an entry that is not a pair"), Facts();
      }
      facts.emplace_back(TextOf(name, pair[0], kMaxFactBytes),
                         TextOf(name, pair[1], kMaxFactBytes));
    }
    return facts;
  }

  std::vector<Member> Members(const char* name, Role role) {
    std::vector<Member> members;
    const Json* list = List(name, kMaxMembers);
    if (list == nullptr) return members;
    for (const Json& one : *list) {
      if (!one.is_object()) return Bad(name, "has a non-object"), members;
      Fields fields(one, "");
      Member member;
      member.id = {role, static_cast<int>(members.size())};
      member.host = fields.Text("host", kMaxHostBytes);
      member.pid = static_cast<int>(fields.Integer("pid", 0, INT32_MAX));
      if (!fields.status_.ok()) status_.Update(fields.status_);
      members.push_back(std::move(member));
    }
    return members;
  }

  std::vector<int> Ranks(const char* name) {
    std::vector<int> ranks;
    const Json* list = List(name, kMaxMembers);
    if (list == nullptr) return ranks;
    for (const Json& rank : *list) {
      const auto* number = rank.get_ptr<const Json::number_unsigned_t*>();
      if (number == nullptr || *number >= kMaxMembers) {
        return Bad(name, "has an entry that is no rank"), ranks;
      }
      ranks.push_back(static_cast<int>(*number));
    }
    return ranks;
  }

  FatalEvent Event() {
    FatalEvent event;
    const int64_t code = Integer("code", 0, 255);
    if (!IsFatalCode(code)) Bad("code", "is no exit code");
    event.code = static_cast<ExitCode>(code);
    event.message = Text("message", kMaxMessageBytes);
    event.dead = Texts("dead", kMaxMembers);
    event.detect_ms = Integer("detect_ms", 0, INT64_MAX);
    event.details_json = Text("details", kMaxDetailsBytes);
    return event;
  }

  std::string Attached(size_t max_bytes) {
    if (attached_.size() > max_bytes) {
      return Bad("attached bytes", "are too many"), "";
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
    if (host.empty() || !is_plain) Bad(name, "is no host name");
    return host;
  }

  absl::Status status() const { return status_; }

 private:
  const Json* Find(const char* name) {
    const auto found = object_.find(name);
    if (found == object_.end()) return Bad(name, "is missing"), nullptr;
    return &*found;
  }

  std::string TextOf(const char* name, const Json& value, size_t max_bytes) {
    const auto* text = value.get_ptr<const std::string*>();
    if (text == nullptr) return Bad(name, "is not a string"), "";
    if (text->size() > max_bytes) return Bad(name, "is too long"), "";
    return *text;
  }

  void Bad(const char* name, const char* what) {
    status_.Update(Malformed(absl::StrCat("field \"", name, "\" ", what)));
  }

  const Json& object_;
  absl::string_view attached_;
  absl::Status status_;
};

Record Join(Fields& f) {
  JoinRecord r;
  r.version = static_cast<int>(f.Integer("version", 0, INT32_MAX));
  r.wanted.role = f.NodeRole("role");
  r.wanted.rank = static_cast<int>(f.Integer("rank", -1, kMaxMembers - 1));
  r.host = f.Host("host");
  r.pid = static_cast<int>(f.Integer("pid", 0, INT32_MAX));
  // It is refused by its version; what else it has, only that one knows.
  if (r.version != kControlVersion) return r;
  r.facts = f.FactList("facts");
  return r;
}
Record Beat(Fields& f) {
  return BeatRecord{.step = f.Integer("step", INT64_MIN, INT64_MAX),
                    .note = f.Text("note", kMaxNoteBytes),
                    .notes = f.Texts("notes", kMaxNotedWorkers),
                    .left = f.Ranks("left")};
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
  r.peer.rank = static_cast<int>(f.Integer("rank", 0, kMaxMembers - 1));
  r.why = f.Text("why", kMaxMessageBytes);
  return r;
}
Record Refuse(Fields& f) {
  RefuseRecord r;
  r.code = static_cast<int>(f.Integer("code", 1, 255));
  r.message = f.Text("message", kMaxMessageBytes);
  return r;
}
Record Rank(Fields& f) {
  return RankRecord{
      .rank = static_cast<int>(f.Integer("rank", 0, kMaxMembers - 1))};
}
Record Start(Fields& f) {
  StartRecord r;
  r.epoch = static_cast<uint64_t>(f.Integer("epoch", 1, INT64_MAX));
  r.workers = f.Members("workers", Role::kWorker);
  r.servers = f.Members("servers", Role::kServer);
  const std::vector<Member> scheduler = f.Members("scheduler", Role::kServer);
  if (!scheduler.empty()) r.scheduler = scheduler[0];
  return r;
}
Record Gathered(Fields& f) {
  GatheredRecord r;
  r.name = f.Text("name", kMaxNameBytes);
  r.rank = static_cast<int>(f.Integer("rank", 0, kMaxMembers - 1));
  r.payload = f.Attached(kMaxGatherBytes);
  return r;
}
Record Missing(Fields& f) {
  MissingRecord r;
  r.name = f.Text("name", kMaxNameBytes);
  r.members = f.Texts("members", kMaxMembers);
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
  const Json object =
      Json::parse(text.data(), text.data() + text.size(), nullptr, false);
  if (!object.is_object()) return Malformed("not a JSON object");
  Fields fields(object, attached);
  const std::string type = fields.Text("t", 16);
  if (!fields.status().ok()) return fields.status();
  for (const TypeLine& line : kTypes) {
    if (type != line.name) continue;
    Record record = line.read(fields);
    if (!fields.status().ok()) return fields.status();
    return record;
  }
  return Malformed("unknown type");
}

}  // namespace telegrad
