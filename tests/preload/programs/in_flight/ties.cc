// SPDX-License-Identifier: Apache-2.0
// A block that another context's work under way still reads or writes is not reused.
// That work is behind a kernel that takes a while. The block is freed meanwhile (the driver's free
// waits), its own context is synchronised, and the next block of its size is filled. The watcher
// tells if that was too early.
//
//   ties FORM reads|writes 1|0 BYTES [beside|third]
//
// "beside": another copy between the two contexts is begun later, and done before. "third": copies
// of a third context to the other one's: one is done before, one goes on for longer, one is begun
// last and done before.
// The number is the other context's device. FORM: peer peer_now unified device copy_2d copy_3d
// copy_3d_peer batch batch_3d captured fill (writes only) kernel kernel_no_more kernel_opened
// (device 1 only); since CUDA 13.1: attributes attributes_3d fabric node_added node_set recaptured
// reduction operation (both write only). Kernels reach the block by peer access: enabled, enabled
// and then disabled, or enabled by opening memory of another process on the same device.

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "../driver_codes.h"
#include "../newer.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

using timed::Worker;

constexpr size_t kWords = 256;
constexpr size_t kCopied = kWords * sizeof(uint32_t);
constexpr uint32_t kDelayUs = 30'000;

// A copy, by a stream of the second context.
struct Copy {
  CUdeviceptr to;
  CUcontext to_context;
  CUdeviceptr from;
  CUcontext from_context;
  CUstream stream;
};

CUresult copy_2d(const Copy& copy) {
  CUDA_MEMCPY2D c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  c.srcDevice = copy.from;
  c.dstDevice = copy.to;
  c.WidthInBytes = kCopied / 4;
  c.Height = 4;
  return cuMemcpy2DAsync(&c, copy.stream);
}

template <typename Parameters>
Parameters box(const Copy& copy) {
  Parameters c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcDevice = copy.from;
  c.dstDevice = copy.to;
  c.WidthInBytes = kCopied / 4;
  c.Height = c.Depth = 2;
  return c;
}

CUresult copy_3d(const Copy& copy) {
  const auto c = box<CUDA_MEMCPY3D>(copy);
  return cuMemcpy3DAsync(&c, copy.stream);
}

CUresult copy_3d_peer(const Copy& copy) {
  auto c = box<CUDA_MEMCPY3D_PEER>(copy);
  c.srcContext = copy.from_context;
  c.dstContext = copy.to_context;
  return cuMemcpy3DPeerAsync(&c, copy.stream);
}

CUresult batch(const Copy& copy) {
  CUdeviceptr to[] = {copy.to, copy.to + kCopied / 2},
              from[] = {copy.from, copy.from + kCopied / 2};
  size_t bytes[] = {kCopied / 2, kCopied / 2}, first = 0;
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return cuMemcpyBatchAsync(to, from, bytes, 2, &attributes, &first, 1, copy.stream);
}

CUDA_MEMCPY3D_BATCH_OP one_of_batch(const Copy& copy) {
  CUDA_MEMCPY3D_BATCH_OP op{};
  op.src.type = op.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
  op.src.op.ptr.ptr = copy.from;
  op.dst.op.ptr.ptr = copy.to;
  op.extent = {kCopied / 4, 2, 2};
  op.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return op;
}

CUresult batch_3d(const Copy& copy) {
  CUDA_MEMCPY3D_BATCH_OP op = one_of_batch(copy);
  return cuMemcpy3DBatchAsync(1, &op, 0, copy.stream);
}

CUresult peer(const Copy& copy) {
  return cuMemcpyPeerAsync(copy.to, copy.to_context, copy.from, copy.from_context, kCopied,
                           copy.stream);
}

// On the context's default stream, which waits for nothing of a non-blocking one.
CUresult peer_now(const Copy& copy) {
  return cuMemcpyPeer(copy.to, copy.to_context, copy.from, copy.from_context, kCopied);
}

