// SPDX-License-Identifier: Apache-2.0
//
// Memory that the driver takes for its own use (SIMCUDA_TAKES), and frees in stream order that help
// late or not at all (SIMCUDA_FREE_ASYNC).
#include "device_code.h"

#include "tests/catch.h"

namespace {

size_t used_mb() {
  size_t free = 0, total = 0;
  EXPECT_OK(cuMemGetInfo(&free, &total));
  return (total - free) / kMiB;
}

// Leaves so much of the device.
void fill_up_to(size_t left_mb) {
  size_t free = 0;
  EXPECT_OK(cuMemGetInfo(&free, nullptr));
  new_block(free - left_mb * kMiB);
}

CUgraph captured_fill(CUstream stream, CUdeviceptr block) {
  CUgraph graph = nullptr;
  EXPECT_OK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(cuMemsetD8Async(block, 1, 64, stream));
  EXPECT_OK(cuStreamEndCapture(stream, &graph));
  return graph;
}

}  // namespace

TEST_CASE("a stream takes memory until it is destroyed") {
  REQUIRE(in_child({{"SIMCUDA_TAKES", "cuStreamCreate=4MB"}, {"SIMCUDA_MEMORY_MB", "64"}}, [] {
    start();
    CUstream stream = new_stream();
    EXPECT(used_mb() == 4);
    EXPECT_OK(cuStreamDestroy(stream));
    EXPECT(used_mb() == 0);
    fill_up_to(2);
    EXPECT_CODE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(used_mb() == 62);
  }));
}

TEST_CASE("modules and libraries take memory until they are unloaded") {
  REQUIRE(in_child({{"SIMCUDA_TAKES", "cuModuleLoadData=4MB,cuLibraryLoadData=2MB"},
                    {"SIMCUDA_MEMORY_MB", "64"}},
                   [] {
                     start();
                     CUmodule module = nullptr;
                     CUlibrary library = nullptr;
                     const auto load_library = [&] {
                       return cuLibraryLoadData(&library, "any", nullptr, nullptr, 0, nullptr,
                                                nullptr, 0);
                     };
                     EXPECT_OK(cuModuleLoadData(&module, "any"));
                     EXPECT_OK(load_library());
                     EXPECT(used_mb() == 6);
                     EXPECT_OK(cuModuleUnload(module));
                     EXPECT_OK(cuLibraryUnload(library));
                     EXPECT(used_mb() == 0);
                     fill_up_to(0);
                     EXPECT_CODE(cuModuleLoadData(&module, "any"), CUDA_ERROR_OUT_OF_MEMORY);
                     EXPECT_CODE(load_library(), CUDA_ERROR_OUT_OF_MEMORY);
                   }));
}

TEST_CASE("a kernel takes memory at its first launch in a context, until that ends") {
  REQUIRE(in_child({{"SIMCUDA_TAKES", "cuLaunchKernel=6MB"}, {"SIMCUDA_MEMORY_MB", "64"}}, [] {
    start();
    CUcontext first = nullptr, second = nullptr;
    EXPECT_OK(cuCtxGetCurrent(&first));
    const CUdeviceptr block = new_block(2 * kMiB);
    CUstream stream = new_stream();
    for (int i = 0; i < 3; ++i) fill_words(stream, block, 16, 1);
    EXPECT(used_mb() == 8);
    EXPECT_OK(cuCtxSynchronize());
    EXPECT_OK(cuCtxCreate(&second, nullptr, 0, 0));
    const CUdeviceptr other = new_block(2 * kMiB);
    fill_words(new_stream(), other, 16, 1);
    EXPECT(used_mb() == 16);
    EXPECT_OK(cuCtxDestroy(second));
    EXPECT_OK(cuCtxSetCurrent(first));
    EXPECT(used_mb() == 8);
    EXPECT_OK(cuDevicePrimaryCtxReset(0));
    start();
    EXPECT(used_mb() == 0);
  }));
}

TEST_CASE("a launch for which a kernel cannot be loaded may be repeated") {
  REQUIRE(in_child({{"SIMCUDA_TAKES", "cuLaunchKernel=6MB"},
                    {"SIMCUDA_MEMORY_MB", "64"},
                    {"SIMCUDA_KERNELS", kernel_library().c_str()}},
                   [] {
                     start();
                     const CUfunction fill = kernel("_Z10fill_wordsPjmj");
                     CUdeviceptr words = new_block(2 * kMiB);
                     size_t count = 16;
                     unsigned seed = 1;
                     void* params[] = {&words, &count, &seed};
                     const auto launch = [&] {
                       return cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr);
                     };
                     const CUdeviceptr most = new_block(60 * kMiB);
                     EXPECT_CODE(launch(), CUDA_ERROR_OUT_OF_MEMORY);
                     EXPECT_OK(cuMemFree(most));
                     EXPECT_OK(launch());
                     EXPECT(used_mb() == 8);
                   }));
}

