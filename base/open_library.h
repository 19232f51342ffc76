#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace telegrad::vendor {

// A function that a library must have, and where its address goes.
struct Function {
  const char* name;
  void** slot;
  const char* version = nullptr;  // the symbol's; null: the library's default
};

// Opens `library` as dlopen takes it, and fills all slots or none. Unavailable
// says why not.
absl::Status Open(const std::string& library,
                  const std::vector<Function>& functions);

// `opened`, with the package that brings what is missing.
absl::Status FromPackage(const absl::Status& opened, absl::string_view package);

}  // namespace telegrad::vendor

// Defines the function `name` as a jump to where its slot points, so that code
// calls it as if the library were linked. Hidden: another copy of the library
// in the process, and the library itself, must not see it. Weak: tests may have
// one of their own.
#if defined(__x86_64__)
#define TELEGRAD_JUMP(name) "jmp *telegrad_slot_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define TELEGRAD_JUMP(name)                   \
  "adrp x16, telegrad_slot_" #name            \
  "\n"                                        \
  "ldr x16, [x16, :lo12:telegrad_slot_" #name \
  "]\n"                                       \
  "br x16\n"
#else
#error "UCX and libfabric are called on x86-64 and 64-bit Arm: switch them off"
#endif
#define TELEGRAD_FORWARD(name)                                               \
  extern "C" {                                                               \
  __attribute__((visibility("hidden"))) void* telegrad_slot_##name;          \
  }                                                                          \
  asm(".pushsection .text\n.weak " #name "\n.hidden " #name "\n.type " #name \
      ", @function\n" #name ":\n" TELEGRAD_JUMP(name) ".size " #name         \
                                                      ", .-" #name           \
                                                      "\n.popsection\n");
