// SPDX-License-Identifier: Apache-2.0
// Which functions allocate for others, and which frame of a stack is told of.
#include "allocator/record/program_code.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/catch.h"

namespace program_code_test {

using namespace cistern::alloc;

TEST_CASE("functions that allocate for their callers are wrappers") {
  const std::string_view symbol = GENERATE(
      // The runtime, linked in: C, its C++ header, and what is inside.
      "cudaMalloc", "cudaMallocAsync_ptsz", "cudaHostAlloc", "libcudart_static_0123456789abcdef",
      "__cudart613", "_ZL10cudaMallocIfE9cudaErrorPPT_m", "_ZN6cudart12arrayHelper8allocateEv",
      // Stubs of the driver.
      "cuMemAlloc_v2", "cuMemAllocAsync", "cuMemHostAlloc", "cuArrayCreate_v2",
      // operator new, also of a class and of no exceptions.
      "_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZN8OnDevicenwEm", "_ZN2ns8OnDevicenaEm",
      // PyTorch, RMM, Thrust, Paddle, the C++ library.
      "_ZN3c104cuda20CUDACachingAllocator9raw_allocEm",
      "_ZN3c104cuda20CUDACachingAllocator6Native12_GLOBAL__N_118DeviceCachingAllocator6mallocEm",
      "_ZN2at6detail10empty_cudaEN3c108ArrayRefIlEE", "_ZNK3rmm13device_buffer4sizeEv",
      "_ZN3rmm2mr20cuda_memory_resource11do_allocateEmNS_16cuda_stream_viewE",
      "_ZThn16_N3rmm2mr4pool11do_allocateEm", "_ZTv0_n24_N3rmm2mr4pool11do_allocateEm",
      "_ZZN3rmm2mr4pool4growEvENKUlvE_clEv", "_ZN6thrust13device_vectorIfEC2Em",
      "_ZN6paddle6memory10allocation5AllocEm", "_ZNSt6vectorIiSaIiEE6resizeEm",
      "_ZNSaIiE8allocateEm", "_ZSt10allocate_nPv", "_ZN9__gnu_cxx13new_allocatorIiE8allocateEm");
  CAPTURE(symbol);
  CHECK(is_wrapper(symbol));
}

TEST_CASE("functions of the program are no wrappers") {
  const std::string_view symbol = GENERATE(
      "", "main", "cudaSetup", "my_cudaMalloc", "_Z4stepv", "_ZN2nn5Layer7forwardEi",
      "_ZN2at6native3addEv", "_ZN6paddle9operators3addEv", "_ZN4rmm23runEv", "_ZN2ns3rmm3runEv",
      "_ZN2ns12arenaEmplaceEv", "_ZN5names3addEv", "_ZN3naEv", "_Z8Stream32v",
      // No names at all.
      "_Z", "_ZN", "_ZT", "_ZTh", "_ZTv0_", "_ZZZZ", "_ZNK", "_Z0", "_ZN99999999999999999999rmmE",
      "_ZN30rmm");
  CAPTURE(symbol);
  CHECK_FALSE(is_wrapper(symbol));
}

namespace {

struct Call {
  const char* file;
  const char* symbol;
  bool python = false;
};

int told_of(const std::vector<Call>& calls) {
  std::vector<Frame> frames;
  for (uint32_t i = 0; i < calls.size(); ++i) {
    frames.push_back(
        {.file = i + 1, .function = calls[i].python ? 1u : 0u, .line = 1, .offset = 0});
  }
  return telling_frame(
      frames.data(), static_cast<int>(frames.size()),
      [&](const Frame& frame) { return std::string_view(calls[frame.file - 1].file); },
      [&](const Frame& frame) { return is_wrapper(calls[frame.file - 1].symbol); });
}

}  // namespace

TEST_CASE("the frame that is told of is the innermost that is no wrapper") {
  const Call runtime{"/usr/lib/libcudart.so.12", "cudaMalloc"}, linked_in{"/bin/app", "cudaMalloc"};
  const Call c10{"/site-packages/torch/lib/libc10_cuda.so", "f"}, step{"/bin/app", "_Z4stepv"};
  const Call python{"train.py", "", true}, unknown{"/bin/app", ""};
  CHECK(told_of({step, step}) == 0);
  CHECK(told_of({runtime, step, step}) == 1);
  CHECK(told_of({linked_in, linked_in, step, step}) == 2);
  CHECK(told_of({runtime, c10, step}) == 2);
  CHECK(told_of({linked_in, step, python}) == 2);
  CHECK(told_of({unknown, step}) == 0);
  // Nothing but wrappers: the program's innermost.
  CHECK(told_of({runtime, linked_in, linked_in}) == 1);
  CHECK(told_of({runtime, c10}) == 0);
}

}  // namespace program_code_test
