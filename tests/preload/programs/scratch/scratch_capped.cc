// SPDX-License-Identifier: Apache-2.0
// Scratch cache and cap together: cached memory is free, refusals only once the cache is empty.
// Stream-ordered blocks that were freed, on a small card: what is said to be free can be had in
// every way, and memory is out only when it is. A process with a cap of that size on a larger
// device must be told the same.

#include "../kinds.h"
#include "scratch_blocks.h"

namespace {

constexpr size_t kPiece = 8 * kMiB;

// So many pieces are taken on the stream, used, and freed there.
void free_pieces(int count, CUstream stream) {
  CUdeviceptr pieces[8];
  for (int i = 0; i < count; ++i) pieces[i] = get(kPiece, stream);
  for (int i = 0; i < count; ++i) put(pieces[i], stream);
  finish(stream);
  say_free_memory();
}

void again_and_again(CUstream stream) {
  for (int i = 0; i < 50; ++i) put(get(kPiece, stream), stream);
  finish(stream);
  say_free_memory();
}

// A block that is had again counts no more than it did before.
void beside_plain_memory(CUstream stream) {
  CUdeviceptr plain = 0, more = 0;
  SAY(cuMemAlloc(&plain, 40 * kMiB));
  for (int i = 0; i < 3; ++i) free_pieces(3, stream);
  CUdeviceptr pieces[3];
  for (CUdeviceptr& piece : pieces) piece = get(kPiece, stream);
  say_free_memory();
  SAY(cuMemAllocAsync(&more, 2 * kMiB, stream));
  SAY(cuMemAlloc(&more, 2 * kMiB));
  for (const CUdeviceptr piece : pieces) put(piece, stream);
  finish(stream);
  say_free_memory();
  SAY(cuMemAlloc(&more, 24 * kMiB));
  SAY(cuMemAllocAsync(&pieces[0], 2 * kMiB, stream));
  say_free_memory();
  SAY(cuMemFree(more));
  SAY(cuMemFree(plain));
}

// Nearly all of the card, in pieces, and then as one of each kind.
void as_one(const Kind& kind, CUstream stream) {
  Piece piece;
  free_pieces(7, stream);
  std::printf("%s\n", kind.name);
  SAY(allocate(kind, &piece, 60 * kMiB));
  SAY(kind.free(&piece));
  SAY(cuCtxSynchronize());
  say_free_memory();
}

// A stream and a context end with what was freed there.
void ends() {
  CUcontext own = nullptr, other = nullptr;
  CUdeviceptr block = 0;
  SAY(cuCtxGetCurrent(&own));
  for (int i = 0; i < 3; ++i) {
    SAY(cuCtxCreate(&other, nullptr, 0, 0));
    const CUstream kept = new_stream(), ended = new_stream();
    free_pieces(3, kept);
    free_pieces(3, ended);
    SAY(cuStreamDestroy(ended));
    free_pieces(2, nullptr);
    SAY(cuCtxDestroy(other));
    SAY(cuCtxSetCurrent(own));
    say_free_memory();
    SAY(cuMemAlloc(&block, 64 * kMiB));
    SAY(cuMemFree(block));
  }
}

}  // namespace

int main() {
  use_device(0);
  const CUstream stream = new_stream();
  again_and_again(stream);
  beside_plain_memory(stream);
  for (const Kind& kind : kinds::kAll) as_one(kind, stream);
  ends();
  get(kPiece, stream);
  free_pieces(1, stream);
  finish(stream);
  return 0;
}
