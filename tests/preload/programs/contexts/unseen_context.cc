// SPDX-License-Identifier: Apache-2.0
// A block that a context made out of sight still works on is not reused, and later it is.
// A plugin that bypasses any preload makes the context and its stream, and makes contexts current.
// What the context does to a block of the program's, one call of it at least without the plugin,
// may go on while the block is freed; the watcher tells if it is reused too early.
//
//   unseen_context FORM BYTES [tables]
//
// tables: the program asks for the driver's tables beforehand, as NVIDIA's runtime does.
// FORM: a copy from the block by peer unified device captured copy_3d_peer; one from pinned memory;
// a kernel after the program enabled peer access, or launched by it with something freed before;
// one that the plugin launched, and then in its context the program asked about memory, freed the
// block, came late (asked once the block was freed), waited for a stream, or made the context
// current and launched. gl vdpau: the program itself makes the context, for OpenGL or VDPAU.
// (enabled launched asked freed late waited current pinned)

#include <dlfcn.h>

#include <cstring>

#include "../driver_codes.h"
#include "../timed_code.h"
#include "../watch_time.h"

namespace {

constexpr size_t kWords = 256, kUsed = kWords * sizeof(uint32_t);
constexpr uint32_t kDelayUs = 30'000;

struct Plugin {
  void* library = dlopen("libdeepbind_user.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);

  template <typename... Parameters, typename... Arguments>
  void call(const char* name, int (*)(Parameters...), Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Parameters...)>(dlsym(library, name));
    timed::must(name, function == nullptr ? CUDA_ERROR_NOT_FOUND
                                          : static_cast<CUresult>(function(arguments...)));
  }
  CUcontext context_on(CUdevice device) const {
    CUcontext context = nullptr;
    call("plugin_context_on", static_cast<int (*)(CUcontext*, CUdevice)>(nullptr), &context,
         device);
    return context;
  }
  CUstream stream() const {
    CUstream stream = nullptr;
    call("plugin_stream", static_cast<int (*)(CUstream*)>(nullptr), &stream);
    return stream;
  }
  CUdeviceptr alloc(size_t bytes) const {
    CUdeviceptr block = 0;
    call("plugin_alloc", static_cast<int (*)(CUdeviceptr*, size_t)>(nullptr), &block, bytes);
    return block;
  }
  void use(CUcontext context) const {
    call("plugin_use", static_cast<int (*)(CUcontext)>(nullptr), context);
  }
  void reach(CUcontext context) const {
    call("plugin_reach", static_cast<int (*)(CUcontext)>(nullptr), context);
  }
  void fill(CUdeviceptr block, unsigned word, CUstream stream) const {
    call("plugin_fill", static_cast<int (*)(CUdeviceptr, unsigned, size_t, CUstream)>(nullptr),
         block, word, kWords, stream);
  }
  void launch(CUfunction kernel, CUstream stream, void** parameters) const {
    call("plugin_launch", static_cast<int (*)(CUfunction, CUstream, void**)>(nullptr), kernel,
         stream, parameters);
  }
};

// The context, and what its work needs.
struct Hidden {
  Hidden(const Plugin& by, CUcontext made) : plugin(by), context(made) {
    own = plugin.alloc(kUsed);
    plugin.fill(own, 0, stream);
  }
  const Plugin& plugin;
  CUcontext context;
  timed::Kernels kernels;
  CUstream stream = plugin.stream();
  CUdeviceptr own = 0;
};

const char* g_form;
bool is(const char* form) { return std::strcmp(g_form, form) == 0; }

CUcontext make_context(const Plugin& plugin) {
  CUcontext context = nullptr;
  if (is("gl")) {
    MUST(cuGLCtxCreate_v2(&context, 0, 1));
  } else if (is("vdpau")) {
    MUST(cuVDPAUCtxCreate_v2(&context, 0, 1, 0, nullptr));
  } else {
    context = plugin.context_on(1);
  }
  return context;
}

CUresult copy(const Hidden& hidden, CUdeviceptr block, CUcontext owner) {
  if (is("unified")) return cuMemcpyAsync(hidden.own, block, kUsed, hidden.stream);
  if (is("device")) return cuMemcpyDtoDAsync(hidden.own, block, kUsed, hidden.stream);
  if (!is("copy_3d_peer")) {
    return cuMemcpyPeerAsync(hidden.own, hidden.context, block, owner, kUsed, hidden.stream);
  }
  CUDA_MEMCPY3D_PEER c{};
  c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcDevice = block;
  c.srcContext = owner;
  c.dstDevice = hidden.own;
  c.dstContext = hidden.context;
  c.WidthInBytes = kUsed;
  c.Height = c.Depth = 1;
  return cuMemcpy3DPeerAsync(&c, hidden.stream);
}

void captured_copy(const Hidden& hidden, CUdeviceptr block, CUcontext owner) {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  MUST(cuStreamBeginCapture(hidden.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  MUST(copy(hidden, block, owner));
  MUST(cuStreamEndCapture(hidden.stream, &graph));
  MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
  MUST(cuGraphLaunch(exec, hidden.stream));
  MUST(cuGraphExecDestroy(exec));  // nothing is parked for its sake
  MUST(cuGraphDestroy(graph));
}

// A kernel of the hidden context that reads the block.
void kernel(const Hidden& hidden, CUdeviceptr block, CUcontext owner) {
  const Plugin& plugin = hidden.plugin;
  if (is("enabled")) {
    MUST(cuCtxEnablePeerAccess(owner, 0));
  } else {
    plugin.reach(owner);
  }
  if (is("current")) MUST(cuCtxSetCurrent(hidden.context));
  if (is("launched") || is("current")) {
    MUST(timed::sum_words(hidden.kernels, hidden.stream, block, kWords, hidden.own, kDelayUs));
    return;
  }
  size_t count = kWords, free = 0, total = 0;
  uint32_t delay = kDelayUs;
  CUdeviceptr words = block, sum = hidden.own;
  void* parameters[] = {&words, &count, &sum, &delay};
  plugin.launch(hidden.kernels.sum, hidden.stream, parameters);
  if (is("asked")) MUST(cuMemGetInfo(&free, &total));
  if (is("waited")) MUST(cuStreamSynchronize(plugin.stream()));
  if (is("freed")) MUST(cuMemFree(block));
  if (!is("late")) return;
  plugin.use(owner);
  MUST(cuMemFree(block));
  plugin.use(hidden.context);
  MUST(cuMemGetInfo(&free, &total));
}

void with_pinned(const Hidden& hidden, CUcontext owner) {
  const Plugin& plugin = hidden.plugin;
  void *block = nullptr, *next = nullptr;
  plugin.use(owner);
  MUST(cuMemHostAlloc(&block, kUsed, CU_MEMHOSTALLOC_PORTABLE));
  std::memset(block, 3, kUsed);
  plugin.use(hidden.context);
  plugin.fill(hidden.own, 0, hidden.stream);
  MUST(cuMemcpyHtoDAsync(hidden.own, block, kUsed, hidden.stream));
  plugin.use(owner);
  MUST(cuMemFreeHost(block));
  MUST(cuCtxSynchronize());
  MUST(cuMemHostAlloc(&next, kUsed, CU_MEMHOSTALLOC_PORTABLE));
  std::memset(next, 5, kUsed);
  plugin.use(hidden.context);
  MUST(cuCtxSynchronize());
  plugin.use(owner);
  MUST(cuMemFreeHost(next));
}

CUdeviceptr filled(size_t bytes, uint32_t word) {
  CUdeviceptr block = 0;
  MUST(cuMemAlloc(&block, bytes));
  MUST(cuMemsetD32(block, word, kWords));
  MUST(cuCtxSynchronize());
  return block;
}

uint32_t first_word(CUdeviceptr block) {
  uint32_t word = 0;
  MUST(cuMemcpyDtoH(&word, block, sizeof word));
  return word;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  end_if_it_hangs();
  g_form = argv[1];
  const size_t bytes = std::strtoull(argv[2], nullptr, 10);
  void* tables = nullptr;
  if (argc > 3) MUST(cuGetProcAddress("cuGetExportTable", &tables, 3000, 0, nullptr));
  const Plugin plugin;
  CUcontext owner = use_device(0);
  const Hidden hidden(plugin, make_context(plugin));
  const bool by_kernel = is("enabled") || is("launched") || is("asked") || is("freed") ||
                         is("late") || is("waited") || is("current");
  plugin.use(owner);
  if (is("pinned")) with_pinned(hidden, owner);
  const CUdeviceptr block = filled(bytes, 3);
  if (is("launched")) MUST(cuMemFree(filled(4096, 1)));
  plugin.use(hidden.context);
  if (by_kernel) kernel(hidden, block, owner);
  if (is("captured")) captured_copy(hidden, block, owner);
  if (!by_kernel && !is("captured") && !is("pinned")) {
    plugin.fill(hidden.own, 0, hidden.stream);
    MUST(copy(hidden, block, owner));
  }
  plugin.use(owner);
  if (!is("freed") && !is("late")) MUST(cuMemFree(block));
  MUST(cuCtxSynchronize());
  const CUdeviceptr next = filled(bytes, 5);
  plugin.use(hidden.context);
  MUST(cuCtxSynchronize());
  const uint32_t there = first_word(hidden.own);
  plugin.use(owner);
  std::printf("there %x, here %u\n", there, first_word(next));
  MUST(cuMemFree(next));

  // Once the program waits for both, what they leave is used again; and without the other.
  for (int i = 0; i < 20; ++i) {
    MUST(cuMemFree(filled(bytes, 7)));
    plugin.use(hidden.context);
    MUST(cuCtxSynchronize());
    plugin.use(owner);
    MUST(cuCtxSynchronize());
  }
  MUST(cuCtxDestroy(hidden.context));
  allocate_and_free(20, bytes);
  return 0;
}
