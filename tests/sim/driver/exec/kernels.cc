// SPDX-License-Identifier: Apache-2.0
#include "exec/kernels.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/handles.h"
#include "base/settings.h"
#include "base/tsan.h"
#include "exec/context.h"
#include "exec/out_of_order.h"
#include "exec/variables.h"
#include "simcuda/globals.h"

namespace simcuda {
namespace {

struct Module {
  TakenRef taken{};  // set before anyone else knows the module
  std::mutex mutex{};
  std::unordered_map<std::string_view, CUfunction> functions{};  // already handed out
  Context* owner = nullptr;                                      // of a module; null for a library
  Variables variables{};
};

template <class Handle, class Object>
HandleTable<Handle, Object>& table() {
  static auto& all = *new HandleTable<Handle, Object>;
  return all;
}

constexpr uintptr_t kKernelBit = 1;

auto& modules() { return table<CUmodule, Module>(); }
auto& libraries() { return table<CUlibrary, Module>(); }
auto& functions() { return table<CUfunction, Function>(); }

struct Twins {
  std::mutex mutex;
  std::unordered_map<std::string_view, const SimcudaKernel*> by_name;
  std::set<std::string, std::less<>> missing;  // that were told

  void add(const SimcudaKernel* kernels, size_t count) {
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < count; ++i) by_name.emplace(kernels[i].name, &kernels[i]);
  }
};

void add_library(const std::string& path, Twins& twins) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* entry = library == nullptr ? nullptr : dlsym(library, "simcuda_kernels");
  if (entry == nullptr) {
    const char* why = dlerror();
    std::fprintf(stderr, "simcuda: error: SIMCUDA_KERNELS; value \"%s\"; %s\n", path.c_str(),
                 why == nullptr ? "not a library of kernel twins" : why);
    return;
  }
  size_t count = 0;
  const auto list = reinterpret_cast<decltype(&simcuda_kernels)>(entry);
  const SimcudaKernel* kernels = list(&count);
  twins.add(kernels, count);
}

Twins& twins() {
  static Twins& all = *[] {
    auto* made = new Twins;
    for (const std::string& path : settings().kernel_libraries) add_library(path, *made);
    return made;
  }();
  return all;
}

// To the program it is as if its code lacked the kernel, which says nothing of the simulator.
void tell_missing(std::string_view name, Twins& twins) {
  if (!settings().tells_missing_kernels || !twins.missing.emplace(name).second) return;
  const char* libraries = std::getenv("SIMCUDA_KERNELS");
  std::fprintf(stderr,
               "simcuda: error: a kernel that the simulator cannot run; value \"%.*s\"; allowed: "
               "kernels of the libraries in SIMCUDA_KERNELS, now \"%s\"; try: add there a library "
               "with its twin (tests/sim/README.md, Kernels)\n",
               static_cast<int>(name.size()), name.data(), libraries == nullptr ? "" : libraries);
}

const SimcudaKernel* find_twin(std::string_view name) {
  Twins& all = twins();
  const std::lock_guard lock(all.mutex);
  const auto found = all.by_name.find(name);
  if (found != all.by_name.end()) return found->second;
  tell_missing(name, all);
  return nullptr;
}

// One handle per function of a module, however often it is asked for.
CUresult hand_out(Module& module, const char* name, const Function& owner, CUfunction* handle) {
  const SimcudaKernel* twin = find_twin(name);
  if (twin == nullptr) return CUDA_ERROR_NOT_FOUND;
  const std::lock_guard lock(module.mutex);
  CUfunction& known = module.functions[twin->name];
  if (known == nullptr) {
    known =
        functions().insert(std::make_shared<Function>(Function{twin, owner.module, owner.library}));
  }
  *handle = known;
  return CUDA_SUCCESS;
}

void forget_functions(Module& module) {
  for (const auto& [name, function] : module.functions) functions().remove(function);
}

// The launch's own copy of its parameters: the caller's die when the call returns.
class Params {
 public:
  Params(const SimcudaKernel& twin, void** params, const char* buffer) {
    size_t offset = 0;
    for (uint32_t i = 0; i < twin.param_count; ++i) {
      const size_t size = twin.param_sizes[i];
      const size_t align = size >= 16 ? 16 : size;  // sizes are powers of two up to vectors
      offset = (offset + align - 1) / align * align;
      offsets_.push_back(offset);
      bytes_.resize(offset + size);
      std::memcpy(bytes_.data() + offset, params != nullptr ? params[i] : buffer + offset, size);
      offset += size;
    }
  }

  std::vector<void*> pointers() {
    std::vector<void*> all;
    for (size_t offset : offsets_) all.push_back(bytes_.data() + offset);
    return all;
  }

 private:
  std::vector<size_t> offsets_;
  std::vector<char> bytes_;
};

const char* parameter_buffer(void** extra) {
  if (extra == nullptr) return nullptr;
  for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) return static_cast<const char*>(extra[1]);
  }
  return nullptr;
}

SimcudaLaunch describe(const LaunchShape& shape, void** params) {
  return {{shape.grid[0], shape.grid[1], shape.grid[2]},
          {shape.block[0], shape.block[1], shape.block[2]},
          shape.shared_bytes,
          params};
}

void add_range(void* sink, SimcudaRange range) {
  const Touch touch = range.touch == SIMCUDA_READS    ? Touch::kRead
                      : range.touch == SIMCUDA_WRITES ? Touch::kWrite
                                                      : Touch::kUpdate;
  static_cast<std::vector<Access>*>(sink)->push_back({range.address, range.bytes, touch});
}

