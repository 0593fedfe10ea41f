// SPDX-License-Identifier: Apache-2.0
//
// Variables of modules: found in the image, placed in memory of the device, gone with the module.
#include <elf.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>

#include "simcuda/globals.h"
#include "support.h"
#include "tests/catch.h"

namespace {

constexpr const char* kPtx = R"(//
// A comment with a .global .b8 commented[4];
.version 8.0
.target sm_75
.address_size 64
.visible .global .align 4 .u32 words[4] = {1, 2, 3, 0x10};
.visible .const .align 1 .b8 text[5] = {104, 105};
.global .align 8 .f64 half = 0d3FE0000000000000;
.global .align 4 .s32 minus = -2;
.visible .global .align 16 .v4 .f32 vectors[2];
.visible .global .align 4 .u32 grid[2][3] = {{1, 2, 3}, {4, 5, 6}};
.extern .global .align 4 .u32 elsewhere;
.visible .global .attribute(.managed) .align 4 .u32 managed;
.visible .func (.param .b32 ret) work(.param .b32 in) {
  .reg .b32 %r<3>;
  .shared .align 4 .b8 inside[16];
  ret;
}
.visible .global .align 2 .u16 after_a_function;
)";

CUmodule load(const void* image) {
  CUmodule module = nullptr;
  EXPECT_OK(cuModuleLoadData(&module, image));
  return module;
}

struct Found {
  CUdeviceptr address = 0;
  size_t bytes = 0;
};

Found find(CUmodule module, const char* name) {
  Found found;
  EXPECT_OK(cuModuleGetGlobal(&found.address, &found.bytes, module, name));
  return found;
}

template <class T>
T value_at(CUdeviceptr address) {
  T value{};
  EXPECT_OK(cuMemcpyDtoH(&value, address, sizeof value));
  return value;
}

size_t used_bytes() {
  size_t free = 0, total = 0;
  EXPECT_OK(cuMemGetInfo(&free, &total));
  return total - free;
}

// A cubin with one variable of 8 bytes, of which `.nv.global.init` gives the value 7.
struct Cubin {
  Elf64_Ehdr header{};
  char names[64] = "\0.shstrtab\0.nv.global.init\0.symtab\0counter";
  uint64_t value = 7;
  Elf64_Sym symbols[2]{};
  Elf64_Shdr sections[4]{};  // none, names, values, symbols

  Cubin() {
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_shoff = offsetof(Cubin, sections);
    header.e_shnum = 4;
    header.e_shstrndx = 1;
    sections[1].sh_type = SHT_STRTAB;
    sections[1].sh_name = 1;
    sections[1].sh_offset = offsetof(Cubin, names);
    sections[1].sh_size = sizeof names;
    sections[2].sh_type = SHT_PROGBITS;
    sections[2].sh_name = 11;
    sections[2].sh_offset = offsetof(Cubin, value);
    sections[2].sh_size = sizeof value;
    sections[3].sh_type = SHT_SYMTAB;
    sections[3].sh_name = 27;
    sections[3].sh_offset = offsetof(Cubin, symbols);
    sections[3].sh_size = sizeof symbols;
    sections[3].sh_link = 1;
    symbols[1].st_name = 35;
    symbols[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
    symbols[1].st_shndx = 2;
    symbols[1].st_size = sizeof value;
  }
};

// A fatbinary with one entry, of which only so many bytes are there.
std::string fatbinary_of(const Cubin& cubin, size_t bytes) {
  struct {
    uint32_t magic = 0xba55ed50;
    uint16_t version = 1, header_bytes = 16;
    uint64_t bytes = 0;
    uint16_t kind = 2, entry_version = 1;
    uint32_t entry_header_bytes = 64;
    uint64_t entry_bytes = 0;
    char rest[48] = {};
  } header;
  header.entry_bytes = bytes;
  header.bytes = 64 + bytes;
  std::string image(reinterpret_cast<const char*>(&header), sizeof header);
  return image.append(reinterpret_cast<const char*>(&cubin), bytes);
}

}  // namespace

TEST_CASE("variables of PTX have the sizes and values that it declares") {
  REQUIRE(in_child({}, [] {
    start();
    const CUmodule module = load(kPtx);
    const Found words = find(module, "words");
    EXPECT(words.bytes == 16);
    EXPECT(value_at<uint32_t>(words.address) == 1);
    EXPECT(value_at<uint32_t>(words.address + 12) == 16);
    const Found text = find(module, "text");
    EXPECT(text.bytes == 5);
    EXPECT(value_at<char>(text.address + 1) == 'i');
    EXPECT(value_at<char>(text.address + 2) == 0);
    EXPECT(value_at<double>(find(module, "half").address) == 0.5);
    EXPECT(value_at<int32_t>(find(module, "minus").address) == -2);
    EXPECT(find(module, "vectors").bytes == 32);
    const Found grid = find(module, "grid");
    EXPECT(grid.bytes == 24);
    EXPECT(value_at<uint32_t>(grid.address + 20) == 6);
    EXPECT(find(module, "after_a_function").bytes == 2);
    for (const char* none : {"commented", "elsewhere", "managed", "inside", "work", "", "ret"}) {
      CUdeviceptr address = 0;
      EXPECT_CODE(cuModuleGetGlobal(&address, nullptr, module, none), CUDA_ERROR_NOT_FOUND);
    }
    EXPECT(find(module, "words").address == words.address);
  }));
}

