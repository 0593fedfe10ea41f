// SPDX-License-Identifier: Apache-2.0
// Whoever takes the address of an importer that ended is given nothing.
//
// One block for other processes. What happens between an importer's question and its answer,
// life/taken_test.py decides.
//
//   ipc_taken own BYTES     prints the block's handle, and holds the block until stdin ends
//   ipc_taken open HANDLE   opens it, and reads it
#include <string>

#include "processes.h"

namespace {

constexpr unsigned kHeld = 77;

int own(size_t bytes) {
  CUdeviceptr block = 0;
  CUipcMemHandle handle{};
  SAY(cuMemAlloc(&block, bytes));
  SAY(cuMemsetD32(block, kHeld, bytes / 4));
  SAY(cuCtxSynchronize());
  SAY(cuIpcGetMemHandle(&handle, block));
  for (const char byte : handle.reserved) std::printf("%02x", static_cast<unsigned char>(byte));
  std::printf("\n");
  std::fflush(stdout);
  char byte;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  SAY(cuMemFree(block));
  return 0;
}

int open(const std::string& digits) {
  CUipcMemHandle handle{};
  for (size_t i = 0; i < sizeof handle && 2 * i + 1 < digits.size(); ++i) {
    handle.reserved[i] = static_cast<char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  }
  CUdeviceptr block = 0;
  unsigned holds = 0;
  SAY(cuIpcOpenMemHandle(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  SAY(cuMemcpyDtoH(&holds, block, sizeof holds));
  std::printf("holds %u\n", holds);
  SAY(cuIpcCloseMemHandle(block));
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (count != 3) return 2;
  use_device(0);
  return std::strcmp(words[1], "own") == 0 ? own(std::strtoul(words[2], nullptr, 10))
                                           : open(words[2]);
}
