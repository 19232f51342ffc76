#include "topology/detect/read.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace telegrad::detect {

Evidence Line::Why(absl::string_view what, Confidence confidence) const {
  return {.what = std::string(what),
          .source = Printable(path),
          .raw = Printable(text),
          .error = error,
          .confidence = confidence};
}

Line ReadLine(const SysRoot& root, std::string path, size_t max_bytes) {
  FileText file = root.Read(path, max_bytes);
  // tar fills a file of /sys with zeros, up to the size that stat() gives.
  file.text.resize(std::min(file.text.find('\0'), file.text.size()));
  return {.path = std::move(path),
          .text = std::string(absl::StripAsciiWhitespace(file.text)),
          .error = file.error};
}

std::string Printable(absl::string_view text) {
  constexpr size_t kMax = 160;
  std::string shown(text.substr(0, kMax));
  for (char& c : shown) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return shown;
}

std::optional<int64_t> LeadingInt(absl::string_view text) {
  const bool is_hex = text.size() > 2 && text[0] == '0' && text[1] == 'x';
  size_t end = 0;
  if (is_hex) {
    end = 2;
  } else if (!text.empty() && text[0] == '-') {
    end = 1;
  }
  const auto is_digit = [&](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return is_hex ? absl::ascii_isxdigit(byte) : absl::ascii_isdigit(byte);
  };
  while (end < text.size() && is_digit(text[end])) ++end;
  int64_t value = 0;
  const absl::string_view number = text.substr(0, end);
  const bool is_number = is_hex ? absl::SimpleHexAtoi(number, &value)
                                : absl::SimpleAtoi(number, &value);
  return is_number ? std::optional(value) : std::nullopt;
}

std::vector<int> ParseCpuList(absl::string_view text) {
  constexpr size_t kMax = 65536;
  std::vector<int> cpus;
  for (const absl::string_view range :
       absl::StrSplit(absl::StripAsciiWhitespace(text), ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(range, absl::MaxSplits('-', 1));
    int first = 0;
    if (!absl::SimpleAtoi(ends.first, &first) || first < 0) continue;
    int last = first;
    if (!ends.second.empty() && !absl::SimpleAtoi(ends.second, &last)) continue;
    for (int64_t cpu = first; cpu <= last && cpus.size() < kMax; ++cpu) {
      cpus.push_back(static_cast<int>(cpu));
    }
  }
  return cpus;
}

std::string BaseName(absl::string_view path) {
  path = absl::StripSuffix(path, "/");
  const size_t slash = path.rfind('/');
  return std::string(slash == absl::string_view::npos ? path
                                                      : path.substr(slash + 1));
}

}  // namespace telegrad::detect
