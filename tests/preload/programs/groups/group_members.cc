// SPDX-License-Identifier: Apache-2.0
// Members of groups during a capture, in a forked child, on two devices and for other processes.
// What the driver says of each holds whether it is one of a group or not.
//
//   captured   three blocks during a capture, three after it
//   forked     a child while a group is open
//   devices    three blocks on each of two devices, in turn
//   exported   IPC handles, and a member that the network may write to

#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "../driver_codes.h"

namespace {

constexpr size_t kBytes = 3 * kMiB;
constexpr int kMembers = 3;

[[gnu::noinline]] CUdeviceptr get() {
  CUdeviceptr block = 0;
  const CUresult code = cuMemAlloc(&block, kBytes);
  if (code != CUDA_SUCCESS) std::printf("no memory: %d\n", code);
  return block;
}

[[gnu::noinline]] void get_members(CUdeviceptr* members) {
#pragma GCC unroll 1  // one call site
  for (int i = 0; i < kMembers; ++i) members[i] = get();
}

// Each holds what was written into it, whatever was written into the others.
void use_and_free(const CUdeviceptr* members) {
  for (unsigned i = 0; i < kMembers; ++i) SAY(cuMemsetD32(members[i], i, kBytes / 4));
  for (int i = 0; i < kMembers; ++i) {
    unsigned first = 99, last = 99;
    SAY(cuMemcpyDtoH(&first, members[i], 4));
    SAY(cuMemcpyDtoH(&last, members[i] + kBytes - 4, 4));
    CUdeviceptr base = 0;
    size_t bytes = 0;
    SAY(cuMemGetAddressRange(&base, &bytes, members[i] + kBytes - 1));
    std::printf("%u to %u in %zu bytes, %d\n", first, last, bytes, base == members[i]);
    SAY(cuMemFree(members[i]));
  }
}

void captured() {
  CUdeviceptr members[kMembers];
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  SAY(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  SAY(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  get_members(members);
  SAY(cuStreamEndCapture(stream, &graph));
  SAY(cuGraphDestroy(graph));
  SAY(cuStreamDestroy(stream));
  use_and_free(members);
  get_members(members);
  use_and_free(members);
}

int child_while_open(CUdeviceptr inherited) {
  const pid_t child = fork();
  if (child == 0) {
    CUdeviceptr block = 0;
    const bool refused = cuMemAlloc(&block, kBytes) == CUDA_ERROR_NOT_INITIALIZED &&
                         cuMemFree(inherited) == CUDA_ERROR_NOT_INITIALIZED;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

void forked() {
  CUdeviceptr members[kMembers];
  for (int i = 0; i < kMembers; ++i) {
    members[i] = get();
    std::printf("child %d\n", child_while_open(members[i]));
  }
  use_and_free(members);
}

void devices() {
  CUcontext contexts[2] = {use_device(0), use_device(1)};
  CUdeviceptr members[2][kMembers];
  for (int i = 0; i < kMembers; ++i) {
    for (int device = 0; device < 2; ++device) {
      SAY(cuCtxSetCurrent(contexts[device]));
      members[device][i] = get();
    }
  }
  for (int device = 0; device < 2; ++device) {
    SAY(cuCtxSetCurrent(contexts[device]));
    use_and_free(members[device]);
  }
}

void exported() {
  CUdeviceptr members[kMembers];
  get_members(members);
  CUipcMemHandle handle;
  for (const CUdeviceptr member : members)
    std::printf("handle %d\n", cuIpcGetMemHandle(&handle, member));
  const unsigned on = 1;
  SAY(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, members[1]));
  use_and_free(members);
  get_members(members);
  use_and_free(members);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 1;
  use_device(0);
  if (strcmp(argv[1], "captured") == 0) captured();
  if (strcmp(argv[1], "forked") == 0) forked();
  if (strcmp(argv[1], "devices") == 0) devices();
  if (strcmp(argv[1], "exported") == 0) exported();
}
