// SPDX-License-Identifier: Apache-2.0
#include "device_code.h"

#include <iterator>

#include "tests/sim/include/simcuda/twin.h"

namespace {

using simcuda::Ranges;

void fill(const SimcudaLaunch&, uint32_t* words, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; ++i) words[i] = seed + static_cast<uint32_t>(i);
}

void fill_ranges(Ranges& ranges, uint32_t* words, size_t count, uint32_t) {
  ranges.writes(words, count);
}

void sum(const SimcudaLaunch&, const uint32_t* words, size_t count, uint64_t* total) {
  uint64_t added = 0;
  for (size_t i = 0; i < count; ++i) added += words[i];
  __atomic_fetch_add(total, added, __ATOMIC_RELAXED);
}

void sum_ranges(Ranges& ranges, const uint32_t* words, size_t count, uint64_t* total) {
  ranges.reads(words, count);
  ranges.updates(total, 1);
}

constexpr SimcudaKernel kKernels[] = {simcuda::twin<fill, fill_ranges>("fill"),
                                      simcuda::twin<sum, sum_ranges>("sum")};

// One look-up per process: tests run in children of their own.
CUfunction function(const char* name, CUfunction* known) {
  if (*known == nullptr) {
    simcuda_add_kernels(kKernels, std::size(kKernels));
    *known = kernel(name);
  }
  return *known;
}

CUfunction g_fill = nullptr;
CUfunction g_sum = nullptr;

}  // namespace

void fill_words(CUstream stream, CUdeviceptr words, size_t count, uint32_t seed) {
  void* params[] = {&words, &count, &seed};
  EXPECT_OK(
      cuLaunchKernel(function("fill", &g_fill), 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
}

void fill_words_early(CUstream stream, CUdeviceptr words, size_t count, uint32_t seed) {
  void* params[] = {&words, &count, &seed};
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  attribute.value.programmaticStreamSerializationAllowed = 1;
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = config.blockDimY = config.blockDimZ = 1;
  config.hStream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  EXPECT_OK(cuLaunchKernelEx(&config, function("fill", &g_fill), params, nullptr));
}

void copy_unordered(CUstream stream, const std::vector<Pair>& copies, size_t bytes,
                    CUmemcpySrcAccessOrder order) {
  std::vector<CUdeviceptr> from, to;
  for (const Pair& copy : copies) {
    from.push_back(copy[0]);
    to.push_back(copy[1]);
  }
  std::vector<size_t> sizes(copies.size(), bytes);
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = order;
  size_t first = 0;
  EXPECT_OK(cuMemcpyBatchAsync(to.data(), from.data(), sizes.data(), copies.size(), &attributes,
                               &first, 1, stream));
}

void sum_words(CUstream stream, CUdeviceptr words, size_t count, CUdeviceptr total) {
  void* params[] = {&words, &count, &total};
  EXPECT_OK(cuLaunchKernel(function("sum", &g_sum), 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
}

uint64_t sum_of_filled(size_t count, uint32_t seed) {
  return count * seed + uint64_t{count} * (count - 1) / 2;
}

CUdeviceptr new_total(CUstream stream) {
  const CUdeviceptr total = new_block(sizeof(uint64_t));
  EXPECT_OK(cuMemsetD32Async(total, 0, 2, stream));
  return total;
}

uint64_t read_total(CUstream stream, CUdeviceptr total) {
  uint64_t value = 0;
  EXPECT_OK(cuMemcpyDtoHAsync(&value, total, sizeof value, stream));
  EXPECT_OK(cuStreamSynchronize(stream));
  return value;
}

void after(CUstream later, CUstream earlier) {
  CUevent event = nullptr;
  EXPECT_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  EXPECT_OK(cuEventRecord(event, earlier));
  EXPECT_OK(cuStreamWaitEvent(later, event, 0));
  EXPECT_OK(cuEventDestroy(event));
}
