// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/functions.h"

#include <cxxabi.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <optional>

#include "allocator/record/symbols.h"

namespace cistern::alloc::tool {
namespace {

// Of each file asked for; without a value where it has no symbols that can be read.
const Symbols* symbols_of(const std::string& path) {
  static std::map<std::string, std::optional<Symbols>> files;
  const auto [file, is_new] = files.try_emplace(path);
  if (is_new && !file->second.emplace().open(path.c_str())) file->second.reset();
  return file->second ? &*file->second : nullptr;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

}  // namespace

std::string function_at(const std::string& path, uint64_t offset, uint64_t* into) {
  const Symbols* symbols = path.empty() ? nullptr : symbols_of(path);
  uint64_t begin = 0;
  const char* name = symbols == nullptr ? nullptr : symbols->find(offset, &begin);
  if (name == nullptr) return "";
  *into = offset - begin;
  return demangled(name);
}

}  // namespace cistern::alloc::tool
