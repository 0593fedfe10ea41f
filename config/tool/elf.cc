// SPDX-License-Identifier: Apache-2.0
#include "config/tool/tool.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

namespace cistern::config::tool {
namespace {

// A file's bytes, mapped for reading; empty when it has none or cannot be read.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd >= 0 && ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
      size_ = static_cast<size_t>(info.st_size);
      address_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    if (fd >= 0) ::close(fd);
  }
  ~MappedFile() {
    if (address_ != MAP_FAILED) ::munmap(address_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const {
    if (address_ == MAP_FAILED) return {};
    return {static_cast<const char*>(address_), size_};
  }

 private:
  void* address_ = MAP_FAILED;
  size_t size_ = 0;
};

std::string_view slice(std::string_view bytes, uint64_t offset, uint64_t size) {
  if (offset > bytes.size()) return {};
  return bytes.substr(offset, size);
}

template <typename T>
bool read_at(std::string_view bytes, uint64_t offset, T& out) {
  const std::string_view raw = slice(bytes, offset, sizeof(T));
  if (raw.size() < sizeof(T)) return false;
  std::memcpy(&out, raw.data(), sizeof(T));
  return true;
}

// Names are cut off here: the loader can open no longer path, and one without its end would reach
// to the end of the file.
constexpr size_t kLongestName = 4096;

std::string_view text_at(std::string_view bytes, uint64_t offset) {
  const std::string_view rest = slice(bytes, offset, kLongestName);
  return rest.substr(0, rest.find('\0'));
}

// Looks at no more than the name's bytes, whatever stands there.
bool is_text_at(std::string_view bytes, uint64_t offset, std::string_view name) {
  const std::string_view found = slice(bytes, offset, name.size() + 1);
  return found.size() == name.size() + 1 && found.starts_with(name) && found.back() == '\0';
}

// What tables and names may come to together: in a file that is no trick they lie side by side, and
// so take no more than the file. In a made-up one thousands may share the same bytes.
class Allowance {
 public:
  explicit Allowance(std::string_view file) : left_(file.size()) {}
  // As much of it as is left.
  std::string_view take(std::string_view part) {
    part = part.substr(0, left_);
    left_ -= part.size();
    return part;
  }

 private:
  size_t left_;
};

struct Elf32 {
  using Header = Elf32_Ehdr;
  using Segment = Elf32_Phdr;
  using Entry = Elf32_Dyn;
  using Section = Elf32_Shdr;
  using Symbol = Elf32_Sym;
};
struct Elf64 {
  using Header = Elf64_Ehdr;
  using Segment = Elf64_Phdr;
  using Entry = Elf64_Dyn;
  using Section = Elf64_Shdr;
  using Symbol = Elf64_Sym;
};

template <typename Segment>
uint64_t file_offset(const std::vector<Segment>& segments, uint64_t address) {
  for (const Segment& segment : segments) {
    if (segment.p_type != PT_LOAD || address < segment.p_vaddr) continue;
    if (address - segment.p_vaddr < segment.p_filesz) {
      return segment.p_offset + (address - segment.p_vaddr);
    }
  }
  return UINT64_MAX;
}

// The names' offsets are looked up at the end, once: each kind may stand there thousands of times.
template <typename Class>
void read_dynamic(std::string_view bytes, std::string_view dynamic,
                  const std::vector<typename Class::Segment>& segments, Elf& out) {
  using Entry = typename Class::Entry;
  uint64_t strings = UINT64_MAX, soname = UINT64_MAX, rpath = UINT64_MAX, runpath = UINT64_MAX;
  std::vector<uint64_t> needed;
  out.is_library = true;
  Entry entry;
  for (uint64_t at = 0; read_at(dynamic, at, entry) && entry.d_tag != DT_NULL; at += sizeof entry) {
    const uint64_t value = entry.d_un.d_val;
    if (entry.d_tag == DT_STRTAB) strings = value;
    if (entry.d_tag == DT_NEEDED) needed.push_back(value);
    if (entry.d_tag == DT_SONAME) soname = value;
    if (entry.d_tag == DT_RPATH) rpath = value;
    if (entry.d_tag == DT_RUNPATH) runpath = value;
    if (entry.d_tag == DT_AUDIT || entry.d_tag == DT_DEPAUDIT) out.asks_for_audit = true;
    if (entry.d_tag == DT_FLAGS_1 && (value & DF_1_PIE) != 0) out.is_library = false;
  }
  const std::string_view table = slice(bytes, file_offset(segments, strings), bytes.size());
  for (const auto& [offset, text] : {std::pair(soname, &out.soname), std::pair(rpath, &out.rpath),
                                     std::pair(runpath, &out.runpath)}) {
    if (offset != UINT64_MAX) *text = text_at(table, offset);
  }
  Allowance allowance(bytes);
  for (const uint64_t offset : needed) {
    const std::string_view name = text_at(table, offset);
    if (allowance.take(name).size() < name.size()) break;
    out.needed.emplace_back(name);
  }
}

template <typename Class>
void read_segments(std::string_view bytes, Elf& out) {
  typename Class::Header header;
  if (!read_at(bytes, 0, header)) return;
  std::vector<typename Class::Segment> segments;
  for (unsigned i = 0; i < header.e_phnum && !out.cut_short; ++i) {
    typename Class::Segment segment;
    out.cut_short = !read_at(bytes, header.e_phoff + uint64_t{i} * sizeof segment, segment);
    if (!out.cut_short) segments.push_back(segment);
  }
  std::string_view dynamic;
  for (const auto& segment : segments) {
    const std::string_view content = slice(bytes, segment.p_offset, segment.p_filesz);
    if (segment.p_type == PT_LOAD && content.size() < segment.p_filesz) out.cut_short = true;
    if (segment.p_type == PT_INTERP && out.interpreter.empty()) {
      out.interpreter = text_at(content, 0);
    }
    if (segment.p_type != PT_DYNAMIC) continue;
    out.has_dynamic = true;
    dynamic = content;  // the last one, as the loader does
  }
  if (out.has_dynamic) read_dynamic<Class>(bytes, dynamic, segments, out);
  const bool loader = out.soname.rfind("ld-linux", 0) == 0;  // a program, too: started by hand
  out.is_library = out.is_library && header.e_type == ET_DYN && out.interpreter.empty() && !loader;
}

// Calls visit() for each section, with its header and the offset of all headers, until it answers
// true.
template <typename Class, typename Visit>
bool any_section(std::string_view bytes, Visit visit) {
  typename Class::Header header;
  if (!read_at(bytes, 0, header)) return false;
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    typename Class::Section section;
    if (!read_at(bytes, header.e_shoff + uint64_t{i} * sizeof section, section)) return false;
    if (visit(section, header)) return true;
  }
  return false;
}

// Calls visit() for each function that a table of symbols defines, with the section of the names
// and the name's place there, until it answers true. The table's link is that section.
template <typename Class, typename Visit>
bool any_function(std::string_view bytes, const typename Class::Section& table, uint64_t sections,
                  Allowance& allowance, Visit visit) {
  typename Class::Section strings;
  if (!read_at(bytes, sections + uint64_t{table.sh_link} * sizeof strings, strings)) return false;
  const std::string_view names = slice(bytes, strings.sh_offset, strings.sh_size);
  const std::string_view symbols = allowance.take(slice(bytes, table.sh_offset, table.sh_size));
  typename Class::Symbol symbol;
  for (uint64_t at = 0; read_at(symbols, at, symbol); at += sizeof symbol) {
    const bool defined = symbol.st_shndx != SHN_UNDEF && (symbol.st_info & 0xf) == STT_FUNC;
    if (defined && visit(names, symbol.st_name)) return true;
  }
  return false;
}

template <typename Class>
bool defines_in_any(std::string_view bytes, std::string_view name) {
  Allowance allowance(bytes);
  return any_section<Class>(bytes, [&](const auto& section, const auto& header) {
    const bool table = section.sh_type == SHT_DYNSYM || section.sh_type == SHT_SYMTAB;
    return table && any_function<Class>(bytes, section, header.e_shoff, allowance,
                                        [&](std::string_view names, uint64_t at) {
                                          return is_text_at(names, at, name);
                                        });
  });
}

template <typename Class>
std::vector<std::string> exported(std::string_view bytes) {
  std::vector<std::string> names;
  Allowance tables(bytes), texts(bytes);
  any_section<Class>(bytes, [&](const auto& section, const auto& header) {
    return section.sh_type == SHT_DYNSYM &&
           any_function<Class>(bytes, section, header.e_shoff, tables,
                               [&](std::string_view strings, uint64_t at) {
                                 const std::string_view name = text_at(strings, at);
                                 if (texts.take(name).size() < name.size()) return true;
                                 names.emplace_back(name);
                                 return false;
                               });
  });
  return names;
}

template <typename Class>
std::string content_of(std::string_view bytes, const std::string& name) {
  std::string content;
  any_section<Class>(bytes, [&](const auto& section, const auto& header) {
    typename Class::Section names;
    const uint64_t at = header.e_shoff + uint64_t{header.e_shstrndx} * sizeof names;
    if (!read_at(bytes, at, names)) return true;
    if (!is_text_at(slice(bytes, names.sh_offset, names.sh_size), section.sh_name, name)) {
      return false;
    }
    content = slice(bytes, section.sh_offset, section.sh_size);
    return true;
  });
  return content;
}

template <typename Class>
std::vector<bool> find_in_segments(std::string_view bytes,
                                   const std::vector<std::string>& markers) {
  std::vector<bool> found(markers.size());
  typename Class::Header header;
  if (!read_at(bytes, 0, header)) return found;
  Allowance allowance(bytes);
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    typename Class::Segment segment;
    if (!read_at(bytes, header.e_phoff + uint64_t{i} * sizeof segment, segment)) break;
    if (segment.p_type != PT_LOAD) continue;
    const std::string_view content =
        allowance.take(slice(bytes, segment.p_offset, segment.p_filesz));
    if (content.empty()) continue;
    for (size_t m = 0; m < markers.size(); ++m) {
      found[m] = found[m] || ::memmem(content.data(), content.size(), markers[m].data(),
                                      markers[m].size()) != nullptr;
    }
  }
  return found;
}

