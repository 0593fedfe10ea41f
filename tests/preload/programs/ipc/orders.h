// SPDX-License-Identifier: Apache-2.0
// An owner that exports blocks, and an importer that opens, reads and closes them as it is told.
#pragma once

#include "processes.h"

inline constexpr size_t kBytes = 64 * 1024;  // of each block
inline constexpr int kSlots = 4;             // that the importer may have open

// The first three are any importer's; what else there is, each program obeys itself.
enum class What : int { open, read, close, export_again, reset, hammer, another_context, fork };

struct Order {
  What what;
  CUipcMemHandle handle;
  int slot;
};

struct Told {
  int code;
  unsigned holds;
};

// What the importer has open, by slots.
inline CUdeviceptr g_open[kSlots];

inline Told obey(const Order& order, Told (*other)(const Order&)) {
  CUdeviceptr& block = g_open[order.slot];
  Told told{};
  switch (order.what) {
    case What::open:
      told.code = cuIpcOpenMemHandle(&block, order.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
      return told;
    case What::read:
      told.code = cuMemcpyDtoH(&told.holds, block + kBytes - 4, 4);
      return told;
    case What::close:
      told.code = cuIpcCloseMemHandle(block);
      return told;
    default:
      return other(order);
  }
}

inline int import(const Peer& owner, Told (*other)(const Order&)) {
  use_device(0);
  Order order;
  while (owner.hear(&order)) owner.tell(obey(order, other));
  return 0;
}

inline void say(const char* what, const Told& told) {
  std::printf("%s: %d, holds %u\n", what, told.code, told.holds);
}

inline void ask(const Peer& importer, const char* what, const Order& order) {
  importer.tell(order);
  say(what, importer.must_hear<Told>());
}

inline CUdeviceptr block_with(unsigned value) {
  CUdeviceptr block = 0;
  SAY(cuMemAlloc(&block, kBytes));
  SAY(cuMemsetD32(block, value, kBytes / 4));
  SAY(cuCtxSynchronize());
  return block;
}

inline CUipcMemHandle handle_of(CUdeviceptr block) {
  CUipcMemHandle handle{};
  SAY(cuIpcGetMemHandle(&handle, block));
  return handle;
}

inline void open_and_read(const Peer& importer, const CUipcMemHandle& handle, int slot = 0) {
  ask(importer, "opened", {What::open, handle, slot});
  ask(importer, "read", {What::read, {}, slot});
}
