// SPDX-License-Identifier: Apache-2.0
#include "exec/image.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <optional>

namespace simcuda {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1;
constexpr uint32_t kFatbinaryMagic = 0xba55ed50;

struct Wrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;
};

struct FatbinaryHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t header_bytes;
  uint64_t bytes;  // after the header
};

// What is known of an entry's header; it is longer.
struct FatbinaryEntry {
  uint16_t kind;  // 1: PTX, 2: cubin
  uint16_t version;
  uint32_t header_bytes;
  uint64_t bytes;             // after the header
  uint32_t compressed_bytes;  // 0: as it is
};

// A plain value at a place of the image; none beyond its end.
template <class T>
std::optional<T> at(std::string_view image, uint64_t offset) {
  if (offset > image.size() || image.size() - offset < sizeof(T)) return {};
  T value;
  std::memcpy(&value, image.data() + offset, sizeof value);
  return value;
}

std::string_view part(std::string_view image, uint64_t offset, uint64_t bytes) {
  if (offset > image.size() || image.size() - offset < bytes) return {};
  return image.substr(offset, bytes);
}

// A name from a table of strings; empty where there is none.
std::string_view name_at(std::string_view strings, uint64_t offset) {
  if (offset >= strings.size()) return {};
  const std::string_view rest = strings.substr(offset);
  return rest.substr(0, rest.find('\0'));
}

class Cubin {
 public:
  explicit Cubin(std::string_view image) : image_(image) {
    const auto header = at<Elf64_Ehdr>(image, 0);
    if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return;
    for (unsigned i = 0; i < header->e_shnum; ++i) {
      const auto section = at<Elf64_Shdr>(image, header->e_shoff + i * sizeof(Elf64_Shdr));
      if (!section) return;
      sections_.push_back(*section);
    }
    if (header->e_shstrndx < sections_.size()) names_ = content(sections_[header->e_shstrndx]);
  }

  std::vector<Variable> variables() const {
    std::vector<Variable> all;
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections_.size()) continue;
      const std::string_view names = content(sections_[section.sh_link]);
      for (uint64_t i = 0; i < section.sh_size / sizeof(Elf64_Sym); ++i) {
        const auto symbol = at<Elf64_Sym>(image_, section.sh_offset + i * sizeof(Elf64_Sym));
        if (!symbol) break;
        if (is_variable(*symbol)) all.push_back(describe(*symbol, names));
      }
    }
    return all;
  }

 private:
  std::string_view content(const Elf64_Shdr& section) const {
    if (section.sh_type == SHT_NOBITS) return {};
    return part(image_, section.sh_offset, section.sh_size);
  }

  bool is_variable(const Elf64_Sym& symbol) const {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx >= sections_.size()) {
      return false;
    }
    const std::string_view section = name_at(names_, sections_[symbol.st_shndx].sh_name);
    return symbol.st_size != 0 &&
           (section.starts_with(".nv.global") || section.starts_with(".nv.constant3"));
  }

  Variable describe(const Elf64_Sym& symbol, std::string_view names) const {
    const std::string_view bytes = content(sections_[symbol.st_shndx]);
    return {.name = std::string(name_at(names, symbol.st_name)),
            .bytes = symbol.st_size,
            .initial = std::string(part(bytes, symbol.st_value, symbol.st_size))};
  }

  std::string_view image_;
  std::vector<Elf64_Shdr> sections_;
  std::string_view names_;
};

std::vector<Variable> variables_of_fatbinary(const char* image) {
  FatbinaryHeader header;
  std::memcpy(&header, image, sizeof header);
  const std::string_view entries(image + header.header_bytes, header.bytes);
  std::vector<Variable> all;
  for (uint64_t offset = 0; all.empty();) {
    const auto entry = at<FatbinaryEntry>(entries, offset);
    if (!entry || entry->header_bytes < sizeof *entry) break;
    const std::string_view body = part(entries, offset + entry->header_bytes, entry->bytes);
    if (entry->compressed_bytes == 0 && !body.empty()) {
      all = entry->kind == 2 ? variables_of_cubin(body) : variables_of_ptx(body);
    }
    offset += entry->header_bytes + entry->bytes;
  }
  return all;
}

// The size of a cubin that is only known by where it begins: the table of sections ends it.
uint64_t cubin_bytes(const char* image) {
  Elf64_Ehdr header;
  std::memcpy(&header, image, sizeof header);
  uint64_t end = header.e_shoff + uint64_t{header.e_shnum} * sizeof(Elf64_Shdr);
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, image + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS) end = std::max(end, section.sh_offset + section.sh_size);
  }
  return end;
}

bool looks_like_ptx(const char* image) {
  while (*image == ' ' || *image == '\t' || *image == '\n' || *image == '\r') ++image;
  return std::strncmp(image, "//", 2) == 0 || std::strncmp(image, ".version", 8) == 0;
}

}  // namespace

std::vector<Variable> variables_of_cubin(std::string_view elf) { return Cubin(elf).variables(); }

std::vector<Variable> variables_of_image(const void* image) {
  const auto* bytes = static_cast<const char*>(image);
  if (looks_like_ptx(bytes)) return variables_of_ptx(bytes);
  // Byte by byte: what is no image at all may be shorter than a number.
  if (std::strncmp(bytes, ELFMAG, SELFMAG) == 0) {
    return variables_of_cubin({bytes, cubin_bytes(bytes)});
  }
  const auto begins = [bytes](uint32_t magic) {
    char wanted[sizeof magic];
    std::memcpy(wanted, &magic, sizeof magic);
    return std::strncmp(bytes, wanted, sizeof wanted) == 0;
  };
  if (begins(kWrapperMagic)) {
    return variables_of_image(reinterpret_cast<const Wrapper*>(bytes)->data);
  }
  return begins(kFatbinaryMagic) ? variables_of_fatbinary(bytes) : std::vector<Variable>{};
}

}  // namespace simcuda
