// SPDX-License-Identifier: Apache-2.0
// The function names of one ELF file: finds the symbol around an address. Reads the file itself, so
// it also names functions that the loader does not know, and those of files that are no longer
// loaded. The file is not trusted: time and memory are bounded by its size and by 8 million
// symbols. One thread at a time; memory comes from the operating system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace cistern::alloc {

class Symbols {
 public:
  // False if it is not an ELF file for this kind of machine, or has no symbols. Opens only regular
  // files, and only in file systems meant for them. Needs /proc. Call it once.
  bool open(const char* path);
  void close();

  // The name of the function around `address`, counted as in the file's symbol table; nullptr if
  // there is none. *begin: where the function begins. Valid until close().
  const char* find(uint64_t address, uint64_t* begin) const;

  // The contents of the section with this name, valid until close(); "" if there is none or it is
  // compressed.
  std::string_view section(std::string_view name) const;

 private:
  struct Symbol {
    uint64_t begin, size;
    uint32_t name;  // offset in strings_
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
