// SPDX-License-Identifier: Apache-2.0
// Two processes that hand a block back and forth by the runtime, ordered by events of both.
// Each adds to it in turn what the other wrote; neither waits on the host for the other's work.

#include "processes.h"

namespace {

constexpr int kTurns = 20;
constexpr size_t kBytes = 40'000;

struct Offer {
  cudaIpcMemHandle_t block;
  cudaIpcEventHandle_t event;
};

void must(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  std::printf("%s: %d\n", what, static_cast<int>(code));
  std::exit(1);
}
#define MUST(call) must((call), #call)

cudaEvent_t event_for_both(cudaIpcEventHandle_t* handle) {
  cudaEvent_t event;
  MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  MUST(cudaIpcGetEventHandle(handle, event));
  return event;
}

// The block holds `turn` in every byte, or a wrong one is told; then it holds `turn` + 1.
int take_turn(unsigned char* block, int turn, cudaStream_t stream, cudaEvent_t wait,
              cudaEvent_t record) {
  unsigned char last = 0;
  MUST(cudaStreamWaitEvent(stream, wait, 0));
  MUST(cudaMemcpyAsync(&last, block + kBytes - 1, 1, cudaMemcpyDeviceToHost, stream));
  MUST(cudaMemsetAsync(block, turn + 1, kBytes, stream));
  MUST(cudaEventRecord(record, stream));
  MUST(cudaStreamSynchronize(stream));
  return last == turn ? 0 : 1;
}

int import(const Peer& owner) {
  const auto offer = owner.must_hear<Offer>();
  cudaStream_t stream;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  cudaIpcEventHandle_t handle;
  const cudaEvent_t own = event_for_both(&handle);
  cudaEvent_t theirs;
  void* block = nullptr;
  MUST(cudaIpcOpenEventHandle(&theirs, offer.event));
  MUST(cudaIpcOpenMemHandle(&block, offer.block, cudaIpcMemLazyEnablePeerAccess));
  owner.tell(handle);
  int turn = 0, wrong = 0;
  while (owner.hear(&turn)) {
    wrong += take_turn(static_cast<unsigned char*>(block), turn, stream, theirs, own);
    owner.tell(wrong);
  }
  MUST(cudaIpcCloseMemHandle(block));
  MUST(cudaEventDestroy(theirs));
  return 0;
}

}  // namespace

int main(int count, char** words) {
  if (started_as(count, words, "import")) return import(owner_of(words));
  const Peer importer(words[0], "import");
  cudaStream_t stream;
  MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  void* block = nullptr;
  void* neighbour = nullptr;
  MUST(cudaMalloc(&neighbour, 1000));
  MUST(cudaMalloc(&block, kBytes));
  Offer offer;
  const cudaEvent_t own = event_for_both(&offer.event);
  MUST(cudaIpcGetMemHandle(&offer.block, block));
  MUST(cudaMemsetAsync(block, 0, kBytes, stream));
  MUST(cudaEventRecord(own, stream));
  importer.tell(offer);
  cudaEvent_t theirs;
  MUST(cudaIpcOpenEventHandle(&theirs, importer.must_hear<cudaIpcEventHandle_t>()));
  int wrong = 0;
  for (int turn = 0; turn < kTurns; turn += 2) {
    importer.tell(turn);
    wrong += importer.must_hear<int>();
    wrong += take_turn(static_cast<unsigned char*>(block), turn + 1, stream, theirs, own);
  }
  std::printf("wrong: %d\n", wrong);
  std::printf("importer ended with %d\n", importer.end());
  MUST(cudaFree(block));
  MUST(cudaFree(neighbour));
  return 0;
}
