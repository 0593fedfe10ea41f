// SPDX-License-Identifier: Apache-2.0
// Ends of blocks, of processes and of contexts while a block is open, or only its handle known.
//
//   freed     the block is freed while the other process has it open, and opened again after that
//   dead      the owner ended before its handle is opened; a child of its fork lives on
//   again     the importer exports what it opened, and closes what it does not have open
//   order     two blocks side by side are opened twice each and closed in another order
//   reset     the importer's context is reset while it has a block open
//   closed    the owner closes descriptors that it did not open, and exports once more
//   last      the owner's main thread ends before its other one
//   context   the owner's context ends, and another one has a block at the same place

//   many      blocks are exported and freed while their neighbours stay
//   handles   of a small and of a large block
//   turns     a large block is freed in the turn of the next, in whose place another one comes

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <vector>

#include "../watch_time.h"
#include "orders.h"

namespace {

Told obey_here(const Order& order) {
  CUipcMemHandle handle;
  Told told{CUDA_ERROR_UNKNOWN, 0};
  if (order.what == What::export_again) {
    told.code = cuIpcGetMemHandle(&handle, g_open[order.slot]);
  } else if (order.what == What::reset) {
    told.code = cuDevicePrimaryCtxReset(0);
    use_device(0);
  }
  return told;
}

void freed(const Peer& importer) {
  const CUdeviceptr neighbour = block_with(1), block = block_with(2);
  const CUipcMemHandle handle = handle_of(block);
  open_and_read(importer, handle);
  SAY(cuMemFree(block));
  std::vector<CUdeviceptr> others;
  for (int i = 0; i < 100; ++i) others.push_back(block_with(3));
  ask(importer, "freed", {What::read, {}, 0});
  ask(importer, "closed", {What::close, {}, 0});
  ask(importer, "opened after the free", {What::open, handle, 0});
  for (const CUdeviceptr other : others) SAY(cuMemFree(other));
  SAY(cuMemFree(neighbour));
}

void again(const Peer& importer) {
  const CUdeviceptr block = block_with(4);
  open_and_read(importer, handle_of(block));
  ask(importer, "exported again", {What::export_again, {}, 0});
  ask(importer, "closed", {What::close, {}, 0});
  ask(importer, "closed again", {What::close, {}, 0});
  ask(importer, "exported after that", {What::export_again, {}, 0});
  SAY(cuMemFree(block));
}

void order(const Peer& importer) {
  const CUdeviceptr first = block_with(5), second = block_with(6);
  const CUipcMemHandle handles[] = {handle_of(first), handle_of(second)};
  for (int i = 0; i < 4; ++i) open_and_read(importer, handles[i % 2], i);
  for (const int i : {1, 0, 3}) ask(importer, "closed", {What::close, {}, i});
  ask(importer, "read", {What::read, {}, 2});
  ask(importer, "closed", {What::close, {}, 2});
  ask(importer, "closed again", {What::close, {}, 2});
  open_and_read(importer, handles[0]);
  SAY(cuMemFree(first));
  SAY(cuMemFree(second));
}

void reset(const Peer& importer) {
  const CUdeviceptr block = block_with(7);
  const CUipcMemHandle handle = handle_of(block);
  open_and_read(importer, handle);
  ask(importer, "reset", {What::reset, {}, 0});
  ask(importer, "closed after that", {What::close, {}, 0});
  open_and_read(importer, handle);
  ask(importer, "closed", {What::close, {}, 0});
  SAY(cuMemFree(block));
}

// What is open under the numbers from first on; without Cistern nothing.
int open_from(int first) {
  int count = 0;
  DIR* all = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(all)) count += std::atoi(entry->d_name) >= first;
  closedir(all);
  return count;
}

void closed(const Peer& importer) {
  constexpr int kFirst = 50, kLast = 300;
  const CUdeviceptr block = block_with(8);
  const CUipcMemHandle handle = handle_of(block);
  // Before anybody asks: what an answer goes over is closed some time after it arrived.
  const int before = open_from(kFirst);
  open_and_read(importer, handle);
  std::printf("closed: %d\n", close_range(kFirst, kLast, 0));
  // The thread that answers importers opens its socket again once it notices.
  comes_true([=] { return open_from(kFirst) == before; });
  open_and_read(importer, handle_of(block), 1);
  SAY(cuMemFree(block));
}

void context(const Peer& importer) {
  CUcontext own = nullptr;
  CUipcMemHandle handles[2];
  for (CUipcMemHandle& handle : handles) {
    SAY(cuCtxCreate(&own, nullptr, 0, 0));
    const CUdeviceptr block = block_with(9);
    handle = handle_of(block);
    if (&handle == handles) {
      open_and_read(importer, handle);
      ask(importer, "closed", {What::close, {}, 0});
      SAY(cuCtxDestroy(own));
    }
  }
  open_and_read(importer, handles[1]);
  ask(importer, "opened after the end of its context", {What::open, handles[0], 1});
  SAY(cuCtxDestroy(own));
}

