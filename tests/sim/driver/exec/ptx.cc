// SPDX-License-Identifier: Apache-2.0
//
// Variables that PTX text declares outside of functions: `.visible .global .align 4 .u32 name[2] =
// {1, 2};`. Managed ones and those of other modules (.extern) are left out.
#include <charconv>
#include <cstdint>
#include <map>

#include "exec/image.h"

namespace simcuda {
namespace {

// Text as words: names, numbers, directives with their dot, and single signs. No comments.
std::vector<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view kInWords =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$%.-";
  constexpr std::string_view kBlanks(" \t\r\n\0", 5);
  std::vector<std::string_view> words;
  for (size_t i = 0; i < text.size();) {
    if (text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size());
    } else if (text.substr(i, 2) == "/*") {
      const size_t end = text.find("*/", i + 2);
      i = end == text.npos ? text.size() : end + 2;
    } else if (const size_t end = std::min(text.find_first_not_of(kInWords, i), text.size());
               end != i) {
      words.push_back(text.substr(i, end - i));
      i = end;
    } else {
      if (kBlanks.find(text[i]) == kBlanks.npos) words.push_back(text.substr(i, 1));
      ++i;
    }
  }
  return words;
}

size_t bytes_of_type(std::string_view type) {
  static const std::map<std::string_view, size_t> kBytes = {
      {".b8", 1},  {".u8", 1},  {".s8", 1},  {".b16", 2}, {".u16", 2},  {".s16", 2},
      {".f16", 2}, {".b32", 4}, {".u32", 4}, {".s32", 4}, {".f32", 4},  {".f16x2", 4},
      {".b64", 8}, {".u64", 8}, {".s64", 8}, {".f64", 8}, {".b128", 16}};
  const auto found = kBytes.find(type);
  return found == kBytes.end() ? 0 : found->second;
}

bool number(std::string_view word, uint64_t* out) {
  const bool negative = word.starts_with('-');
  if (negative) word.remove_prefix(1);
  int base = 10;
  if (word.starts_with("0f") || word.starts_with("0F") || word.starts_with("0d") ||
      word.starts_with("0D") || word.starts_with("0x") || word.starts_with("0X")) {
    base = 16;  // floating point is written as its bits
    word.remove_prefix(2);
  }
  while (word.ends_with('U')) word.remove_suffix(1);
  const auto [end, code] = std::from_chars(word.data(), word.data() + word.size(), *out, base);
  if (code != std::errc{} || end != word.data() + word.size()) return false;
  if (negative) *out = -*out;
  return true;
}

// One declaration, up to its `;`.
class Declaration {
 public:
  explicit Declaration(std::vector<std::string_view> words) : words_(std::move(words)) {}

  // Empty names and sizes of 0 are no variables of this module.
  Variable read() {
    Variable variable;
    bool placed = false;
    size_t element = 0;
    size_t i = 0;
    for (; i < words_.size() && words_[i] != "[" && words_[i] != "="; ++i) {
      const std::string_view word = words_[i];
      if (word == ".extern" || word == ".managed") return {};
      if (word == ".global" || word == ".const") placed = true;
      if (const size_t bytes = bytes_of_type(word)) element = bytes * vector_of(i);
      if (!word.starts_with('.') && word != "(" && word != ")") variable.name = word;
      if (word == ".align" || word == ".attribute") ++i;  // its number is no name
    }
    if (!placed || element == 0) return {};
    uint64_t count = 1;
    for (; i + 2 < words_.size() && words_[i] == "["; i += 3) {
      uint64_t length = 0;
      if (!number(words_[i + 1], &length)) return {};
      count *= length;
    }
    variable.bytes = element * count;
    for (; i < words_.size(); ++i) {
      uint64_t value = 0;
      if (!number(words_[i], &value)) continue;
      variable.initial.append(reinterpret_cast<const char*>(&value),
                              std::min(element, sizeof value));
    }
    variable.initial.resize(std::min(variable.initial.size(), variable.bytes));
    return variable;
  }

 private:
  // `.v4 .f32`: the type is of one element.
  size_t vector_of(size_t type) const {
    if (type == 0) return 1;
    return words_[type - 1] == ".v2" ? 2 : words_[type - 1] == ".v4" ? 4 : 1;
  }

  std::vector<std::string_view> words_;
};

}  // namespace

std::vector<Variable> variables_of_ptx(std::string_view text) {
  std::vector<Variable> all;
  std::vector<std::string_view> declaration;
  int depth = 0;  // of braces: functions, and values
  bool values = false;
  for (const std::string_view word : words_of(text)) {
    if (word == "{") {
      values = values || (!declaration.empty() && declaration.back() == "=");
      if (!values) declaration.clear();
      ++depth;
    } else if (word == "}") {
      --depth;
      if (!values) declaration.clear();
      values = values && depth > 0;
    } else if (word == ";" && depth == 0) {
      if (Variable found = Declaration(std::move(declaration)).read(); found.bytes != 0) {
        all.push_back(std::move(found));
      }
      declaration.clear();
    } else if (depth == 0 || values) {
      // Directives of the whole module end with their line, and begin no declaration.
      if (word == ".version" || word == ".target" || word == ".address_size") declaration.clear();
      if (word == ".global" || word == ".const" || word == ".extern" || !declaration.empty()) {
        declaration.push_back(word);
      }
    }
  }
  return all;
}

}  // namespace simcuda
