#pragma once

namespace telegrad {

// A text that was compiled in; tables of it end with a null name.
struct EmbeddedFile {
  const char* name;
  const char* content;
};

extern const EmbeddedFile kProfileFiles[];  // topology/profiles/*.csv

}  // namespace telegrad
