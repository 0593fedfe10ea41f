// SPDX-License-Identifier: Apache-2.0
//
// The table of settings, one row each. It is the only source for them. Parsing, checking, error
// texts, `cistern flags`, the launcher's options and SETTINGS.md all come from the rows, so a new
// setting is a member of Policy and a row.
//
// The table is constant data; any thread may read it at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "config/policy.h"
#include "config/text.h"

namespace cistern::config {

enum class Kind : uint8_t {
  kBool,
  kChoice,
  kInteger,
  kNumber,
  kText,
  kReportFile,
  kPlan,
  kGlob,
  kGlobList,
  kAlignment,
  kSizeRanges,
  kCap,
  kPoolThreshold,
};

inline constexpr int64_t kNoMax = INT64_MAX;

// What a value may be. `min` and `max` bound integers and numbers; for a choice `min` is the value
// of the first word.
struct Type {
  Kind kind;
  int64_t min = 0;
  int64_t max = kNoMax;
  bool above_min = false;       // numbers: min itself is refused
  bool not_zero = false;        // integers
  const char* words = nullptr;  // choices: "a|b"; free text: what it names
};

enum class Group : uint8_t {
  kGeneral,
  kLimits,
  kChunks,
  kGarbage,
  kStatic,
  kReuse,
  kHost,
  kFaults,
};

// A parsed value, before it goes to its member of the Policy.
struct Value {
  int64_t integer;  // also bools and choices
  double number;
  const char* text;
  Cap cap;
  SizeRanges sizes;
  PoolThreshold threshold;
};

using Store = void (*)(Policy& policy, const Value& value, bool set);

struct Row {
  const char* name;
  Group group;
  Type type;
  const char* default_text;  // nullptr: not set
  const char* unit;          // "" if the value has none
  const char* example;       // a value to type
  Store store;               // nullptr: one setting per device, the loader stores it
  const char* meaning;
  // The default holds only together with other settings: if this one is not set, it changes
  // nothing.
  bool counts_once_set = false;
  const char* elsewhere = "";  // its names on Ascend: "one, another"
};

inline constexpr size_t kMaxRows = 64;     // arrays with an element for each row have this size
extern const std::span<const Row> kTable;  // NOLINT(readability-identifier-naming)

const char* group_title(Group group);

// The row of a setting's name, or nullptr. For CISTERN_GPU_LIMIT_<n> `device` becomes n (which may
// be beyond kMaxDevices), for all others kNoDevice.
inline constexpr unsigned kNoDevice = ~0u;
const Row* find_row(std::string_view name, unsigned& device);

// The CISTERN_* name that `name` was probably meant to be, or nullptr when none is near.
const char* nearest_name(std::string_view name);

// The row that has this name elsewhere, in MemoryConfig or among the options of Ascend's graph
// engine; or nullptr.
const Row* find_elsewhere(std::string_view name);

// False when the row does not allow this text. Value::text becomes `text`.
bool parse_value(const Row& row, const char* text, Value& out);

// What the row allows, in words: "an integer from 1 to 64".
void write_allowed(const Row& row, LineWriter& out);

}  // namespace cistern::config
