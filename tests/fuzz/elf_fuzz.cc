// SPDX-License-Identifier: Apache-2.0
// ELF files with damage, and some whose thousands of tables share the same bytes: whatever the file
// is, its reader stays inside it, and what it gives is no larger than the file.
//
// elf_fuzz [SEED [NUMBER]]
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "config/tool/tool.h"

namespace {

using namespace cistern::config::tool;
using Random = std::mt19937_64;

[[noreturn]] void broken(const char* what) {
  std::fprintf(stderr, "elf_fuzz: %s\n", what);
  std::abort();
}

template <typename T>
uint64_t append(std::string& file, const T& value) {
  const uint64_t at = file.size();
  file.append(reinterpret_cast<const char*>(&value), sizeof value);
  return at;
}

// How often each kind of table stands in a file. All of one kind have the same bytes.
struct Counts {
  unsigned segments, needed, tables, symbols;
};

template <typename Segment, typename Address>
Segment segment(uint32_t type, Address offset, Address bytes) {
  Segment segment{};
  segment.p_type = type;
  segment.p_offset = segment.p_vaddr = offset;
  segment.p_filesz = segment.p_memsz = bytes;
  return segment;
}

template <typename Header, typename Segment, typename Entry, typename Symbol, typename Section>
std::string made_up(unsigned char bits, const Counts& counts) {
  using Address = decltype(Header::e_phoff);
  std::string file(sizeof(Header), '\0');
  const Address texts = static_cast<Address>(file.size());
  file += std::string("\0libcuda.so.1\0lib\0malloc\0.names\0/lib/ld-linux.so\0", 50);
  const Address text_bytes = static_cast<Address>(file.size()) - texts;
  const Address symbols = static_cast<Address>(file.size());
  for (unsigned i = 0; i < counts.symbols; ++i) {
    Symbol symbol{};
    symbol.st_name = 18;  // malloc
    symbol.st_info = STT_FUNC;
    symbol.st_shndx = 1;
    append(file, symbol);
  }
  const Address symbol_bytes = static_cast<Address>(file.size()) - symbols;
  const Address dynamic = static_cast<Address>(file.size());
  const auto entry = [&](auto tag, uint64_t value) {
    Entry written{};
    written.d_tag = tag;
    written.d_un.d_val = static_cast<Address>(value);
    append(file, written);
  };
  entry(DT_STRTAB, texts);
  entry(DT_SONAME, 14);
  for (unsigned i = 0; i < counts.needed; ++i) entry(DT_NEEDED, 1);
  entry(DT_NULL, 0);
  const Address dynamic_bytes = static_cast<Address>(file.size()) - dynamic;
  Header header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = bits;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_type = ET_DYN;
  header.e_machine = EM_X86_64;
  header.e_phoff = static_cast<Address>(file.size());
  header.e_phnum = static_cast<uint16_t>(3 * counts.segments);
  for (unsigned i = 0; i < counts.segments; ++i) {
    append(file, segment<Segment, Address>(PT_LOAD, 0, header.e_phoff));
    append(file, segment<Segment, Address>(PT_DYNAMIC, dynamic, dynamic_bytes));
    append(file, segment<Segment, Address>(PT_INTERP, texts + 32, 17));
  }
  header.e_shoff = static_cast<Address>(file.size());
  header.e_shnum = static_cast<uint16_t>(counts.tables + 1);
  Section names{};
  names.sh_name = 25;
  names.sh_type = SHT_STRTAB;
  names.sh_offset = texts;
  names.sh_size = text_bytes;
  append(file, names);
  Section table{};
  table.sh_type = SHT_DYNSYM;
  table.sh_offset = symbols;
  table.sh_size = symbol_bytes;
  for (unsigned i = 0; i < counts.tables; ++i) append(file, table);
  std::memcpy(file.data(), &header, sizeof header);
  return file;
}

std::string made_up_of(bool wide, const Counts& counts) {
  return wide
             ? made_up<Elf64_Ehdr, Elf64_Phdr, Elf64_Dyn, Elf64_Sym, Elf64_Shdr>(ELFCLASS64, counts)
             : made_up<Elf32_Ehdr, Elf32_Phdr, Elf32_Dyn, Elf32_Sym, Elf32_Shdr>(ELFCLASS32,
                                                                                 counts);
}

uint64_t bytes_of(const std::vector<std::string>& texts) {
  uint64_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  return bytes;
}

// Whether it is ELF and its symbols could be read.
bool check(const std::string& path, const std::string& file) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << file;
  const Elf elf = read_elf(path);
  const std::vector<std::string> functions = exported_functions(path);
  const bool defines = defines_function(path, "malloc");
  if (bytes_of(elf.needed) > file.size()) broken("names larger than the file");
  if (elf.interpreter.size() > file.size() || elf.soname.size() > file.size())
    broken("a long name");
  if (bytes_of(functions) > file.size()) broken("functions larger than the file");
  if (section_of(path, ".names").size() > file.size()) broken("a section larger than the file");
  if (find_markers(path, {"libcuda.so", "nowhere"}).size() != 2) broken("not all markers");
  if (!elf.valid && (defines || !functions.empty())) broken("symbols of no ELF file");
  return elf.valid && defines;
}

void damage(std::string& file, Random& random) {
  for (uint64_t n = random() % 6; n > 0; --n) {
    const uint64_t value = random() % 3 == 0 ? ~uint64_t{0} >> random() % 64 : random();
    const size_t bytes = size_t{1} << random() % 4;
    if (file.size() < bytes) return;
    std::memcpy(file.data() + random() % (file.size() - bytes + 1), &value, bytes);
  }
  if (random() % 20 == 0) file.resize(random() % file.size());
}

// Each would take from minutes to hours if tables were followed as often as they are named.
void check_the_largest(const std::string& path) {
  for (const bool wide : {true, false}) {
    for (const Counts& counts : {Counts{1, 60'000, 1, 1}, Counts{20'000, 20'000, 1, 1},
                                 Counts{1, 1, 60'000, 60'000}, Counts{20'000, 1, 60'000, 20'000}}) {
      std::string file = made_up_of(wide, counts);
      if (!check(path, file)) broken("a file without damage is not read");
      const size_t texts = wide ? sizeof(Elf64_Ehdr) : sizeof(Elf32_Ehdr);
      std::memset(file.data() + texts, 'x', 50);
      check(path, file);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 1;
  const uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 20'000;
  // In memory: a file system may write a file out each time that it is truncated and closed.
  const int fd = ::memfd_create("elf-fuzz", 0);
  if (fd < 0) broken("no temporary file");
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  Random random(seed);
  uint64_t read = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const auto some = [&] { return static_cast<unsigned>(1 + random() % 8); };
    std::string file = made_up_of(random() % 2 == 0, {some(), some(), some(), some()});
    damage(file, random);
    read += check(path, file);
  }
  if (count > 100 && (read == 0 || read == count)) broken("the damage is of one kind only");
  check_the_largest(path);
  ::close(fd);
  std::printf("elf_fuzz: %llu inputs from seed %llu, %llu of them read\n",
              static_cast<unsigned long long>(count), static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(read));
  return 0;
}