std::string machine_name(uint16_t machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_AARCH64:
      return "aarch64";
    case EM_386:
      return "x86";
    case EM_ARM:
      return "arm";
    case EM_RISCV:
      return "riscv";
    case EM_PPC64:
      return "ppc64";
    default:
      return "machine " + std::to_string(machine);
  }
}

}  // namespace

Elf read_elf(const std::string& path) {
  const MappedFile file(path);
  const std::string_view bytes = file.bytes();
  Elf elf;
  if (bytes.size() < sizeof(Elf32_Ehdr) || bytes.substr(0, SELFMAG) != ELFMAG) return elf;
  elf.valid = true;
  elf.bits = bytes[EI_CLASS] == ELFCLASS64 ? 64 : 32;
  // e_machine has the same place in both classes.
  read_at(bytes, offsetof(Elf32_Ehdr, e_machine), elf.machine);
  const bool little = bytes[EI_DATA] == ELFDATA2LSB;
  if (little != (std::endian::native == std::endian::little)) {
    elf.machine = __builtin_bswap16(elf.machine);
    return elf;
  }
  if (elf.bits == 64) {
    read_segments<Elf64>(bytes, elf);
  } else {
    read_segments<Elf32>(bytes, elf);
  }
  return elf;
}

std::string describe(const Elf& elf) {
  return std::to_string(elf.bits) + "-bit " + machine_name(elf.machine);
}