TEST_CASE("a limit takes memory once, however often it is set") {
  REQUIRE(in_child({{"SIMCUDA_TAKES", "cuCtxSetLimit=8MB"}, {"SIMCUDA_MEMORY_MB", "64"}}, [] {
    start();
    EXPECT_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    EXPECT_OK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192));
    EXPECT(used_mb() == 8);
    EXPECT_OK(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 20));
    EXPECT(used_mb() == 16);
    EXPECT_CODE(cuCtxSetLimit(CU_LIMIT_MAX, 1), CUDA_ERROR_UNSUPPORTED_LIMIT);
    fill_up_to(2);
    EXPECT_CODE(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20), CUDA_ERROR_OUT_OF_MEMORY);
  }));
}

TEST_CASE("a graph takes memory when it is made and when it is first launched") {
  REQUIRE(in_child({{"SIMCUDA_TAKES", "cuGraphInstantiateWithFlags=2MB,cuGraphLaunch=4MB"},
                    {"SIMCUDA_MEMORY_MB", "64"}},
                   [] {
                     start();
                     CUstream stream = new_stream();
                     const CUdeviceptr block = new_block(2 * kMiB);
                     const CUgraph graph = captured_fill(stream, block);
                     CUgraphExec exec = nullptr;
                     EXPECT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
                     EXPECT(used_mb() == 4);
                     const CUdeviceptr most = new_block(58 * kMiB);
                     EXPECT_CODE(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
                     EXPECT_OK(cuMemFree(most));
                     EXPECT_OK(cuGraphLaunch(exec, stream));
                     EXPECT_OK(cuGraphLaunch(exec, stream));
                     EXPECT_OK(cuStreamSynchronize(stream));
                     EXPECT(used_mb() == 8);
                     EXPECT_OK(cuGraphExecDestroy(exec));
                     EXPECT(used_mb() == 2);
                   }));
}

TEST_CASE("a late free in stream order comes back with the context's synchronisation") {
  REQUIRE(in_child({{"SIMCUDA_FREE_ASYNC", "late"}}, [] {
    start();
    CUstream stream = new_stream();
    const CUdeviceptr block = new_block(8 * kMiB);
    EXPECT_OK(cuMemFreeAsync(block, stream));
    EXPECT_CODE(cuMemFree(block), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT(used_mb() == 8);
    EXPECT_OK(cuCtxSynchronize());
    EXPECT(used_mb() == 0);
  }));
}

TEST_CASE("a late free in stream order comes back with a free that waits") {
  REQUIRE(in_child({{"SIMCUDA_FREE_ASYNC", "late"}}, [] {
    start();
    const CUdeviceptr other = new_block(2 * kMiB);
    EXPECT_OK(cuMemFreeAsync(new_block(8 * kMiB), new_stream()));
    EXPECT_OK(cuMemFree(other));
    EXPECT(used_mb() == 0);
  }));
}

TEST_CASE("a late free ends with its context") {
  REQUIRE(in_child({{"SIMCUDA_FREE_ASYNC", "late"}}, [] {
    start();
    EXPECT_OK(cuMemFreeAsync(new_block(8 * kMiB), new_stream()));
    EXPECT_OK(cuDevicePrimaryCtxReset(0));
    start();
    EXPECT(used_mb() == 0);
  }));
}

TEST_CASE("a driver may refuse to free memory of cuMemAlloc in stream order, and only that") {
  REQUIRE(in_child({{"SIMCUDA_FREE_ASYNC", "refused"}}, [] {
    start();
    CUstream stream = new_stream();
    const CUdeviceptr block = new_block(8 * kMiB);
    CUdeviceptr pooled = 0;
    EXPECT_CODE(cuMemFreeAsync(block, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT_OK(cuMemAllocAsync(&pooled, 2 * kMiB, stream));
    EXPECT_OK(cuMemFreeAsync(pooled, stream));
    EXPECT_OK(cuStreamSynchronize(stream));
    EXPECT(used_mb() == 8);
    EXPECT_OK(cuMemFree(block));
    EXPECT(used_mb() == 0);
  }));
}
