#include "topology/import/xml.h"

#include <expat.h>

#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace telegrad::topology_import {
namespace {

constexpr size_t kMaxText = size_t{16} << 20;
constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxElements = 200000;

// What expat's callbacks build.
struct Builder {
  XML_Parser parser = nullptr;
  XmlElement document;            // its only child is the root
  std::vector<XmlElement*> open;  // from the document inwards
  size_t num_elements = 0;
  const char* refusal = nullptr;

  void Refuse(const char* why) {
    refusal = why;
    XML_StopParser(parser, XML_FALSE);
  }
};

void OnStart(void* data, const XML_Char* name, const XML_Char** attributes) {
  auto& builder = *static_cast<Builder*>(data);
  if (builder.open.size() > kMaxDepth) return builder.Refuse("too deep");
  if (++builder.num_elements > kMaxElements) {
    return builder.Refuse("too many elements");
  }
  XmlElement& element = builder.open.back()->children.emplace_back();
  element.name = name;
  for (; attributes[0] != nullptr; attributes += 2) {
    element.attributes.emplace_back(attributes[0], attributes[1]);
  }
  builder.open.push_back(&element);
}

void OnEnd(void* data, const XML_Char* /*name*/) {
  static_cast<Builder*>(data)->open.pop_back();
}

void OnText(void* data, const XML_Char* text, int size) {
  auto& builder = *static_cast<Builder*>(data);
  builder.open.back()->text.append(text, static_cast<size_t>(size));
}

void OnEntity(void* data, const XML_Char*, int, const XML_Char*, int,
              const XML_Char*, const XML_Char*, const XML_Char*,
              const XML_Char*) {
  static_cast<Builder*>(data)->Refuse("it declares entities");
}

}  // namespace

absl::string_view XmlElement::Attribute(absl::string_view key) const {
  for (const auto& attribute : attributes) {
    if (attribute.first == key) return attribute.second;
  }
  return "";
}

absl::StatusOr<XmlElement> ParseXml(absl::string_view text) {
  text = absl::StripLeadingAsciiWhitespace(text);
  if (text.size() > kMaxText) {
    return absl::InvalidArgumentError("XML: more than 16 MiB");
  }
  const std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser(
      XML_ParserCreate(nullptr), &XML_ParserFree);
  if (parser == nullptr) return absl::ResourceExhaustedError("XML: no memory");
  Builder builder;
  builder.parser = parser.get();
  builder.open.push_back(&builder.document);
  XML_SetUserData(parser.get(), &builder);
  XML_SetElementHandler(parser.get(), OnStart, OnEnd);
  XML_SetCharacterDataHandler(parser.get(), OnText);
  XML_SetEntityDeclHandler(parser.get(), OnEntity);
  const auto size = static_cast<int>(text.size());
  if (XML_Parse(parser.get(), text.data(), size, 1) != XML_STATUS_OK) {
    return absl::InvalidArgumentError(
        absl::StrCat("XML: line ", XML_GetCurrentLineNumber(parser.get()), ": ",
                     builder.refusal != nullptr
                         ? builder.refusal
                         : XML_ErrorString(XML_GetErrorCode(parser.get()))));
  }
  return std::move(builder.document.children.front());
}

}  // namespace telegrad::topology_import