TEST_CASE("a variable's memory goes with its module and is freed by no call") {
  REQUIRE(in_child({}, [] {
    start();
    const size_t before = used_bytes();
    const CUmodule module = load(".version 8.0\n.global .align 4 .b8 large[3000000];");
    EXPECT(used_bytes() == before + (4u << 20));
    const Found large = find(module, "large");
    EXPECT_CODE(cuMemFree(large.address), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemFreeAsync(large.address, nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemsetD8(large.address, 1, large.bytes));
    EXPECT(value_at<char>(large.address + 2999999) == 1);
    EXPECT_OK(cuModuleUnload(module));
    EXPECT(used_bytes() == before);
  }));
}

TEST_CASE("a variable of a module that is never unloaded is no leak") {
  const TemporaryFile findings;
  REQUIRE(in_child({{"SIMCUDA_LEAKS", "report"}, {"SIMCUDA_RACES_FILE", findings.path()}}, [] {
    const pid_t child = fork();
    if (child == 0) {
      start();
      CUdeviceptr block = 0;
      EXPECT_OK(cuMemAlloc(&block, 4096));
      find(load(kPtx), "words");
      std::exit(0);  // not _exit: leaks are told by a destructor
    }
    waitpid(child, nullptr, 0);
  }));
  const auto lines = findings.lines();
  REQUIRE(lines.size() == 1);  // the block, which shows that they are looked for
}

TEST_CASE("a module whose variables the device has no room for is not loaded") {
  REQUIRE(in_child({{"SIMCUDA_MEMORY_MB", "64"}}, [] {
    start();
    CUmodule module = nullptr;
    EXPECT_CODE(cuModuleLoadData(&module, ".version 8.0\n.global .b8 large[100000000];"),
                CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(module == nullptr);
    EXPECT(used_bytes() == 0);
  }));
}

TEST_CASE("a library has its variables once in each context") {
  REQUIRE(in_child({{"SIMCUDA_DEVICES", "2"}}, [] {
    const CUcontext first = start(0);
    CUlibrary library = nullptr;
    EXPECT_OK(cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUdeviceptr here = 0, there = 0, again = 0;
    size_t bytes = 0;
    EXPECT_OK(cuLibraryGetGlobal(&here, &bytes, library, "words"));
    start(1);
    EXPECT_OK(cuLibraryGetGlobal(&there, &bytes, library, "words"));
    EXPECT(here != there);
    EXPECT(value_at<uint32_t>(there + 4) == 2);
    EXPECT_OK(cuCtxSetCurrent(first));
    EXPECT_OK(cuLibraryGetGlobal(&again, nullptr, library, "words"));
    EXPECT(again == here);
    EXPECT_CODE(cuLibraryGetGlobal(&again, nullptr, library, "none"), CUDA_ERROR_NOT_FOUND);
    EXPECT_CODE(cuLibraryGetGlobal(nullptr, nullptr, library, "words"), CUDA_ERROR_INVALID_VALUE);
    simcuda_add_global(library, "told", 12);
    simcuda_add_global(library, "words", 99);
    EXPECT_OK(cuLibraryGetGlobal(&again, &bytes, library, "told"));
    EXPECT(bytes == 12);
    EXPECT(value_at<uint32_t>(again) == 0);
    EXPECT_OK(cuLibraryGetGlobal(&again, &bytes, library, "words"));
    EXPECT(bytes == 16);
    EXPECT_OK(cuLibraryUnload(library));
    EXPECT(used_bytes() == 0);
  }));
}

TEST_CASE("a cubin's variables are found, alone and in a fatbinary") {
  REQUIRE(in_child({}, [] {
    start();
    const Cubin cubin;
    EXPECT(value_at<uint64_t>(find(load(&cubin), "counter").address) == 7);
    const std::string image = fatbinary_of(cubin, sizeof cubin);
    EXPECT(value_at<uint64_t>(find(load(image.data()), "counter").address) == 7);
    struct {
      uint32_t magic = 0x466243b1, version = 1;
      const void* data;
    } wrapper{.data = image.data()};
    EXPECT(value_at<uint64_t>(find(load(&wrapper), "counter").address) == 7);
  }));
}

TEST_CASE("a cubin that is cut short or has wrong offsets declares nothing beyond its end") {
  REQUIRE(in_child({}, [] {
    start();
    for (size_t bytes = 0; bytes < sizeof(Cubin); ++bytes) {
      EXPECT_OK(cuModuleUnload(load(fatbinary_of({}, bytes).data())));
    }
    for (uint64_t wrong : {uint64_t{1} << 20, ~uint64_t{0}, ~uint64_t{0} - 100}) {
      for (int which = 0; which < 5; ++which) {
        Cubin cubin;
        uint64_t* const places[] = {&cubin.header.e_shoff, &cubin.sections[1].sh_offset,
                                    &cubin.sections[2].sh_offset, &cubin.sections[3].sh_size,
                                    &cubin.symbols[1].st_value};
        *places[which] = wrong;
        EXPECT_OK(cuModuleUnload(load(fatbinary_of(cubin, sizeof cubin).data())));
      }
    }
  }));
}
