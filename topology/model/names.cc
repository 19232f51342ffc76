#include <array>
#include <cctype>
#include <cstddef>

#include "absl/strings/str_format.h"
#include "topology/path.h"

namespace telegrad {
namespace {

// The word of an enumerator; every table has one word for each.
template <typename Enum, size_t kSize>
const char* Word(const std::array<const char*, kSize>& words, Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < kSize ? words[index] : "unknown";
}

// Reads up to `max_digits` hexadecimal digits; false when there are none.
bool TakeHex(absl::string_view& text, size_t max_digits, uint32_t* value) {
  size_t digits = 0;
  *value = 0;
  while (digits < text.size() && digits < max_digits &&
         std::isxdigit(static_cast<unsigned char>(text[digits])) != 0) {
    const int c = std::tolower(static_cast<unsigned char>(text[digits]));
    *value =
        *value * 16 + static_cast<uint32_t>(c > '9' ? c - 'a' + 10 : c - '0');
    ++digits;
  }
  text.remove_prefix(digits);
  return digits > 0;
}

bool TakeChar(absl::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

bool ParseBdf(absl::string_view text, Bdf* bdf) {
  uint32_t parts[4] = {};  // domain, bus, device, function
  if (!TakeHex(text, 8, &parts[0]) || !TakeChar(text, ':') ||
      !TakeHex(text, 2, &parts[1])) {
    return false;
  }
  if (TakeChar(text, ':')) {
    if (!TakeHex(text, 2, &parts[2])) return false;
  } else {  // no domain
    parts[2] = parts[1];
    parts[1] = parts[0];
    parts[0] = 0;
  }
  if (!TakeChar(text, '.') || !TakeHex(text, 1, &parts[3])) return false;
  if (!text.empty() || parts[1] > 0xff || parts[2] > 0x1f || parts[3] > 7) {
    return false;
  }
  *bdf = {.domain = parts[0],
          .bus = static_cast<uint8_t>(parts[1]),
          .device = static_cast<uint8_t>(parts[2]),
          .function = static_cast<uint8_t>(parts[3])};
  return true;
}

std::string ToString(const Bdf& bdf) {
  return absl::StrFormat("%04x:%02x:%02x.%x", bdf.domain, bdf.bus, bdf.device,
                         bdf.function);
}

const char* Name(Fabric fabric) {
  static constexpr std::array kWords = {"IB",       "RoCEv2", "RoCEv1",
                                        "EFA",      "iWARP",  "OmniPath",
                                        "Ethernet", "unknown"};
  return Word(kWords, fabric);
}

const char* Name(PathClass path) {
  static constexpr std::array kWords = {"LOC", "NVL",  "C2C", "PIX",    "PXB",
                                        "PHB", "NODE", "SYS", "unknown"};
  return Word(kWords, path);
}

const char* Name(LinkLayer layer) {
  static constexpr std::array kWords = {"InfiniBand", "Ethernet", "unknown"};
  return Word(kWords, layer);
}

const char* Name(GidType type) {
  static constexpr std::array kWords = {"none", "RoCE v1", "RoCE v2", "IB"};
  return Word(kWords, type);
}

const char* Name(GidScope scope) {
  static constexpr std::array kWords = {"empty", "link-local", "IPv4", "IPv6"};
  return Word(kWords, scope);
}

const char* Name(Tri tri) {
  static constexpr std::array kWords = {"no", "yes", "unknown"};
  return Word(kWords, tri);
}

const char* Name(Confidence confidence) {
  static constexpr std::array kWords = {"measured", "reported", "inferred",
                                        "assumed"};
  return Word(kWords, confidence);
}

const char* Name(NetInterface::Kind kind) {
  static constexpr std::array kWords = {
      "physical", "virtual-device", "loopback", "bridge", "bond", "vlan",
      "vxlan",    "veth",           "tunnel",   "ipoib",  "other"};
  return Word(kWords, kind);
}

}  // namespace telegrad
