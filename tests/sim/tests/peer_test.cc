// SPDX-License-Identifier: Apache-2.0
//
// Two devices: copies between them in all forms, and what a free waits for.
#include <atomic>
#include <functional>
#include <thread>

#include "device_code.h"
#include "tests/catch.h"
#include "tests/sim/include/simcuda/watch.h"

namespace {

constexpr size_t kWords = 1024;
constexpr size_t kBytes = kWords * sizeof(uint32_t);
constexpr size_t kUnit = size_t{2} << 20;

struct Devices {
  CUcontext first = start(0);
  CUdeviceptr from = new_block(kUnit);
  CUcontext second = start(1);
  CUdeviceptr to = new_block(kUnit);
  CUstream stream = new_stream();  // of the second device, which is current
};

using Copy = std::function<CUresult(const Devices&)>;

CUresult copy_2d(const Devices& d) {
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  c.srcDevice = d.from;
  c.dstDevice = d.to;
  c.WidthInBytes = kBytes / 4;
  c.Height = 4;
  return cuMemcpy2DAsync(&c, d.stream);
}

CUDA_MEMCPY3D box(const Devices& d) {
  CUDA_MEMCPY3D c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcDevice = d.from;
  c.dstDevice = d.to;
  c.WidthInBytes = kBytes / 4;
  c.Height = 2;
  c.Depth = 2;
  return c;
}

CUresult copy_3d_peer(const Devices& d, bool wait) {
  const CUDA_MEMCPY3D same = box(d);
  CUDA_MEMCPY3D_PEER c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcDevice = d.from;
  c.srcContext = d.first;
  c.dstDevice = d.to;
  c.dstContext = d.second;
  c.WidthInBytes = same.WidthInBytes;
  c.Height = same.Height;
  c.Depth = same.Depth;
  return wait ? cuMemcpy3DPeer(&c) : cuMemcpy3DPeerAsync(&c, d.stream);
}

CUresult copy_batch(const Devices& d, CUstream stream) {
  CUdeviceptr to[] = {d.to, d.to + kBytes / 2}, from[] = {d.from, d.from + kBytes / 2};
  size_t bytes[] = {kBytes / 2, kBytes / 2}, first = 0;
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return cuMemcpyBatchAsync(to, from, bytes, 2, &attributes, &first, 1, stream);
}

CUresult copy_3d_batch(const Devices& d) {
  CUDA_MEMCPY3D_BATCH_OP op{};
  op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  op.src.op.ptr.ptr = d.from;
  op.dst.op.ptr.ptr = d.to;
  op.extent = {kBytes / 4, 2, 2};
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return cuMemcpy3DBatchAsync(1, &op, 0, d.stream);
}

CUresult copy_captured(const Devices& d) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  EXPECT_OK(cuStreamBeginCapture(d.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_OK(cuMemcpyPeerAsync(d.to, d.second, d.from, d.first, kBytes, d.stream));
  EXPECT_OK(cuStreamEndCapture(d.stream, &graph));
  EXPECT_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  return cuGraphLaunch(exec, d.stream);
}

struct Form {
  const char* name;
  Copy copy;
};

const Form kForms[] = {
    {"peer",
     [](const Devices& d) {
       return cuMemcpyPeerAsync(d.to, d.second, d.from, d.first, kBytes, d.stream);
     }},
    {"unified", [](const Devices& d) { return cuMemcpyAsync(d.to, d.from, kBytes, d.stream); }},
    {"device to device",
     [](const Devices& d) { return cuMemcpyDtoDAsync(d.to, d.from, kBytes, d.stream); }},
    {"2d", copy_2d},
    {"3d",
     [](const Devices& d) {
       const CUDA_MEMCPY3D c = box(d);
       return cuMemcpy3DAsync(&c, d.stream);
     }},
    {"3d peer", [](const Devices& d) { return copy_3d_peer(d, false); }},
    {"3d peer, synchronous", [](const Devices& d) { return copy_3d_peer(d, true); }},
    {"batch", [](const Devices& d) { return copy_batch(d, d.stream); }},
    {"3d batch", copy_3d_batch},
    {"captured", copy_captured},
};

void wait_until(void* flag) {
  while (!static_cast<std::atomic<bool>*>(flag)->load()) std::this_thread::yield();
}

}  // namespace

TEST_CASE("every form of a copy between devices moves the data") {
  for (const Form& form : kForms) {
    INFO(form.name);
    CHECK(in_child({{"SIMCUDA_DEVICES", "2"}, {"SIMCUDA_RACES", "report"}}, [&] {
      Devices d;
      uint32_t last = 0;
      EXPECT_OK(cuCtxSetCurrent(d.first));
      EXPECT_OK(cuMemsetD32(d.from, 77, kWords));
      EXPECT_OK(cuCtxSynchronize());
      EXPECT_OK(cuCtxSetCurrent(d.second));
      EXPECT_OK(form.copy(d));
      EXPECT_OK(cuCtxSynchronize());
      EXPECT_OK(cuMemcpyDtoH(&last, d.to + kBytes - sizeof last, sizeof last));
      EXPECT(last == 77);
      EXPECT(simcuda_findings(SIMCUDA_ALL_FINDINGS) == 0);
    }));
  }
}

TEST_CASE("a batch has no place on the legacy stream") {
  REQUIRE(in_child({{"SIMCUDA_DEVICES", "2"}}, [] {
    const Devices d;
    EXPECT_CODE(copy_batch(d, CU_STREAM_LEGACY), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CODE(copy_batch(d, nullptr), CUDA_ERROR_INVALID_VALUE);
  }));
}

TEST_CASE("a pool that reuses what another device's copy still reads is found, in every form") {
  for (const Form& form : kForms) {
    INFO(form.name);
    CHECK(in_child({{"SIMCUDA_DEVICES", "2"},
                    {"SIMCUDA_RACES", "report"},
                    {"SIMCUDA_RACES_FILE", "/dev/null"}},
                   [&] {
                     const Devices d;
                     EXPECT_OK(form.copy(d));
                     EXPECT_OK(cuCtxSetCurrent(d.first));
                     EXPECT_OK(cuCtxSynchronize());  // which says nothing of the second device
                     EXPECT_OK(cuMemsetD8(d.from, 1, kBytes));
                     EXPECT(simcuda_findings(SIMCUDA_RACE) >= 1);
                   }));
  }
}

TEST_CASE("a free waits for copies that other contexts make of the memory") {
  for (const Form& form : kForms) {
    INFO(form.name);
    CHECK(in_child({{"SIMCUDA_DEVICES", "2"}, {"SIMCUDA_RACES", "report"}}, [&] {
      const Devices d;
      EXPECT_OK(form.copy(d));
      EXPECT_OK(cuCtxSetCurrent(d.first));
      EXPECT_OK(cuMemFree(d.from));
      EXPECT(simcuda_findings(SIMCUDA_ALL_FINDINGS) == 0);
    }));
  }
}

TEST_CASE("a free waits for kernels with peer access, and for no other work of that device") {
  REQUIRE(in_child({{"SIMCUDA_DEVICES", "2"}, {"SIMCUDA_RACES", "report"}}, [] {
    const Devices d;
    EXPECT_OK(cuCtxEnablePeerAccess(d.first, 0));
    fill_words(d.stream, d.from, kWords, 1);
    EXPECT_OK(cuCtxSynchronize());
    fill_words(d.stream, d.from, kWords, 2);
    std::atomic<bool> go{false};
    EXPECT_OK(cuLaunchHostFunc(new_stream(), wait_until, &go));
    EXPECT_OK(cuCtxSetCurrent(d.first));
    EXPECT_OK(cuMemFree(d.from));  // would hang here
    EXPECT(simcuda_findings(SIMCUDA_ALL_FINDINGS) == 0);
    go = true;
    EXPECT_OK(cuCtxSetCurrent(d.second));
    EXPECT_OK(cuCtxSynchronize());
  }));
}
