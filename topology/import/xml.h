#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace telegrad::topology_import {

struct XmlElement {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::string text;  // its own, of all places between its children
  std::vector<XmlElement> children;

  // The attribute's value; empty when it is not there.
  absl::string_view Attribute(absl::string_view key) const;
};

// The root element. White space before the document is skipped (some files of
// clouds begin with a blank line). InvalidArgument for text that is not well
// formed, of more than 16 MiB, 64 levels or 200,000 elements, or that declares
// entities (they can make a small file large).
absl::StatusOr<XmlElement> ParseXml(absl::string_view text);

}  // namespace telegrad::topology_import
