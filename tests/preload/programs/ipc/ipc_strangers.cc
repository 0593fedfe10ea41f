// SPDX-License-Identifier: Apache-2.0
// Peers that are not what a process hopes for, and ends of either side while a block is open.
//
//   foreign     the importer runs without Cistern, and then another one with it
//   orphan      the owner ends while its block is open
//   killed      importers are killed while they open and close, others go on
//   doomed      owners of a large block are killed while importers open and close it
//   passed_on   an importer hands the handle on to a third process, which opens it as well
//   forked      the importer forks; parent and child go on, and the owner forks as well
//   contexts    the importer opens the block in two contexts

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "left.h"
#include "orders.h"

namespace {

// Opens and closes until it is killed.
[[noreturn]] void hammer(const CUipcMemHandle& handle) {
  while (true) {
    CUdeviceptr block = 0;
    if (cuIpcOpenMemHandle(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS)
      cuIpcCloseMemHandle(block);
  }
}

// Whether a child that forgets all of CUDA ends as it should.
int fork_and_end() {
  const pid_t child = fork();
  if (child == 0) _exit(7);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Told obey_in_another_context(const Order& order) {
  Told told{};
  CUcontext other = nullptr;
  CUdeviceptr block = 0;
  told.code = cuCtxCreate(&other, nullptr, 0, 0);
  if (told.code == 0)
    told.code = cuIpcOpenMemHandle(&block, order.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (told.code == 0) told.code = cuMemcpyDtoH(&told.holds, block + kBytes - 4, 4);
  if (told.code == 0) told.code = cuIpcCloseMemHandle(block);
  if (told.code == 0) told.code = cuCtxDestroy(other);
  return told;
}

Told obey_here(const Order& order) {
  switch (order.what) {
    case What::hammer:
      hammer(order.handle);
    case What::another_context:
      return obey_in_another_context(order);
    case What::fork:
      return {fork_and_end(), 0};
    default:
      return {CUDA_ERROR_UNKNOWN, 0};
  }
}

// An owner that ends when it is told to.
int own(const Peer& user) {
  if (std::freopen("/dev/null", "w", stdout) == nullptr) return 2;
  use_device(0);
  user.tell(handle_of(block_with(21)));
  int word = 0;
  user.hear(&word);
  _exit(0);
}

// But for a sanitizer's runtime, without which the simulated driver may not start.
void without_preload() {
  const char* preloaded = std::getenv("LD_PRELOAD");
  const std::string all = preloaded == nullptr ? "" : preloaded,
                    first = all.substr(0, all.find(':'));
  unsetenv("LD_PRELOAD");
  if (first.find("san.so") != std::string::npos) setenv("LD_PRELOAD", first.c_str(), 1);
}

void foreign(const char* program) {
  const Peer stranger(program, "import", without_preload), importer(program, "import");
  use_device(0);
  const CUdeviceptr block = block_with(20);
  const CUipcMemHandle handle = handle_of(block);
  ask(stranger, "opened by a stranger", {What::open, handle, 0});
  open_and_read(importer, handle);
  std::printf("ended with %d", stranger.end());
  std::printf(" %d\n", importer.end());
  SAY(cuMemFree(block));
}

void orphan(const char* program) {
  const Peer owner(program, "own");
  use_device(0);
  const auto handle = owner.must_hear<CUipcMemHandle>();
  say("opened", obey({What::open, handle, 0}, obey_here));
  say("read", obey({What::read, {}, 0}, obey_here));
  std::printf("owner ended with %d\n", owner.end());
  say("read without its owner", obey({What::read, {}, 0}, obey_here));
  say("closed", obey({What::close, {}, 0}, obey_here));
  say("closed again", obey({What::close, {}, 0}, obey_here));
}

void killed(const char* program) {
  constexpr int kRounds = 10, kAtOnce = 3;
  const Peer importer(program, "import");
  std::vector<Peer> doomed;
  doomed.reserve(kRounds * kAtOnce);
  for (int i = 0; i < kRounds * kAtOnce; ++i) doomed.emplace_back(program, "import");
  use_device(0);
  const CUdeviceptr block = block_with(22);
  const CUipcMemHandle handle = handle_of(block);
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kAtOnce; ++i) {
      doomed[static_cast<size_t>(round * kAtOnce + i)].tell(Order{What::hammer, handle, 0});
    }
    usleep(20'000 + 1000 * static_cast<unsigned>(round));  // any moment will do
    for (int i = 0; i < kAtOnce; ++i) {
      const Peer& peer = doomed[static_cast<size_t>(round * kAtOnce + i)];
      kill(peer.process(), SIGKILL);
      wrong += peer.end() != 128 + SIGKILL;
    }
    for (const What what : {What::open, What::read, What::close}) {
      importer.tell(Order{what, handle, 0});
      const Told told = importer.must_hear<Told>();
      wrong += told.code != CUDA_SUCCESS || (what == What::read && told.holds != 22);
    }
  }
  std::printf("wrong: %d, importer ended with %d\n", wrong, importer.end());
  SAY(cuMemFree(block));
}

// Opens and closes until its owner is gone.
int use_doomed(const CUipcMemHandle& handle, std::atomic<int>* times) {
  int opened = 0;
  CUdeviceptr block = 0;
  while (cuIpcOpenMemHandle(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS) {
    *times = ++opened;
    if (cuIpcCloseMemHandle(block) != CUDA_SUCCESS) return 0;
  }
  if (opened == 0) *times = -1;
  return opened;
}

// An owner that ends at any moment.
int own_large(const Peer& user) {
  if (std::freopen("/dev/null", "w", stdout) == nullptr) return 2;
  use_device(0);
  CUdeviceptr block = 0;
  SAY(cuMemAlloc(&block, 600 * kMiB));
  user.tell(handle_of(block));
  int word = 0;
  user.hear(&word);
  return 1;
}

void doomed(const char* program) {
  constexpr int kRounds = 6;
  std::vector<Peer> owners;
  owners.reserve(kRounds);
  for (int i = 0; i < kRounds; ++i) owners.emplace_back(program, "own_large");
  use_device(0);
  int opened = 0, left = 0;
  for (int i = 0; i < kRounds; ++i) {
    const auto handle = owners[static_cast<size_t>(i)].must_hear<CUipcMemHandle>();
    const Left before = look();
    std::atomic<int> times{0};
    std::thread kills([&] {
      while (times == 0) usleep(100);
      usleep(500 + 1700 * static_cast<unsigned>(i));  // any moment will do
      kill(owners[static_cast<size_t>(i)].process(), SIGKILL);
    });
    opened += use_doomed(handle, &times) != 0;
    kills.join();
    left += !same(before, look());
    owners[static_cast<size_t>(i)].end();
  }
  std::printf("opened of %d: %d, left: %d\n", kRounds, opened, left);
}

void passed_on(const char* program) {
  const Peer first(program, "import"), second(program, "import");
  use_device(0);
  const CUdeviceptr block = block_with(23);
  const CUipcMemHandle handle = handle_of(block);
  for (const Peer* peer : {&first, &second}) {
    open_and_read(*peer, handle);
  }
  std::printf("first ended with %d\n", first.end());
  ask(second, "read", {What::read, {}, 0});
  ask(second, "closed", {What::close, {}, 0});
  std::printf("second ended with %d\n", second.end());
  SAY(cuMemFree(block));
}

void forked(const char* program) {
  const Peer importer(program, "import");
  use_device(0);
  const CUdeviceptr block = block_with(24);
  const CUipcMemHandle handle = handle_of(block);
  ask(importer, "opened", {What::open, handle, 0});
  ask(importer, "forked", {What::fork, {}, 0});
  ask(importer, "read", {What::read, {}, 0});
  std::printf("child of the owner ended with %d\n", fork_and_end());
  ask(importer, "closed", {What::close, {}, 0});
  open_and_read(importer, handle);
  std::printf("importer ended with %d\n", importer.end());
  SAY(cuMemFree(block));
}

void contexts(const char* program) {
  const Peer importer(program, "import");
  use_device(0);
  const CUdeviceptr block = block_with(25);
  const CUipcMemHandle handle = handle_of(block);
  ask(importer, "opened", {What::open, handle, 0});
  ask(importer, "in another context", {What::another_context, handle, 0});
  ask(importer, "read", {What::read, {}, 0});
  ask(importer, "closed", {What::close, {}, 0});
  std::printf("importer ended with %d\n", importer.end());
  SAY(cuMemFree(block));
}

}  // namespace

int main(int count, char** words) {
  if (started_as(count, words, "import")) return import(owner_of(words), obey_here);
  if (started_as(count, words, "own")) return own(owner_of(words));
  if (started_as(count, words, "own_large")) return own_large(owner_of(words));
  const char* word = count > 1 ? words[1] : "";
  const auto is = [=](const char* name) { return std::strcmp(word, name) == 0; };
  if (is("foreign")) foreign(words[0]);
  if (is("orphan")) orphan(words[0]);
  if (is("killed")) killed(words[0]);
  if (is("doomed")) doomed(words[0]);
  if (is("passed_on")) passed_on(words[0]);
  if (is("forked")) forked(words[0]);
  if (is("contexts")) contexts(words[0]);
  return 0;
}