bool defines_function(const std::string& path, const std::string& name) {
  const Elf elf = read_elf(path);
  const MappedFile file(path);
  if (!elf.valid) return false;
  return elf.bits == 64 ? defines_in_any<Elf64>(file.bytes(), name)
                        : defines_in_any<Elf32>(file.bytes(), name);
}

std::vector<std::string> exported_functions(const std::string& path) {
  const Elf elf = read_elf(path);
  const MappedFile file(path);
  if (!elf.valid) return {};
  return elf.bits == 64 ? exported<Elf64>(file.bytes()) : exported<Elf32>(file.bytes());
}

std::string section_of(const std::string& path, const std::string& name) {
  const Elf elf = read_elf(path);
  const MappedFile file(path);
  if (!elf.valid) return {};
  return elf.bits == 64 ? content_of<Elf64>(file.bytes(), name)
                        : content_of<Elf32>(file.bytes(), name);
}

std::vector<bool> find_markers(const std::string& path, const std::vector<std::string>& markers) {
  const Elf elf = read_elf(path);
  const MappedFile file(path);
  if (!elf.valid) return std::vector<bool>(markers.size());
  return elf.bits == 64 ? find_in_segments<Elf64>(file.bytes(), markers)
                        : find_in_segments<Elf32>(file.bytes(), markers);
}

}  // namespace cistern::config::tool
