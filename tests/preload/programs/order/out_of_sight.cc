// SPDX-License-Identifier: Apache-2.0
// Frees wait once something hands over work that no hook sees, or looks at memory unseen.
//
//   out_of_sight USE
//
// USE: decoder, encoder, optix, table (of the driver's own functions); runtime (asks for that table
// as NVIDIA's does), management (asks as NVIDIA's management library does); loaded (all of these
// are looked up, and none is called); verbs, gdrcopy, storage (a device that is open), tokens and
// dmabuf (shared with one), closed and named_alike (none is); linked (a library is, with a
// decoder), alone (that decoder is loaded, and nothing linked with it).

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "../reclaim/debts_workplace.h"
#include "../watch_time.h"

namespace {

void* g_library;
const char* g_use;

bool is(const char* use) { return std::strcmp(g_use, use) == 0; }

template <typename Function>
Function* find(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr || dlsym(library, name) != found) std::printf("%s: not found\n", name);
  return reinterpret_cast<Function*>(found);
}

void say_sum(long sum) { std::printf("sum %ld\n", sum); }

using GetExportTable = CUresult(const void**, const CUuuid*);

void look_up_and_call(bool calls) {
  const auto decoder = find<long(long, long)>(g_library, "cuvidCreateDecoder");
  const auto encoder = find<long(long)>(g_library, "NvEncodeAPICreateInstance");
  const auto optix =
      find<long(long, long, long, long, long, long)>(g_library, "optixQueryFunctionTable");
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  const auto table = find<GetExportTable>(driver, "cuGetExportTable");
  if (!calls) return;
  const void* none = nullptr;
  const CUuuid id{};
  if (is("decoder")) say_sum(decoder(1, 2));
  if (is("encoder")) say_sum(encoder(3));
  if (is("optix")) say_sum(optix(1, 2, 3, 4, 5, 6));
  if (is("table")) SAY(table(&none, &id));
}

void ask_as_the_runtime() {
  void* function = nullptr;
  const void* none = nullptr;
  const CUuuid id{};
  MUST(cuGetProcAddress("cuGetExportTable", &function, 12000, 0, nullptr));
  SAY(reinterpret_cast<GetExportTable*>(function)(&none, &id));
}

void start_management() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  SAY(find<CUresult()>(library, "nvmlInit_v2")());
}

// A file with a device's name, below a folder of its own.
class Device {
 public:
  explicit Device(const char* name) {
    char folder[] = "/tmp/cistern-devices-XXXXXX";
    if (mkdtemp(folder) == nullptr) return;
    folders_[0] = folder;
    folders_[1] = folders_[0] + "/dev";
    folders_[2] = folders_[1] + "/infiniband";
    for (int i = 1; i < 3; ++i) mkdir(folders_[i].c_str(), 0700);
    file_ = folders_[1] + "/" + name;
    descriptor_ = open(file_.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor_ < 0) std::printf("%s: not made\n", name);
  }
  ~Device() {
    close_it();
    unlink(file_.c_str());
    for (int i = 2; i >= 0; --i) rmdir(folders_[i].c_str());
  }
  void close_it() {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = -1;
  }

 private:
  std::string folders_[3], file_;
  int descriptor_ = -1;
};

// Frees of which each is behind work: the first before the use, the others after it. The last is
// behind nothing that a hook saw: it finds what was handed over out of sight.
template <typename Use>
void use(Workplace& at, Use begin) {
  at.write_and_free(at.first);
  begin();
  for (int i = 0; i < 3; ++i) at.write_and_free(at.first);
  MUST(cuCtxSynchronize());
  MUST(cuMemFree(new_block(1000)));
}

void use_device_of(Workplace& at, const char* name) {
  Device device(name);
  if (is("closed")) device.close_it();
  use(at, [] {});
}

// The program reads what a free waited for.
void hidden_work(Workplace& at) {
  const auto fill = find<int(CUdeviceptr, unsigned, size_t, CUstream)>(g_library, "hidden_fill");
  uint32_t* memory = new_pinned();
  const CUdeviceptr block = new_block(1000);
  MUST(cuCtxSynchronize());
  memory[0] = 0;
  if (fill(reinterpret_cast<CUdeviceptr>(memory), 7, 1, at.first) != 0) std::printf("no fill\n");
  MUST(cuMemFree(block));
  std::printf("read behind a free: %u\n", static_cast<const volatile uint32_t*>(memory)[0]);
}

void share(Workplace& at) {
  const CUdeviceptr block = new_block(2 * kMiB);
  use(at, [&] {
    int descriptor = -1;
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens{};
    if (is("tokens")) cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, block);
    if (is("dmabuf")) {
      cuMemGetHandleForAddressRange(&descriptor, block, 2 * kMiB,
                                    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  g_use = argv[1];
  end_if_it_hangs();
  // Before CUDA starts, when links are looked for.
  if (is("linked") && dlopen("liblinks_decoder.so", RTLD_NOW) == nullptr) std::printf("none\n");
  if (is("alone") && dlopen("libnvcuvid.so", RTLD_NOW) == nullptr) std::printf("none\n");
  use_device(0);
  Workplace at;
  MUST(cuCtxSynchronize());
  g_library = dlopen("libout_of_sight.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (g_library == nullptr) return std::printf("no library\n"), 1;
  if (is("verbs")) use_device_of(at, "infiniband/uverbs0");
  if (is("gdrcopy")) use_device_of(at, "gdrdrv");
  if (is("storage") || is("closed")) use_device_of(at, "nvidia-fs3");
  if (is("named_alike")) use_device_of(at, "gdrdrv.c");
  if (is("tokens") || is("dmabuf")) share(at);
  const bool calls = is("decoder") || is("encoder") || is("optix") || is("table");
  if (calls || is("loaded")) use(at, [=] { look_up_and_call(calls); });
  if (is("linked") || is("alone")) use(at, [] {});
  if (is("runtime")) use(at, ask_as_the_runtime);
  if (is("management")) use(at, start_management);
  if (calls) hidden_work(at);
  std::printf("done\n");
  return 0;
}
