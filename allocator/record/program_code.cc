// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/program_code.h"

#include <algorithm>
#include <cstddef>

namespace cistern::alloc {
namespace {

constexpr bool is_digit(char c) { return '0' <= c && c <= '9'; }

bool take(std::string_view& text, std::string_view start) {
  if (!text.starts_with(start)) return false;
  text.remove_prefix(start.size());
  return true;
}

// One part of a mangled name, "5Layer": "Layer" then; "" where something else stands there.
std::string_view take_part(std::string_view& text) {
  size_t length = 0, digits = 0;
  while (digits < text.size() && is_digit(text[digits]) && length <= text.size()) {
    length = length * 10 + static_cast<size_t>(text[digits++] - '0');
  }
  if (length == 0 || length > text.size() - digits) return "";
  const std::string_view part(text.data() + digits, length);
  text.remove_prefix(digits + length);
  return part;
}

// The functions of CUDA that allocate, under the names that they have in a program which the
// runtime is linked into, in its C++ header, or in a library of stubs; what else is in that runtime
// has one name with a number.
bool allocates_for_cuda(std::string_view name) {
  for (const std::string_view start :
       {"cudaMalloc", "cudaHostAlloc", "__cudart", "libcudart_static_", "cuMemAlloc",
        "cuMemHostAlloc", "cuMemCreate", "cuArrayCreate", "cuArray3DCreate",
        "cuMipmappedArrayCreate"}) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

constexpr struct {
  std::string_view outer, inner;  // "": all that is in the outer one
} kAllocating[] = {{"rmm", ""},       {"c10", ""},    {"at", "detail"}, {"paddle", "memory"},
                   {"__gnu_cxx", ""}, {"thrust", ""}, {"cudart", ""}};

// `rest`: behind the N of a nested name and its qualifiers.
bool in_allocating_namespace(std::string_view rest) {
  if (rest.starts_with('S')) return true;  // std, or what has a short form of its own there
  const std::string_view outer = take_part(rest), inner = take_part(rest);
  for (const auto& known : kAllocating) {
    if (known.outer == outer && (known.inner.empty() || known.inner == inner)) return true;
  }
  return false;
}

bool is_class_operator_new(std::string_view rest) {
  while (!take_part(rest).empty()) {
  }
  return rest.starts_with("nw") || rest.starts_with("na");
}

}  // namespace

bool is_program_code(std::string_view file) {
  file.remove_prefix(file.rfind('/') + 1);
  for (const std::string_view library :
       {"libcuda.", "libcudart.", "libpython", "python", "_ctypes", "libffi", "libc10.",
        "libc10_cuda.", "librmm.", "libstdc++.", "libc++."}) {
    if (file.starts_with(library)) return false;
  }
  return true;
}

// Read as the Itanium C++ ABI mangles, as far as a name's beginning goes. The C++ library that
// could make it readable is not everywhere.
bool is_wrapper(std::string_view symbol) {
  if (!take(symbol, "_Z")) return allocates_for_cuda(symbol);
  if (symbol.starts_with("nw") || symbol.starts_with("na")) return true;
  // What goes to a virtual function from another base: Thn8_N..., Tv0_n24_N...
  const bool by_vcall = symbol.starts_with("Tv");
  if (by_vcall || symbol.starts_with("Th")) {
    for (int i = 0; i < (by_vcall ? 2 : 1); ++i) symbol.remove_prefix(symbol.find('_') + 1);
  }
  while (take(symbol, "Z")) {  // in a function, as a lambda is
  }
  take(symbol, "L");  // of one source file
  if (symbol.starts_with("St")) return true;
  if (!take(symbol, "N")) return allocates_for_cuda(take_part(symbol));
  symbol.remove_prefix(std::min(symbol.find_first_not_of("rVKRO"), symbol.size()));
  return in_allocating_namespace(symbol) || is_class_operator_new(symbol);
}

}  // namespace cistern::alloc
