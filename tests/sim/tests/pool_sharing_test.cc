// SPDX-License-Identifier: Apache-2.0
// Memory pools that travel to another process.
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "pools.h"
#include "tests/catch.h"

namespace {

struct Message {
  CUmemPoolPtrExportData data;
  bool done;
};

// A message over a local socket, with a descriptor beside it.
void tell(int socket, const Message& message, int file) {
  iovec part{const_cast<Message*>(&message), sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof file)] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (file >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* beside = CMSG_FIRSTHDR(&header);
    beside->cmsg_level = SOL_SOCKET;
    beside->cmsg_type = SCM_RIGHTS;
    beside->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(beside), &file, sizeof file);
  }
  EXPECT(sendmsg(socket, &header, 0) == static_cast<ssize_t>(sizeof message));
}

Message hear(int socket, int* file) {
  Message message{};
  iovec part{&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof *file)] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  EXPECT(recvmsg(socket, &header, 0) == static_cast<ssize_t>(sizeof message));
  const cmsghdr* beside = CMSG_FIRSTHDR(&header);
  if (beside != nullptr) std::memcpy(file, CMSG_DATA(beside), sizeof *file);
  return message;
}

constexpr auto kByFile = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

void* as_handle(int file) { return reinterpret_cast<void*>(static_cast<intptr_t>(file)); }

void import_and_write(int socket) {
  int file = -1;
  Message from = hear(socket, &file);
  start();
  const size_t before = free_bytes();
  CUmemoryPool pool = nullptr;
  CUdeviceptr block = 0, again = 0;
  EXPECT_CODE(cuMemPoolImportFromShareableHandle(&pool, as_handle(socket), kByFile, 0),
              CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemPoolImportFromShareableHandle(&pool, as_handle(file), kByFile, 0));
  EXPECT_OK(cuMemPoolImportPointer(&block, pool, &from.data));
  EXPECT(word_at(block) == 7);
  EXPECT_OK(cuMemsetD32(block, 8, 1));
  EXPECT_OK(cuCtxSynchronize());
  expect_memory(pool, 3 * kMiB, 3 * kMiB);
  EXPECT(free_bytes() == before);  // the exporter's charge
  size_t bytes = 0;
  CUmemoryPool told_pool = nullptr;
  EXPECT_OK(cuMemGetAddressRange(nullptr, &bytes, block));
  EXPECT(bytes == 3 * kMiB);
  EXPECT_OK(cuPointerGetAttribute(&told_pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, block));
  EXPECT(told_pool == pool);
  // An imported pool makes nothing itself, and knows the pointers of its own pool only.
  EXPECT_CODE(cuMemAllocFromPoolAsync(&again, kUnit, pool, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CODE(cuDeviceSetMemPool(0, pool), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CODE(cuMemPoolExportToShareableHandle(&file, pool, kByFile, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_OK(cuMemPoolTrimTo(pool, 0));
  CUmemPoolPtrExportData altered = from.data;
  altered.reserved[8] ^= 1;
  EXPECT_CODE(cuMemPoolImportPointer(&again, pool, &altered), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CODE(cuMemPoolImportPointer(&again, default_pool(), &from.data), CUDA_ERROR_INVALID_VALUE);
  // Imported twice, freed in stream order and at once.
  EXPECT_OK(cuMemPoolImportPointer(&again, pool, &from.data));
  EXPECT(again != block && word_at(again) == 8);
  EXPECT_OK(cuMemFreeAsync(again, nullptr));
  EXPECT_OK(cuCtxSynchronize());
  EXPECT_OK(cuMemFree(block));
  expect_memory(pool, 0, 0);
  EXPECT_OK(cuMemPoolDestroy(pool));
  tell(socket, {}, -1);
}

}  // namespace

TEST_CASE("a pool travels as a file descriptor, and its allocations as data") {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  const timeval patience{20, 0};  // a side that failed says nothing
  for (const int end : ends) {
    REQUIRE(setsockopt(end, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
  }
  const pid_t importer = fork();
  if (importer == 0) {
    _exit(in_child({{"SIMCUDA_RACES", "abort"}}, [&] { import_and_write(ends[1]); }) ? 0 : 1);
  }
  CHECK(in_child({}, [&] {
    start();
    const CUmemoryPool pool = new_pool(kByFile), unshared = new_pool();
    int file = -1;
    CUdeviceptr plain = 0, block = 0;
    Message message{};
    EXPECT_CODE(cuMemPoolExportToShareableHandle(&file, unshared, kByFile, 0),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(cuMemPoolExportToShareableHandle(&file, pool, kByFile, 1),
                CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemPoolExportToShareableHandle(&file, pool, kByFile, 0));
    EXPECT_OK(cuMemAllocFromPoolAsync(&plain, kUnit, unshared, nullptr));
    EXPECT_CODE(cuMemPoolExportPointer(&message.data, plain), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemAllocFromPoolAsync(&block, 3 * kMiB, pool, nullptr));
    EXPECT_CODE(cuMemPoolExportPointer(&message.data, block + 512), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemsetD32(block, 7, 1));
    EXPECT_OK(cuCtxSynchronize());  // for the other process, which knows nothing of this one's work
    EXPECT_OK(cuMemPoolExportPointer(&message.data, block));
    tell(ends[0], message, file);
    hear(ends[0], &file);
    EXPECT(word_at(block) == 8);
    // Pools made to be shared give nothing back.
    EXPECT_OK(cuMemFreeAsync(block, nullptr));
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuMemPoolTrimTo(pool, 0));
    expect_memory(pool, 2 * kUnit, 0);
  }));
  int status = 0;
  CHECK((waitpid(importer, &status, 0) == importer && status == 0));
}
