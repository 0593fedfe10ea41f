// SPDX-License-Identifier: Apache-2.0
#include "base/errors.h"

#include <charconv>

namespace simcuda {
namespace {

struct ErrorRow {
  CUresult code;
  const char* name;
  const char* text;
};

constexpr ErrorRow kErrors[] = {
#define ERROR(code, text) {code, #code, text},
#include "base/errors.def"
#undef ERROR
};

const ErrorRow* row(CUresult code) {
  for (const ErrorRow& row : kErrors) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

}  // namespace

const char* error_name(CUresult code) {
  const ErrorRow* found = row(code);
  return found == nullptr ? nullptr : found->name;
}

const char* error_text(CUresult code) {
  const ErrorRow* found = row(code);
  return found == nullptr ? nullptr : found->text;
}

std::optional<CUresult> find_error(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool numeric = error == std::errc{} && end == text.data() + text.size();
  for (const ErrorRow& row : kErrors) {
    if (numeric ? static_cast<int>(row.code) == number : text == row.name) return row.code;
  }
  return std::nullopt;
}

}  // namespace simcuda
