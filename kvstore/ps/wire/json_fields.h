#pragma once

#include "absl/status/statusor.h"
#include "base/json_fields.h"
#include "kvstore/options.h"

// Fields of the JSON that workers and servers tell each other.
namespace telegrad {

// Messages of what is wrong with them; JsonFields has it.
constexpr char kJobConfigFields[] = "job config: field $0 $1";

// Floats travel as their bits: decimal text would round. One that is not finite
// is an error.
float FloatField(JsonFields& json, const char* name);

// An optimizer as an object.
JsonFields::Json OptimizerFields(const OptimizerConfig& config);
// Reads these fields of an object.
absl::StatusOr<OptimizerConfig> ReadOptimizerFields(JsonFields& json);

}  // namespace telegrad
