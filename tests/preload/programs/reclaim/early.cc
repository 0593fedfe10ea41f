// SPDX-License-Identifier: Apache-2.0
// Work that does not wait its turn in its stream comes behind what was in front of the last free.
// Such work are kernels that may begin before the one in front of them has ended, copies of a
// batch, and copies that read their source out of stream order.
//
//   early kernel        a kernel reads what the one in front of it wrote, with a free between them
//   early both          two kernels that overlap, a free, and a copy of what both wrote
//   early copies        a batch reads what a kernel wrote, with a free between them
//   early kernel_again  a kernel that may begin early gets the memory that the one in front uses
//   early copies_again  memory that a batch reads is freed, and taken and written again
//
// The last two are in order by their streams and by what a free promises of its memory. The others
// rely on the free to wait.

#include <array>
#include <cstring>

#include "../watch_time.h"
#include "debts_workplace.h"

namespace {

constexpr int kRounds = 4;
constexpr size_t kSizes[] = {1000, 4 * kMiB};

uint64_t sum_of(uint32_t seed) { return kWords * seed + kWords * (kWords - 1) / 2; }

bool sums_early(Workplace& at) {
  static const CUdeviceptr total = new_block(2 * sizeof(uint32_t));
  MUST(cuMemsetD8(total, 0, 2 * sizeof(uint32_t)));
  MUST(cuCtxSynchronize());
  at.write_and_free(at.first);
  size_t count = kWords;
  uint32_t delay_us = 0;
  CUdeviceptr words = at.words, sum = total;
  void* parameters[] = {&words, &count, &sum, &delay_us};
  MUST(timed::launch_early(at.kernels.sum, at.first, parameters));
  uint64_t found = 0;
  MUST(cuCtxSynchronize());
  MUST(cuMemcpyDtoH(&found, total, sizeof found));
  return found == sum_of(at.seed);
}

bool both_are_over(Workplace& at) {
  static const CUdeviceptr more = new_block(kBytes), copy = new_block(kBytes);
  const CUdeviceptr block = new_block(1000);
  MUST(timed::fill_words(at.kernels, at.first, at.words, kWords, ++at.seed, kDelayUs));
  MUST(timed::fill_words_early(at.kernels, at.first, more, kWords, at.seed + 1, 0));
  MUST(cuMemFree(block));
  MUST(cuMemcpyDtoDAsync(copy, more, kBytes, at.second));
  return at.read_on(at.second) && Workplace::holds(copy, at.seed + 1);
}

constexpr CUmemcpySrcAccessOrder kOrders[] = {CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                                              CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
                                              CU_MEMCPY_SRC_ACCESS_ORDER_ANY};

// Each half is a copy.
void copy_halves(CUdeviceptr to, CUdeviceptr from, CUmemcpySrcAccessOrder order, bool boxes,
                 CUstream stream) {
  constexpr size_t kHalf = kBytes / 2;
  if (boxes) {
    CUDA_MEMCPY3D_BATCH_OP ops[2] = {};
    for (size_t i = 0; i < 2; ++i) {
      ops[i].src.type = ops[i].dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
      ops[i].src.op.ptr.ptr = from + i * kHalf;
      ops[i].dst.op.ptr.ptr = to + i * kHalf;
      ops[i].extent = {kHalf / 4, 2, 2};
      ops[i].srcAccessOrder = order;
    }
    return MUST(cuMemcpy3DBatchAsync(2, ops, 0, stream));
  }
  CUdeviceptr sources[] = {from, from + kHalf}, targets[] = {to, to + kHalf};
  size_t bytes[] = {kHalf, kHalf}, first = 0;
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = order;
  MUST(cuMemcpyBatchAsync(targets, sources, bytes, 2, &attributes, &first, 1, stream));
}

bool copies_early(Workplace& at) {
  bool right = true;
  for (const CUmemcpySrcAccessOrder order : kOrders) {
    for (const bool boxes : {false, true}) {
      for (CUstream stream : {at.first, at.second}) {
        at.write_and_free(at.first);
        copy_halves(at.copy, at.words, order, boxes, stream);
        right &= Workplace::holds(at.copy, at.seed);
      }
    }
  }
  return right;
}

bool is_written_early_again(Workplace& at) {
  bool right = true;
  for (const size_t bytes : kSizes) {
    CUdeviceptr block = new_block(bytes);
    MUST(timed::fill_words(at.kernels, at.first, block, kWords, 7, kDelayUs));
    MUST(cuMemFree(block));
    block = new_block(bytes);
    MUST(timed::fill_words_early(at.kernels, at.first, block, kWords, ++at.seed, 0));
    right &= Workplace::holds(block, at.seed);
    MUST(cuMemFree(block));
  }
  return right;
}

bool copied_memory_is_written_again(Workplace& at) {
  bool right = true;
  for (const size_t bytes : kSizes) {
    for (const bool boxes : {false, true}) {
      CUdeviceptr block = new_block(bytes);
      MUST(timed::fill_words(at.kernels, at.first, block, kWords, ++at.seed, kDelayUs));
      copy_halves(at.copy, block, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, boxes, at.first);
      MUST(cuMemFree(block));
      block = new_block(bytes);
      MUST(timed::fill_words(at.kernels, at.second, block, kWords, 7, 0));
      right &= Workplace::holds(at.copy, at.seed) && Workplace::holds(block, 7);
      MUST(cuMemFree(block));
    }
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  end_if_it_hangs();
  use_device(0);
  Workplace at;
  MUST(cuCtxSynchronize());
  const std::pair<const char*, bool (*)(Workplace&)> modes[] = {
      {"kernel", sums_early},
      {"both", both_are_over},
      {"copies", copies_early},
      {"kernel_again", is_written_early_again},
      {"copies_again", copied_memory_is_written_again}};
  for (const auto& [name, is_right] : modes) {
    if (argc < 2 || std::strcmp(argv[1], name) != 0) continue;
    int right = 0;
    for (int round = 0; round < kRounds; ++round) right += is_right(at);
    std::printf("rounds in order: %d\n", right);
  }
  MUST(cuCtxSynchronize());
  return 0;
}
