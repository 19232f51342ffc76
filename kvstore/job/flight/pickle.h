#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace telegrad {

// Writes what Python's pickle module reads: dicts, lists, texts, integers and
// truth values of protocol 2, nothing that runs. One thread.
class Pickle {
 public:
  Pickle& None() { return Put("N"); }
  Pickle& Bool(bool value) { return Put(value ? "\x88" : "\x89"); }
  Pickle& Int(int64_t value) {
    Put(absl::string_view("\x8a\x08", 2));  // LONG1 of eight bytes
    return Number(static_cast<uint64_t>(value), 8);
  }
  // Bytes that are not ASCII become '?'. One that comes again is a reference.
  Pickle& Text(absl::string_view text) {
    const auto [found, is_new] = memo_.try_emplace(
        std::string(text), static_cast<uint32_t>(memo_.size()));
    if (!is_new) return Put("j").Number(found->second, 4);
    Put("X").Number(text.size(), 4);
    for (const char byte : text) {
      text_ += static_cast<signed char>(byte) < 0 ? '?' : byte;
    }
    return Put("r").Number(found->second, 4);
  }
  // `fill` puts the items, or keys and values in turn.
  Pickle& List(const std::function<void()>& fill) {
    Put("](");
    fill();
    return Put("e");
  }
  Pickle& Dict(const std::function<void()>& fill) {
    Put("}(");
    fill();
    return Put("u");
  }
  std::string Finish() && { return std::move(Put(".").text_); }

 private:
  Pickle& Put(absl::string_view bytes) {
    text_.append(bytes.data(), bytes.size());
    return *this;
  }
  Pickle& Number(uint64_t value, int num_bytes) {
    for (; num_bytes > 0; --num_bytes, value >>= 8) {
      text_ += static_cast<char>(value & 0xff);
    }
    return *this;
  }

  std::string text_ = "\x80\x02";
  std::map<std::string, uint32_t> memo_;
};

}  // namespace telegrad
