#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "topology/json/fields.h"
#include "topology/machine_json.h"
#include "topology/path.h"

namespace telegrad {
namespace topology_json {
namespace {

using Json = nlohmann::ordered_json;  // people read it: keeps the order

class Writer {
 public:
  Json Take() { return std::move(object_); }

  template <typename T>
  void Field(const char* name, T& value) {
    object_[name] = Value(value);
  }

  template <typename T>
  void Field(const char* name, Known<T>& known) {
    object_[name] = known.known() ? Value(*known.value) : Json();
    AddWhy(name, known.why);
  }

  template <typename T>
  void Enum(const char* name, T value, T /*last*/) {
    object_[name] = Name(value);
  }

  void Hex(const char* name, Known<uint32_t>& known, int digits) {
    object_[name] = known.known()
                        ? Json(absl::StrFormat("0x%0*x", digits, *known.value))
                        : Json();
    AddWhy(name, known.why);
  }

  void Derived(const char* name) { object_[name] = nullptr; }  // its place

 private:
  void AddWhy(const char* name, std::vector<Evidence>& why) {
    if (!why.empty()) object_["why"][name] = Value(why);
  }

  template <typename T>
  static Json Value(T& value) {
    Writer writer;
    VisitFields(writer, value);
    return writer.Take();
  }
  static Json Value(std::string& value) { return value; }
  static Json Value(bool& value) { return value; }
  static Json Value(int& value) { return value; }
  static Json Value(uint32_t& value) { return value; }
  static Json Value(uint64_t& value) { return value; }
  static Json Value(double& value) { return value; }
  static Json Value(Bdf& value) { return ToString(value); }

  static Json Value(std::array<uint8_t, 16>& gid) {
    std::string text;
    for (size_t i = 0; i < gid.size(); i += 2) {
      absl::StrAppendFormat(&text, "%s%02x%02x", i == 0 ? "" : ":", gid[i],
                            gid[i + 1]);
    }
    return text;
  }

  template <typename T>
  static Json Value(std::vector<T>& list) {
    Json array = Json::array();
    for (T& each : list) array.push_back(Value(each));
    return array;
  }

  template <typename Key, typename T>
  static Json Value(std::map<Key, T>& map) {
    Json object = Json::object();
    for (auto& [key, value] : map) object[absl::StrCat(key)] = Value(value);
    return object;
  }

  Json object_ = Json::object();
};

const char* StateWord(const Known<int>& state) {
  static constexpr std::array kWords = {"NOP",   "DOWN",   "INIT",
                                        "ARMED", "ACTIVE", "ACTIVE_DEFER"};
  const int value = state.value_or(-1);
  return value >= 0 && value < static_cast<int>(kWords.size())
             ? kWords[static_cast<size_t>(value)]
             : "unknown";
}

// The port that the NIC's own line shows.
const Port* MainPort(const Nic& nic) {
  for (const Port& port : nic.ports) {
    if (port.state.value_or(0) == 4) return &port;
  }
  return nic.ports.empty() ? nullptr : &nic.ports.front();
}

void FillNicView(const Nic& nic, Json& json) {
  const Port none;
  const Port* main = MainPort(nic);
  const Port& port = main == nullptr ? none : *main;
  json["transport"] = Name(port.fabric);
  json["state"] = StateWord(port.state);
  if (port.gbps.known()) json["gbps"] = *port.gbps.value;
  if (port.chosen_gid.known()) json["gid_index"] = *port.chosen_gid.value;
  // The short names of each port, for scripts.
  for (Json& each : json["ports"]) {
    each["port"] = each["number"];
    each["mtu"] = each["active_mtu"];
    each["netdev"] = each["net_interface"];
  }
}

Json GpuNicView(const Machine& machine) {
  Json view = Json::object();
  for (size_t g = 0; g < machine.gpu_nic.size(); ++g) {
    Json& row = view[ToString(machine.gpus[g].bdf)] = Json::object();
    for (size_t n = 0; n < machine.gpu_nic[g].size(); ++n) {
      const Nic& nic = machine.nics[n];
      row[nic.bdf.known() ? ToString(*nic.bdf.value) : nic.name] =
          Name(machine.gpu_nic[g][n].path);
    }
  }
  return view;
}

Json GpuGpuView(const Machine& machine) {
  Json view = Json::object();
  for (size_t g = 0; g < machine.gpu_gpu.size(); ++g) {
    Json& row = view[ToString(machine.gpus[g].bdf)] = Json::object();
    for (size_t other = 0; other < machine.gpu_gpu[g].size(); ++other) {
      if (other == g) continue;
      row[ToString(machine.gpus[other].bdf)] =
          Name(machine.gpu_gpu[g][other].path);
    }
  }
  return view;
}

}  // namespace
}  // namespace topology_json

std::string ToJson(const Machine& machine, int indent) {
  using topology_json::Json;
  Machine copy = machine;  // the lists of fields serve the reader too
  topology_json::Writer writer;
  topology_json::VisitFields(writer, copy);
  Json json = writer.Take();
  json["schema"] = "1";
  json["digest"] = TopologyDigest(machine);
  json["gdr"] = Name(machine.capabilities.gdr);
  json["gpu_nic"] = topology_json::GpuNicView(machine);
  json["gpu_gpu"] = topology_json::GpuGpuView(machine);
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    topology_json::FillNicView(machine.nics[i], json["nics"][i]);
  }
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace telegrad
