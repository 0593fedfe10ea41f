// SPDX-License-Identifier: Apache-2.0
// Blocks of every size are opened by another process, which sees their contents and sizes.
// Each is written there and read here; neighbours stay as they were. The importer opens some twice,
// closes them in another order, asks about addresses inside, forgets the flag that must be given
// and, with the argument "off", runs without pools.

#include <vector>

#include "processes.h"

namespace {

constexpr size_t kSizes[] = {1,        512,      100'000, kMiB - 1,  kMiB, 3 * kMiB / 2,
                             3 * kMiB, 5 * kMiB, 700,     256 * 1024};

struct Order {
  CUipcMemHandle handle;
  size_t bytes;
  unsigned char holds;
};

struct Seen {
  int refused, code, refused_again, again, range, inside, size_told, start_told, closed,
      closed_again;
  int range_without, closed_without;  // a context
  size_t size, size_inside, attribute;
  unsigned char first, last;
};

Seen look_into(const Order& order) {
  Seen seen{};
  CUdeviceptr block = 0, second = 0, base = 0;
  seen.refused = cuIpcOpenMemHandle(&block, order.handle, 0);
  seen.code = cuIpcOpenMemHandle(&block, order.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (seen.code != CUDA_SUCCESS) return seen;
  cuMemcpyDtoH(&seen.first, block, 1);
  cuMemcpyDtoH(&seen.last, block + order.bytes - 1, 1);
  seen.range = cuMemGetAddressRange(&base, &seen.size, block);
  seen.start_told = base == block;
  seen.inside = cuMemGetAddressRange(&base, &seen.size_inside, block + order.bytes - 1);
  seen.start_told += base == block;
  seen.size_told = cuPointerGetAttribute(&seen.attribute, CU_POINTER_ATTRIBUTE_RANGE_SIZE, block);
  seen.refused_again = cuIpcOpenMemHandle(&second, order.handle, 0);
  seen.again = cuIpcOpenMemHandle(&second, order.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  cuMemsetD8(second, static_cast<unsigned char>(order.holds + 1), order.bytes);
  cuCtxSynchronize();
  CUcontext context = nullptr;
  cuCtxPopCurrent(&context);
  seen.range_without = cuMemGetAddressRange(&base, nullptr, second);
  seen.closed_without = cuIpcCloseMemHandle(second);
  cuCtxPushCurrent(context);
  seen.closed = cuIpcCloseMemHandle(second);
  cuMemcpyDtoH(&seen.last, block + order.bytes - 1, 1);
  seen.closed_again = cuIpcCloseMemHandle(block);
  return seen;
}

int import(const Peer& owner) {
  use_device(0);
  Order order;
  while (owner.hear(&order)) owner.tell(look_into(order));
  return 0;
}

unsigned char only_byte(CUdeviceptr block, size_t bytes) {
  std::vector<unsigned char> all(bytes);
  cuMemcpyDtoH(all.data(), block, bytes);
  for (const unsigned char byte : all) {
    if (byte != all[0]) return 255;
  }
  return all[0];
}

void say(const Order& order, const Seen& seen) {
  std::printf("%zu bytes: codes %d %d %d %d %d, sizes %zu %zu %zu, starts %d, holds %d %d\n",
              order.bytes, seen.code, seen.again, seen.range, seen.inside, seen.size_told,
              seen.size, seen.size_inside, seen.attribute, seen.start_told, seen.first, seen.last);
  std::printf("without the flag: %d, once open: %d\n", seen.refused, seen.refused_again);
  std::printf("without a context: range %d, closed %d; with it: closed %d %d\n", seen.range_without,
              seen.closed_without, seen.closed, seen.closed_again);
}

void no_pools() { setenv("CISTERN_POOL", "off", 1); }

}  // namespace

int main(int count, char** words) {
  if (started_as(count, words, "import")) return import(owner_of(words));
  const bool off = count > 1 && std::strcmp(words[1], "off") == 0;
  const Peer importer(words[0], "import", off ? no_pools : nullptr);
  use_device(0);
  std::vector<CUdeviceptr> blocks;
  unsigned char value = 10;
  for (const size_t bytes : kSizes) {
    CUdeviceptr block = 0;
    SAY(cuMemAlloc(&block, bytes));
    SAY(cuMemsetD8(block, value++, bytes));
    blocks.push_back(block);
  }
  SAY(cuCtxSynchronize());
  for (size_t i = 0; i < blocks.size(); ++i) {
    Order order{{}, kSizes[i], static_cast<unsigned char>(10 + i)};
    SAY(cuIpcGetMemHandle(&order.handle, blocks[i]));
    CUdeviceptr own = 0;
    SAY(cuIpcOpenMemHandle(&own, order.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    SAY(cuIpcOpenMemHandle(&own, order.handle, 0));
    SAY(cuIpcOpenMemHandle(&own, order.handle, 77));
    importer.tell(order);
    say(order, importer.must_hear<Seen>());
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::printf("block %zu holds %d\n", i, only_byte(blocks[i], kSizes[i]));
    SAY(cuMemFree(blocks[i]));
  }
  std::printf("importer ended with %d\n", importer.end());
  return 0;
}
