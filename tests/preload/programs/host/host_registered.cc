// SPDX-License-Identifier: Apache-2.0
// Memory of malloc is the program's to register with the device, and no device memory until then.
// Blocks of malloc are asked about, registered beside each other and over each other, freed and
// taken again.

#include <cstdint>
#include <cstdlib>
#include <initializer_list>

#include "../driver_codes.h"

namespace {

constexpr size_t kPage = 4096;

void ask(const char* what, const void* address) {
  CUmemorytype type = {};
  const auto pointer = reinterpret_cast<CUdeviceptr>(address);
  const CUresult code = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer);
  std::printf("%s: %d, type %d\n", what, code, code == CUDA_SUCCESS ? static_cast<int>(type) : 0);
}

}  // namespace

int main() {
  use_device(0);
  for (const size_t bytes : {size_t{1000}, size_t{100'000}, size_t{5} << 20}) {
    char* block = static_cast<char*>(std::malloc(bytes));
    ask("of malloc", block);
    ask("its last byte", block + bytes - 1);
    SAY(cuMemHostRegister(block, bytes, 0));
    ask("registered", block);
    SAY(cuMemHostRegister(block + bytes / 2, bytes / 2, 0));
    SAY(cuMemHostUnregister(block));
    ask("no longer registered", block);
    std::free(block);
    block = static_cast<char*>(std::malloc(bytes));
    ask("of malloc again", block);
    std::free(block);
  }
  char* pages = static_cast<char*>(std::aligned_alloc(kPage, 4 * kPage));
  SAY(cuMemHostRegister(pages, kPage, 0));
  SAY(cuMemHostRegister(pages + kPage, kPage, 0));
  SAY(cuMemHostRegister(pages + 3 * kPage, 100, 0));
  SAY(cuMemHostRegister(pages + kPage, 2 * kPage, 0));
  for (const size_t page : {0, 1, 3}) SAY(cuMemHostUnregister(pages + page * kPage));
  std::free(pages);
  return 0;
}
