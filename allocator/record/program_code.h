// SPDX-License-Identifier: Apache-2.0
// The program's code in call stacks: which function lies around an address, and which frame of a
// stack names a call site.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "allocator/record/event.h"

namespace cistern::alloc {

// The function names of one ELF file: finds the symbol around an address. Reads the file itself, so
// it also names functions that the loader does not know, and those of files that are no longer
// loaded. The file is not trusted: time and memory are bounded by its size and by 8 million
// symbols. One thread at a time; memory comes from the operating system.
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

// The frame of a call stack that names a call site. The report, the reader of
// recordings, the log of reuse and the out-of-memory line all use it. Any thread.

// Whether the file with this path has code of the program. False for CUDA's own libraries, for
// interpreters, and for libraries whose purpose is to allocate: their functions do not tell the
// user anything.
bool is_program_code(std::string_view file);

// Whether a function only allocates for its caller. `symbol`: as in its file; false for "". True
// for the allocating functions of the CUDA runtime and driver, for `operator new`, and for
// everything in namespaces that allocate for others: the C++ library's, PyTorch's c10, RMM's,
// Thrust's, Paddle's memory.
bool is_wrapper(std::string_view symbol);

// The index of the frame that names the call site: the innermost Python function. Without one, the
// innermost program function that is no wrapper, then the innermost program function, then the
// innermost frame. `path(frame)`: the path of its file. `wraps(frame)`: whether its function is a
// wrapper. count > 0.
template <typename Path, typename Wraps>
int telling_frame(const Frame* frames, int count, Path path, Wraps wraps) {
  for (int i = 0; i < count; ++i) {
    if (frames[i].python()) return i;
  }
  int wrapper = -1;
  for (int i = 0; i < count; ++i) {
    if (!is_program_code(path(frames[i]))) continue;
    if (!wraps(frames[i])) return i;
    if (wrapper < 0) wrapper = i;
  }
  return wrapper < 0 ? 0 : wrapper;
}

// The frames that are shown for a call site: the telling frame. If it has no name, as in a program
// without symbols, its callers too, up to the first one with a name and three frames in all.
struct ShownFrames {
  int first, last;
};

template <typename Path, typename Wraps, typename Nameless>
ShownFrames shown_frames(const Frame* frames, int count, Path path, Wraps wraps,
                         Nameless nameless) {
  constexpr int kMost = 3;
  const int first = telling_frame(frames, count, path, wraps);
  const int most = std::min(first + kMost, count) - 1;
  int last = first;
  while (last < most && !frames[last].python() && nameless(frames[last])) ++last;
  return {first, last};
}

}  // namespace cistern::alloc
