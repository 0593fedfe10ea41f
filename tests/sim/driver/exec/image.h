// SPDX-License-Identifier: Apache-2.0
//
// The variables that a module's image declares: PTX text, a cubin (ELF), or a fatbinary that holds
// either uncompressed. Nothing else of an image matters here. Any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace simcuda {

struct Variable {
  std::string name;  // mangled
  size_t bytes = 0;
  std::string initial{};  // its first bytes; the others are zero
};

// None for an image that cannot be read. An image tells its own size, as the driver's calls get
// none.
std::vector<Variable> variables_of_image(const void* image);

// The parts, for tests: what is cut short, or wrong, declares nothing.
std::vector<Variable> variables_of_ptx(std::string_view text);
std::vector<Variable> variables_of_cubin(std::string_view elf);

}  // namespace simcuda