CUresult launch_once(CUgraph graph, CUstream stream) {
  CUgraphExec exec = nullptr;
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  const CUresult code = cuGraphLaunch(exec, stream);
  MUST(cuGraphExecDestroy(exec));  // nothing is parked for its sake
  MUST(cuGraphDestroy(graph));
  return code;
}

CUresult captured(const Copy& copy) {
  CUgraph graph = nullptr;
  MUST(cuStreamBeginCapture(copy.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(peer(copy));
  MUST(cuStreamEndCapture(copy.stream, &graph));
  return launch_once(graph, copy.stream);
}

CUresult unified(const Copy& copy) {
  return cuMemcpyAsync(copy.to, copy.from, kCopied, copy.stream);
}

CUresult device(const Copy& copy) {
  return cuMemcpyDtoDAsync(copy.to, copy.from, kCopied, copy.stream);
}

CUresult attributes(const Copy& copy) {
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  return NEWER(cuMemcpyWithAttributesAsync, "cuMemcpyWithAttributesAsync", 13020)(
      copy.to, copy.from, kCopied, &attributes, copy.stream);
}

CUresult attributes_3d(const Copy& copy) {
  CUDA_MEMCPY3D_BATCH_OP op = one_of_batch(copy);
  return NEWER(cuMemcpy3DWithAttributesAsync, "cuMemcpy3DWithAttributesAsync", 13020)(&op, 0,
                                                                                      copy.stream);
}

CUresult fabric(const Copy& copy) {
  CUDA_FABRIC_COPY_BATCH_OP ops[2]{};
  for (size_t i = 0; i < 2; ++i) {
    ops[i].src.type = ops[i].dst.type = CU_FABRIC_COPY_OPERAND_TYPE_POINTER;
    ops[i].src.op.ptr.ptr = copy.from + i * kCopied / 2;
    ops[i].dst.op.ptr.ptr = copy.to + i * kCopied / 2;
    ops[i].size = kCopied / 2;
  }
  return NEWER(cuFabricCpyBatchAsync, "cuFabricCpyBatchAsync", 13050)(2, ops, 0, copy.stream);
}

CUresult operate(const Copy& copy, unsigned operation, const CisternAtomicReduction& on) {
  CUstreamBatchMemOpParams params{};
  std::memcpy(&params, &on, sizeof on);
  std::memcpy(&params, &operation, sizeof operation);
  return cuStreamBatchMemOp(copy.stream, 1, &params, 0);
}

// Adds to a word of 32 bits.
CUresult reduction(const Copy& copy) {
  return operate(copy, CISTERN_ATOMIC_REDUCTION, {0, 0, 0, 2 | 4 | 8, copy.to, 7, 0});
}

// One that no driver has yet (tests/sim/README.md), which writes. Its address is the second word.
CUresult operation(const Copy& copy) {
  CUstreamBatchMemOpParams params{};
  CisternAtomicReduction write{};
  params.writeValue.address = copy.to;
  params.writeValue.value = 7;
  std::memcpy(&write, &params, sizeof write);
  return operate(copy, 100, write);
}

// A graph of the second context alone, of one copy.
CUgraph own_graph(const Copy& copy, CUgraphNode* node) {
  CUdeviceptr own = 0;
  CUgraph graph = nullptr;
  size_t one = 1;
  MUST(cuMemAlloc(&own, 2 * kCopied));
  MUST(cuStreamBeginCapture(copy.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(cuMemcpyDtoDAsync(own, own + kCopied, kCopied, copy.stream));
  MUST(cuStreamEndCapture(copy.stream, &graph));
  MUST(cuGraphGetNodes(graph, node, &one));
  return graph;
}

CUgraphNodeParams node_of(const Copy& copy) {
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  params.memcpy.copyParams = box<CUDA_MEMCPY3D>(copy);
  return params;
}

CUresult node_added(const Copy& copy) {
  CUgraphNode first = nullptr, added = nullptr;
  CUgraph graph = own_graph(copy, &first);
  CUgraphNodeParams params = node_of(copy);
  MUST(NEWER(cuGraphAddNode_v3, "cuGraphAddNode", 13040)(&added, graph, &first, nullptr, 1,
                                                         &params));
  return launch_once(graph, copy.stream);
}

CUresult node_set(const Copy& copy) {
  CUgraphNode node = nullptr;
  CUgraph graph = own_graph(copy, &node);
  CUgraphNodeParams params = node_of(copy);
  MUST(NEWER(cuGraphNodeSetParams_v2, "cuGraphNodeSetParams", 13040)(node, &params));
  return launch_once(graph, copy.stream);
}

// The contexts are those of the second capture.
CUresult recaptured(const Copy& copy) {
  CUgraphNode node = nullptr;
  CUgraph graph = own_graph(copy, &node);
  MUST(NEWER(cuStreamBeginRecaptureToGraph, "cuStreamBeginRecaptureToGraph", 13030)(
      copy.stream, CU_STREAM_CAPTURE_MODE_RELAXED, graph, nullptr, nullptr));
  MUST(device(copy));
  MUST(cuStreamEndCapture(copy.stream, &graph));
  return launch_once(graph, copy.stream);
}

CUresult fill(const Copy& copy) { return cuMemsetD8Async(copy.to, 7, kCopied, copy.stream); }

constexpr struct {
  const char* name;
  CUresult (*submit)(const Copy& copy);
} kForms[] = {{"peer", peer},
              {"peer_now", peer_now},
              {"unified", unified},
              {"device", device},
              {"copy_2d", copy_2d},
              {"copy_3d", copy_3d},
              {"batch", batch},
              {"copy_3d_peer", copy_3d_peer},
              {"batch_3d", batch_3d},
              {"captured", captured},
              {"fill", fill},
              {"attributes", attributes},
              {"attributes_3d", attributes_3d},
              {"fabric", fabric},
              {"reduction", reduction},
              {"operation", operation},
              {"node_added", node_added},
              {"node_set", node_set},
              {"recaptured", recaptured}};

// A process with a block on device 0, forked before this one uses CUDA.
class Exporter {
 public:
  Exporter() {
    if (pipe(to_parent_) != 0 || pipe(to_child_) != 0) std::_Exit(1);
    process_ = fork();
    if (process_ != 0) return;
    use_device(0);
    CUdeviceptr block = 0;
    CUipcMemHandle handle;
    MUST(cuMemAlloc(&block, 4 * kMiB));
    MUST(cuIpcGetMemHandle(&handle, block));
    char done = 0;
    const bool told = write(to_parent_[1], &handle, sizeof handle) == sizeof handle;
    std::_Exit(told && read(to_child_[0], &done, 1) == 1 ? 0 : 1);
  }

  // The current context reaches the block's device from now on.
  void open_lazily() const {
    CUipcMemHandle handle;
    CUdeviceptr block = 0;
    if (read(to_parent_[0], &handle, sizeof handle) != sizeof handle) std::_Exit(1);
    MUST(cuIpcOpenMemHandle(&block, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  }

  void end() const {
    if (write(to_child_[1], "x", 1) == 1) waitpid(process_, nullptr, 0);
  }

 private:
  int to_parent_[2], to_child_[2];
  pid_t process_;
};

// A copy to new memory of the other context.
Copy begin_beside(const Worker& owner, const Worker& other, bool held) {
  CUdeviceptr from = 0, to = 0;
  owner.use();
  MUST(cuMemAlloc(&from, kCopied));
  other.use();
  MUST(cuMemAlloc(&to, kCopied));
  const Copy copy{to, other.context, from, owner.context, timed::new_stream()};
  if (held) MUST(timed::fill_words(other.kernels, copy.stream, to, 0, 0, 2 * kDelayUs));
  MUST(peer(copy));
  return copy;
}

void copy_beside(const Worker& owner, const Worker& other) {
  MUST(cuStreamSynchronize(begin_beside(owner, other, /*held=*/false).stream));
}

const Worker* third_one() {
  CUcontext context = nullptr;
  MUST(cuCtxCreate(&context, nullptr, 0, 0));
  return new Worker(context);
}

CUresult by_kernel(const Worker& worker, CUdeviceptr block, CUdeviceptr total, bool reads) {
  return reads ? timed::sum_words(worker.kernels, worker.stream, block, kWords, total, kDelayUs)
               : timed::fill_words(worker.kernels, worker.stream, block, kWords, 9, kDelayUs);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const bool reads = std::strcmp(argv[2], "reads") == 0, same_device = std::atoi(argv[3]) == 0;
  const bool kernel = std::strncmp(argv[1], "kernel", 6) == 0;
  const size_t bytes = std::strtoull(argv[4], nullptr, 10);
  end_if_it_hangs();
  const bool opened = std::strcmp(argv[1], "kernel_opened") == 0;
  const Exporter* const exporter = opened ? new Exporter : nullptr;
  const Worker owner(use_device(0));
  CUcontext second = nullptr;
  if (same_device) {
    MUST(cuCtxCreate(&second, nullptr, 0, 0));
  } else {
    second = use_device(1);
  }
  const Worker other(second);
  const Worker* const third =
      argc > 5 && std::strcmp(argv[5], "third") == 0 ? third_one() : nullptr;
  CUdeviceptr own = 0, block = 0, next = 0;
  other.use();
  MUST(cuMemAlloc(&own, kCopied));
  MUST(cuMemsetD32(own, 1, kWords));
  MUST(cuCtxSynchronize());
  owner.use();
  MUST(cuMemAlloc(&block, bytes));
  MUST(cuMemsetD32(block, 3, kWords));
  MUST(cuCtxSynchronize());

  Copy before{};
  if (third != nullptr) before = begin_beside(*third, other, /*held=*/false);
  other.use();
  if (kernel) {
    if (opened) {
      exporter->open_lazily();
    } else {
      MUST(cuCtxEnablePeerAccess(owner.context, 0));
    }
    MUST(by_kernel(other, block, own, reads));
    if (std::strcmp(argv[1], "kernel_no_more") == 0) MUST(cuCtxDisablePeerAccess(owner.context));
  } else {
    CUstream stream = std::strcmp(argv[1], "peer_now") == 0 ? CU_STREAM_LEGACY : other.stream;
    MUST(timed::fill_words(other.kernels, stream, own, 0, 0, kDelayUs));
    const Copy in{own, other.context, block, owner.context, other.stream};
    const Copy out{block, owner.context, own, other.context, other.stream};
    for (const auto& form : kForms) {
      if (std::strcmp(form.name, argv[1]) == 0) MUST(form.submit(reads ? in : out));
    }
  }
  if (third != nullptr) {
    MUST(cuStreamSynchronize(before.stream));
    owner.use();
    allocate_and_free(1, kMiB);
    begin_beside(*third, other, /*held=*/true);
  }
  if (argc > 5) copy_beside(third == nullptr ? owner : *third, other);

  owner.use();
  MUST(cuMemFree(block));
  MUST(cuCtxSynchronize());
  MUST(cuMemAlloc(&next, bytes));
  MUST(cuMemsetD32(next, 5, kWords));
  MUST(cuCtxSynchronize());
  other.use();
  MUST(cuCtxSynchronize());
  uint32_t seen = 0, kept = 0;
  MUST(cuMemcpyDtoH(&seen, own, sizeof seen));
  owner.use();
  MUST(cuMemcpyDtoH(&kept, next, sizeof kept));
  std::printf("there %u, here %u\n", seen, kept);
  if (opened) exporter->end();
  return 0;
}
