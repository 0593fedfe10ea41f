// SPDX-License-Identifier: Apache-2.0
// The function names of one ELF file: which symbol an address of it is in. Reads the file itself,
// so it names functions that the loader does not know, and of files that are no longer loaded. What
// the file says is not trusted: time and memory go by its size, and end at 8 million symbols. One
// thread at a time; memory comes from the operating system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cistern::alloc {

class Symbols {
 public:
  // False where it is no ELF file of this machine's kind, or has no symbols. Nothing but a regular
  // file of a file system for such is opened; there must be a /proc. Once.
  bool open(const char* path);
  void close();

  // The name of the function that holds `address`, as the file's symbol table counts addresses, and
  // where that function begins; nullptr: none does. Valid until close().
  const char* find(uint64_t address, uint64_t* begin) const;

  // What stands in the section of this name, until close(); "" where there is none, or a compressed
  // one.
  std::string_view section(std::string_view name) const;

 private:
  struct Symbol {
    uint64_t begin, size;
    uint32_t name;  // in strings_
  };

  static int open_regular(const char* path, size_t* bytes);
  bool read_table(uint32_t kind);
  void sort();

  const unsigned char* file_ = nullptr;
  size_t bytes_ = 0;
  const char* strings_ = nullptr;
  size_t string_bytes_ = 0;
  Symbol* symbols_ = nullptr;
  size_t count_ = 0, room_ = 0;
};

}  // namespace cistern::alloc