// An eighth of the device may wait for the ends of the chunks.
void many() {
  constexpr int kBlocks = 1000, kStays = 8;
  std::vector<CUdeviceptr> stay;
  int refused = 0, other = 0;
  for (int i = 0; i < kBlocks; ++i) {
    CUdeviceptr block = 0;
    CUipcMemHandle handle;
    other += cuMemAlloc(&block, kBytes) != CUDA_SUCCESS;
    if (i % kStays == 0) {
      stay.push_back(block);
      continue;
    }
    const CUresult code = cuIpcGetMemHandle(&handle, block);
    refused += code == CUDA_ERROR_NOT_SUPPORTED;
    other += code != CUDA_SUCCESS && code != CUDA_ERROR_NOT_SUPPORTED;
    other += cuMemFree(block) != CUDA_SUCCESS;
  }
  std::printf("some refused: %d, some not: %d, other errors: %d\n", refused != 0,
              refused < kBlocks / 2, other);
  for (const CUdeviceptr block : stay) SAY(cuMemFree(block));
}

void handles() {
  for (const size_t bytes : {kBytes, 5 * kMiB}) {
    CUdeviceptr block = 0;
    CUipcMemHandle handle;
    SAY(cuMemAlloc(&block, bytes));
    std::printf("handle of %zu bytes: %d\n", bytes, cuIpcGetMemHandle(&handle, block));
    SAY(cuMemFree(block));
  }
}

// Each a sixth of the device.
void turns(const Peer& importer) {
  CUdeviceptr former = 0;
  CUipcMemHandle handles[12];
  for (unsigned i = 0; i < 12; ++i) {
    CUdeviceptr block = 0;
    SAY(cuMemAlloc(&block, 40 * kMiB));
    SAY(cuMemsetD32(block, i, kBytes / 4));
    SAY(cuCtxSynchronize());
    if (former != 0) SAY(cuMemFree(former));
    handles[i] = handle_of(block);
    open_and_read(importer, handles[i]);
    ask(importer, "closed", {What::close, {}, 0});
    former = block;
  }
  for (int i = 0; i < 11; ++i) ask(importer, "opened after its free", {What::open, handles[i], 0});
  SAY(cuMemFree(former));
}

void* end_later(void*) {
  const timespec a_while{0,
                         300'000'000};  // the other's end comes first; if not, the same is printed
  nanosleep(&a_while, nullptr);
  std::printf("the last thread ends\n");
  return nullptr;
}

[[noreturn]] void end_before_another_thread(const Peer& importer) {
  const CUdeviceptr block = block_with(10);
  open_and_read(importer, handle_of(block));
  std::printf("importer ended with %d\n", importer.end());
  pthread_t thread;
  pthread_create(&thread, nullptr, end_later, nullptr);
  pthread_exit(nullptr);
}

// The exporter of "dead": it ends as soon as its handle is known, and leaves a child behind.
int export_and_end(const Peer& user) {
  if (std::freopen("/dev/null", "w", stdout) == nullptr) return 2;
  use_device(0);
  user.tell(handle_of(block_with(11)));
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();  // until it is killed
  }
  user.tell(child);
  _exit(0);
}

void dead(const char* program) {
  const Peer exporter(program, "export");
  use_device(0);
  const auto handle = exporter.must_hear<CUipcMemHandle>();
  const auto child = exporter.must_hear<pid_t>();
  std::printf("exporter ended with %d\n", exporter.end());
  const Naps naps;  // a wait for an answer asks again every tenth of a second
  CUdeviceptr block = 0;
  SAY(cuIpcOpenMemHandle(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  std::printf("at once: %d\n", naps.few(20));
  kill(child, SIGKILL);
}

}  // namespace

int main(int count, char** words) {
  if (started_as(count, words, "import")) return import(owner_of(words), obey_here);
  if (started_as(count, words, "export")) return export_and_end(owner_of(words));
  const char* word = count > 1 ? words[1] : "";
  const auto is = [=](const char* name) { return std::strcmp(word, name) == 0; };
  if (is("dead")) {
    dead(words[0]);
    return 0;
  }
  const Peer importer(words[0], "import");
  use_device(0);
  if (is("freed")) freed(importer);
  if (is("again")) again(importer);
  if (is("order")) order(importer);
  if (is("reset")) reset(importer);
  if (is("closed")) closed(importer);
  if (is("context")) context(importer);
  if (is("many")) many();
  if (is("handles")) handles();
  if (is("turns")) turns(importer);
  if (is("last")) end_before_another_thread(importer);
  std::printf("importer ended with %d\n", importer.end());
  return 0;
}
