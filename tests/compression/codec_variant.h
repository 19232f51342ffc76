#pragma once

#include <cctype>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "compression/codec_spec.h"

// What the conformance test runs for: every codec, and codecs with options.
namespace telegrad {

// A codec with options, as a text for ParseCodecSpec.
class Variant {
 public:
  explicit Variant(const std::string& text)
      : text_(text), spec_(*ParseCodecSpec(text)) {}
  const CodecTraits& traits() const { return spec_.codec->traits(); }
  auto Prepare(size_t n, Device device) const {
    return spec_.codec->Prepare(n, device, spec_.options);
  }
  const std::string& text() const { return text_; }
  // As a test's name: "2bit:packing=1" is Codec2bit_packing_1.
  std::string TestName() const {
    std::string name = text_;
    for (char& c : name) {
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    }
    const bool is_digit = std::isdigit(static_cast<unsigned char>(name[0]));
    return is_digit ? "Codec" + name : name;
  }

 private:
  std::string text_;
  CodecSpec spec_;
};

// What GoogleTest prints of it.
inline void PrintTo(const std::shared_ptr<const Variant>& variant,
                    std::ostream* out) {
  *out << variant->text();
}

inline std::vector<std::shared_ptr<const Variant>> Variants() {
  std::vector<std::shared_ptr<const Variant>> variants;
  for (const Codec* codec : AllCodecs()) {
    variants.push_back(std::make_shared<Variant>(codec->traits().name));
  }
  for (const char* text : {"2bit:packing=1", "topk:0.1:sampled=1",
                           "dgc:0.2:sampled=0", "qsgd:natural=1"}) {
    variants.push_back(std::make_shared<Variant>(text));
  }
  return variants;
}

}  // namespace telegrad
