// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/program_code.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "allocator/base/os.h"

namespace cistern::alloc {
namespace {

// Of all tables of a file: a hostile one may have thousands of headers for the same entries, or be
// a hole of terabytes. Of what is not hostile the largest libraries have two million.
constexpr uint64_t kMostEntries = uint64_t{1} << 23;

// A file system whose files no linker ever wrote.
bool is_made_up(uint64_t file_system) {
  constexpr uint64_t kMadeUp[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC,        DEBUGFS_MAGIC,
                                  TRACEFS_MAGIC,    CGROUP_SUPER_MAGIC, CGROUP2_SUPER_MAGIC,
                                  SECURITYFS_MAGIC};
  return std::find(std::begin(kMadeUp), std::end(kMadeUp), file_system) != std::end(kMadeUp);
}

// Whether [offset, offset + length) is in a file of `bytes`.
bool inside(uint64_t offset, uint64_t length, size_t bytes) {
  return offset <= bytes && length <= bytes - offset;
}

// An entry of a table somewhere in the file, which need not be aligned.
template <typename T>
bool read_at(const unsigned char* file, size_t bytes, uint64_t offset, T* out) {
  if (!inside(offset, sizeof(T), bytes)) return false;
  std::memcpy(out, file + offset, sizeof(T));
  return true;
}

bool is_function(const Elf64_Sym& symbol) {
  const int type = ELF64_ST_TYPE(symbol.st_info);
  return (type == STT_FUNC || type == STT_GNU_IFUNC) && symbol.st_shndx != SHN_UNDEF &&
         symbol.st_value != 0;
}

}  // namespace

// What is no regular file, or one of those whose content the kernel makes up, is not even opened:
// with a device that alone may do something. O_PATH opens nothing, and its number names what was
// looked at.
int Symbols::open_regular(const char* path, size_t* bytes) {
  const int place = ::open(path, O_PATH | O_CLOEXEC);
  if (place < 0) return -1;
  struct stat about;
  struct statfs system;
  int file = -1;
  if (fstat(place, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0 &&
      fstatfs(place, &system) == 0 && !is_made_up(static_cast<uint64_t>(system.f_type))) {
    char name[32];
    std::snprintf(name, sizeof name, "/proc/self/fd/%d", place);
    file = ::open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    *bytes = static_cast<size_t>(about.st_size);
  }
  ::close(place);
  return file;
}

bool Symbols::open(const char* path) {
  const KeepErrno keep;
  const int file = open_regular(path, &bytes_);
  if (file < 0) return false;
  void* mapped = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
  ::close(file);
  if (mapped == MAP_FAILED) return false;
  file_ = static_cast<const unsigned char*>(mapped);
  // A stripped file has only the symbols that others link with.
  if (read_table(SHT_SYMTAB) || read_table(SHT_DYNSYM)) {
    sort();
    return true;
  }
  close();
  return false;
}

void Symbols::close() {
  const KeepErrno keep;
  if (file_ != nullptr) munmap(const_cast<unsigned char*>(file_), bytes_);
  if (symbols_ != nullptr) os::unmap(symbols_, room_ * sizeof(Symbol));
  *this = {};
}

bool Symbols::read_table(uint32_t kind) {
  Elf64_Ehdr header;
  if (!read_at(file_, bytes_, 0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_shentsize != sizeof(Elf64_Shdr)) {
    return false;
  }
  uint64_t left = std::min<uint64_t>(kMostEntries, bytes_ / sizeof(Elf64_Sym));
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr table, strings;
    if (!read_at(file_, bytes_, header.e_shoff + i * sizeof table, &table)) return false;
    if (table.sh_type != kind || table.sh_entsize != sizeof(Elf64_Sym)) continue;
    if (!read_at(file_, bytes_, header.e_shoff + uint64_t{table.sh_link} * sizeof strings,
                 &strings) ||
        !inside(table.sh_offset, table.sh_size, bytes_) || strings.sh_size == 0 ||
        !inside(strings.sh_offset, strings.sh_size, bytes_)) {
      return false;
    }
    strings_ = reinterpret_cast<const char*>(file_ + strings.sh_offset);
    string_bytes_ = strings.sh_size;
    if (strings_[string_bytes_ - 1] != '\0') return false;
    const uint64_t entries = table.sh_size / sizeof(Elf64_Sym);
    if (entries == 0 || entries > left) return false;
    left -= entries;
    room_ = entries;
    symbols_ = static_cast<Symbol*>(os::map(room_ * sizeof(Symbol)));
    if (symbols_ == nullptr) return false;
    for (uint64_t s = 0; s < entries; ++s) {
      Elf64_Sym symbol;
      if (!read_at(file_, bytes_, table.sh_offset + s * sizeof symbol, &symbol) ||
          !is_function(symbol) || symbol.st_name >= string_bytes_) {
        continue;
      }
      symbols_[count_++] = {symbol.st_value, symbol.st_size, symbol.st_name};
    }
    if (count_ != 0) return true;
    os::unmap(symbols_, room_ * sizeof(Symbol));
    symbols_ = nullptr;
  }
  return false;
}

std::string_view Symbols::section(std::string_view name) const {
  Elf64_Ehdr header;
  Elf64_Shdr names, found;
  const auto read = [&](uint64_t number, Elf64_Shdr* out) {
    return read_at(file_, bytes_, header.e_shoff + number * sizeof *out, out) &&
           inside(out->sh_offset, out->sh_size, bytes_);
  };
  if (!read_at(file_, bytes_, 0, &header) || !read(header.e_shstrndx, &names)) return "";
  const std::string_view all(reinterpret_cast<const char*>(file_ + names.sh_offset), names.sh_size);
  for (uint64_t i = 0; i < header.e_shnum; ++i) {
    if (!read(i, &found) || found.sh_type != SHT_PROGBITS || found.sh_name >= all.size()) continue;
    std::string_view from_name = all;
    from_name.remove_prefix(found.sh_name);
    const bool ends = from_name.size() > name.size() && from_name[name.size()] == '\0';
    if (!ends || !from_name.starts_with(name)) continue;
    if ((found.sh_flags & SHF_COMPRESSED) != 0) return "";
    return {reinterpret_cast<const char*>(file_ + found.sh_offset), found.sh_size};
  }
  return "";
}

// Of names for one address the longest function comes last, which find() looks at first.
void Symbols::sort() {
  std::sort(symbols_, symbols_ + count_, [](const Symbol& a, const Symbol& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.size < b.size;
  });
}

const char* Symbols::find(uint64_t address, uint64_t* begin) const {
  const Symbol* behind =
      std::upper_bound(symbols_, symbols_ + count_, address,
                       [](uint64_t value, const Symbol& s) { return value < s.begin; });
  if (behind == symbols_) return nullptr;
  const Symbol& symbol = behind[-1];
  // Assembly may give its functions no size: they reach to the next one.
  if (symbol.size != 0 && address - symbol.begin >= symbol.size) return nullptr;
  *begin = symbol.begin;
  return strings_ + symbol.name;
}

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