// A kernel's code is loaded at its first launch in a context.
CUresult load_lazily(Call call, const Function& function, Context& context) {
  const std::lock_guard lock(function.loaded->mutex);
  auto& contexts = function.loaded->contexts;
  if (contexts.contains(context.id())) return CUDA_SUCCESS;
  TakenRef taken;
  const CUresult code = take_for(call, context, &taken);
  if (code == CUDA_SUCCESS) contexts.emplace(context.id(), std::move(taken));
  return code;
}

bool valid(const LaunchShape& shape) {
  for (int i = 0; i < 3; ++i) {
    if (shape.grid[i] == 0 || shape.block[i] == 0) return false;
  }
  return uint64_t{shape.block[0]} * shape.block[1] * shape.block[2] <= 1024;
}

}  // namespace

CUresult load_module(Call call, Context& context, const void* image, CUmodule* module) {
  auto loaded = std::make_shared<Module>();
  CUresult code = take_for(call, context, &loaded->taken);
  if (code == CUDA_SUCCESS) {
    loaded->owner = &context;
    loaded->variables.declare(variables_of_image(image));
    code = loaded->variables.place_all(context);
  }
  if (code == CUDA_SUCCESS) *module = modules().insert(std::move(loaded));
  return code;
}

CUresult unload_module(CUmodule handle) {
  const auto module = modules().remove(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  forget_functions(*module);
  return CUDA_SUCCESS;
}

CUresult load_library(Call call, Context* context, const void* image, CUlibrary* library) {
  auto loaded = std::make_shared<Module>();
  loaded->variables.declare(variables_of_image(image));
  const CUresult code =
      context == nullptr ? CUDA_SUCCESS : take_for(call, *context, &loaded->taken);
  if (code == CUDA_SUCCESS) *library = libraries().insert(std::move(loaded));
  return code;
}

CUresult unload_library(CUlibrary handle) {
  const auto library = libraries().remove(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  forget_functions(*library);
  return CUDA_SUCCESS;
}

CUresult find_function(CUmodule handle, const char* name, CUfunction* function) {
  const auto module = modules().find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return hand_out(*module, name, {nullptr, handle, nullptr}, function);
}

CUresult find_kernel(CUlibrary handle, const char* name, CUkernel* kernel) {
  const auto library = libraries().find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUfunction function = nullptr;
  const CUresult code = hand_out(*library, name, {nullptr, nullptr, handle}, &function);
  if (code == CUDA_SUCCESS) {
    *kernel = reinterpret_cast<CUkernel>(reinterpret_cast<uintptr_t>(function) | kKernelBit);
  }
  return code;
}

CUresult find_variable(CUmodule handle, const char* name, CUdeviceptr* address, size_t* bytes) {
  const auto module = modules().find(handle);
  if (module == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return module->variables.find(*module->owner, name, address, bytes);
}

CUresult find_variable(Context& context, CUlibrary handle, const char* name, CUdeviceptr* address,
                       size_t* bytes) {
  const auto library = libraries().find(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return library->variables.find(context, name, address, bytes);
}

bool is_kernel(CUfunction handle) {
  return (reinterpret_cast<uintptr_t>(handle) & kKernelBit) != 0;
}

CUfunction without_kernel_bit(CUfunction handle) {
  return reinterpret_cast<CUfunction>(reinterpret_cast<uintptr_t>(handle) & ~kKernelBit);
}

std::shared_ptr<Function> function_of(CUfunction handle) {
  return functions().find(without_kernel_bit(handle));
}

CUresult launch(Call call, CUfunction handle, const LaunchShape& shape, const StreamRef& stream,
                void** params, void** extra, Start start) {
  const auto function = function_of(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const SimcudaKernel& twin = *function->twin;
  const char* buffer = parameter_buffer(extra);
  const bool missing = twin.param_count != 0 && params == nullptr && buffer == nullptr;
  if (!valid(shape) || missing) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult code = load_lazily(call, *function, stream->context); code != CUDA_SUCCESS) {
    return code;
  }

  Params own(twin, params, buffer);
  Work work{.call = call, .kernel = twin.name};
  {
    std::vector<void*> pointers = own.pointers();
    const SimcudaLaunch now = describe(shape, pointers.data());
    twin.ranges(&now, add_range, &work.accesses);
    if (twin.duration_ns != nullptr) work.takes_ns = twin.duration_ns(&now);
  }
  work.run = [body = twin.body, shape, own = std::move(own)]() mutable {
    std::vector<void*> pointers = own.pointers();
    const SimcudaLaunch later = describe(shape, pointers.data());
    const UnseenByTsan unseen;
    body(&later);
  };
  return start == Start::kEarly ? submit_early(stream, std::move(work))
                                : submit(stream, std::move(work));
}

}  // namespace simcuda

extern "C" __attribute__((visibility("default"))) void simcuda_add_global(CUlibrary handle,
                                                                          const char* name,
                                                                          size_t bytes) {
  const auto library = simcuda::libraries().find(handle);
  if (library != nullptr) library->variables.declare({{.name = name, .bytes = bytes}});
}

extern "C" __attribute__((visibility("default"))) void simcuda_add_kernels(
    const SimcudaKernel* kernels, size_t count) {
  simcuda::twins().add(kernels, count);
}
