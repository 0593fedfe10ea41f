// SPDX-License-Identifier: Apache-2.0
// Peers that are not what a process hopes for, and ends of either side while a block is open.
//
//   foreign     the importer runs without Cistern, and then another one with it
//   orphan      the owner ends while its block is open
//   killed      importers are killed while they open and close, others go on
//   passed_on   an importer hands the handle on to a third process, which opens it as well
//   forked      the importer forks; parent and child go on, and the owner forks as well
//   contexts    the importer opens the block in two contexts

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "processes.h"

namespace {

constexpr size_t kBytes = 24'000;

enum class What : int { open, read, close, hammer, again, fork };

struct Order {
  What what;
  CUipcMemHandle handle;
};

struct Told {
  int code;
  unsigned holds;
};

CUdeviceptr g_open[2];

// Opens and closes until it is killed.
[[noreturn]] void hammer(const CUipcMemHandle& handle) {
  while (true) {
    CUdeviceptr block = 0;
    if (cuIpcOpenMemHandle(&block, handle, 0) == CUDA_SUCCESS) cuIpcCloseMemHandle(block);
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

Told obey(const Order& order) {
  Told told{};
  CUcontext other = nullptr;
  switch (order.what) {
    case What::open:
      told.code = cuIpcOpenMemHandle(&g_open[0], order.handle, 0);
      break;
    case What::read:
      told.code = cuMemcpyDtoH(&told.holds, g_open[0] + kBytes - 4, 4);
      break;
    case What::close:
      told.code = cuIpcCloseMemHandle(g_open[0]);
      break;
    case What::hammer:
      hammer(order.handle);
    case What::again:
      told.code = cuCtxCreate(&other, nullptr, 0, 0);
      if (told.code == 0) told.code = cuIpcOpenMemHandle(&g_open[1], order.handle, 0);
      if (told.code == 0) told.code = cuMemcpyDtoH(&told.holds, g_open[1] + kBytes - 4, 4);
      if (told.code == 0) told.code = cuIpcCloseMemHandle(g_open[1]);
      if (told.code == 0) told.code = cuCtxDestroy(other);
      break;
    case What::fork:
      told.code = fork_and_end();
      break;
  }
  return told;
}

int import(const Peer& owner) {
  use_device(0);
  Order order;
  while (owner.hear(&order)) owner.tell(obey(order));
  return 0;
}

void ask(const Peer& importer, const char* what, const Order& order) {
  importer.tell(order);
  const Told told = importer.must_hear<Told>();
  std::printf("%s: %d, holds %u\n", what, told.code, told.holds);
}

CUdeviceptr block_with(unsigned value) {
  CUdeviceptr block = 0;
  SAY(cuMemAlloc(&block, kBytes));
  SAY(cuMemsetD32(block, value, kBytes / 4));
  SAY(cuCtxSynchronize());
  return block;
}

CUipcMemHandle handle_of(CUdeviceptr block) {
  CUipcMemHandle handle{};
  SAY(cuIpcGetMemHandle(&handle, block));
  return handle;
}

// An owner that ends when it is told to.
int own(const Peer& user) {
  std::freopen("/dev/null", "w", stdout);
  use_device(0);
  user.tell(handle_of(block_with(21)));
  int word = 0;
  user.hear(&word);
  _exit(0);
}

void without_preload() { unsetenv("LD_PRELOAD"); }

void foreign(const char* program) {
  const Peer stranger(program, "import", without_preload), importer(program, "import");
  use_device(0);
  const CUdeviceptr block = block_with(20);
  const CUipcMemHandle handle = handle_of(block);
  ask(stranger, "opened by a stranger", {What::open, handle});
  ask(importer, "opened", {What::open, handle});
  ask(importer, "read", {What::read, {}});
  std::printf("ended with %d", stranger.end());
  std::printf(" %d\n", importer.end());
  SAY(cuMemFree(block));
}

void orphan(const char* program) {
  const Peer owner(program, "own");
  use_device(0);
  const auto handle = owner.must_hear<CUipcMemHandle>();
  const auto say = [](const char* what, Told told) {
    std::printf("%s: %d, holds %u\n", what, told.code, told.holds);
  };
  say("opened", obey({What::open, handle}));
  say("read", obey({What::read, {}}));
  std::printf("owner ended with %d\n", owner.end());
  say("read without its owner", obey({What::read, {}}));
  say("closed", obey({What::close, {}}));
  say("closed again", obey({What::close, {}}));
}

void killed(const char* program) {
  constexpr int kRounds = 10, kAtOnce = 3;
  const Peer importer(program, "import");
  std::vector<Peer> doomed;
  for (int i = 0; i < kRounds * kAtOnce; ++i) doomed.emplace_back(program, "import");
  use_device(0);
  const CUdeviceptr block = block_with(22);
  const CUipcMemHandle handle = handle_of(block);
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kAtOnce; ++i) {
      doomed[static_cast<size_t>(round * kAtOnce + i)].tell(Order{What::hammer, handle});
    }
    usleep(20'000 + 1000 * static_cast<unsigned>(round));
    for (int i = 0; i < kAtOnce; ++i) {
      const Peer& peer = doomed[static_cast<size_t>(round * kAtOnce + i)];
      kill(peer.process(), SIGKILL);
      wrong += peer.end() != 128 + SIGKILL;
    }
    for (const What what : {What::open, What::read, What::close}) {
      importer.tell(Order{what, handle});
      const Told told = importer.must_hear<Told>();
      wrong += told.code != CUDA_SUCCESS || (what == What::read && told.holds != 22);
    }
  }
  std::printf("wrong: %d, importer ended with %d\n", wrong, importer.end());
  SAY(cuMemFree(block));
}

void passed_on(const char* program) {
  const Peer first(program, "import"), second(program, "import");
  use_device(0);
  const CUdeviceptr block = block_with(23);
  const CUipcMemHandle handle = handle_of(block);
  for (const Peer* peer : {&first, &second}) {
    ask(*peer, "opened", {What::open, handle});
    ask(*peer, "read", {What::read, {}});
  }
  std::printf("first ended with %d\n", first.end());
  ask(second, "read", {What::read, {}});
  ask(second, "closed", {What::close, {}});
  std::printf("second ended with %d\n", second.end());
  SAY(cuMemFree(block));
}

void forked(const char* program) {
  const Peer importer(program, "import");
  use_device(0);
  const CUdeviceptr block = block_with(24);
  const CUipcMemHandle handle = handle_of(block);
  ask(importer, "opened", {What::open, handle});
  ask(importer, "forked", {What::fork, {}});
  ask(importer, "read", {What::read, {}});
  std::printf("child of the owner ended with %d\n", fork_and_end());
  ask(importer, "closed", {What::close, {}});
  ask(importer, "opened", {What::open, handle});
  ask(importer, "read", {What::read, {}});
  std::printf("importer ended with %d\n", importer.end());
  SAY(cuMemFree(block));
}

void contexts(const char* program) {
  const Peer importer(program, "import");
  use_device(0);
  const CUdeviceptr block = block_with(25);
  const CUipcMemHandle handle = handle_of(block);
  ask(importer, "opened", {What::open, handle});
  ask(importer, "in another context", {What::again, handle});
  ask(importer, "read", {What::read, {}});
  ask(importer, "closed", {What::close, {}});
  std::printf("importer ended with %d\n", importer.end());
  SAY(cuMemFree(block));
}

}  // namespace

int main(int count, char** words) {
  if (started_as(count, words, "import")) return import(owner_of(words));
  if (started_as(count, words, "own")) return own(owner_of(words));
  const char* word = count > 1 ? words[1] : "";
  const auto is = [=](const char* name) { return std::strcmp(word, name) == 0; };
  if (is("foreign")) foreign(words[0]);
  if (is("orphan")) orphan(words[0]);
  if (is("killed")) killed(words[0]);
  if (is("passed_on")) passed_on(words[0]);
  if (is("forked")) forked(words[0]);
  if (is("contexts")) contexts(words[0]);
  return 0;
}
