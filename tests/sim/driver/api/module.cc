// SPDX-License-Identifier: Apache-2.0
//
// Modules, libraries, functions and launches.
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>

#include "api/api.h"
#include "exec/kernels.h"
#include "memory/device.h"

using namespace simcuda;

namespace {

// Loads a module: any image will do, as kernels come from their twins.
CUresult load(Call id, CUmodule* module, const void* image) {
  if (module == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return in_context([&](Context& context) { return load_module(id, context, image, module); });
}

// A file that cannot be read loads as well, as any image does; it declares nothing.
CUresult load_file(const char* name, std::string* image) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::ifstream file(name, std::ios::binary);
  image->assign(std::istreambuf_iterator<char>(file), {});
  return CUDA_SUCCESS;
}

// Each parameter lies where C++ puts it in a struct, its size taken for its alignment, 8 at most.
CUresult parameter_of(CUfunction handle, size_t index, size_t* offset, size_t* size) {
  const auto function = function_of(handle);
  if (function == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const SimcudaKernel& twin = *function->twin;
  if (index >= twin.param_count || offset == nullptr) return CUDA_ERROR_INVALID_VALUE;
  size_t at = 0;
  for (size_t i = 0; i <= index; ++i) {
    const size_t bytes = twin.param_sizes[i], align = bytes % 8 == 0 ? 8 : bytes % 4 == 0 ? 4 : 1;
    *offset = (at + align - 1) / align * align;
    at = *offset + bytes;
  }
  if (size != nullptr) *size = twin.param_sizes[index];
  return CUDA_SUCCESS;
}

Start start_of(const CUlaunchConfig& config) {
  for (unsigned i = 0; config.attrs != nullptr && i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute.value.programmaticStreamSerializationAllowed != 0) {
      return Start::kEarly;
    }
  }
  return Start::kInOrder;
}

CUresult attribute_of(CUfunction_attribute attribute, CUfunction function, int* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (function_of(function) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      *value = 32;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      *value = 90;
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return attribute < CU_FUNC_ATTRIBUTE_MAX ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult name_of(CUfunction function, const char** name) {
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = function_of(function);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *name = found->twin->name;
  return CUDA_SUCCESS;
}

CUfunction as_function(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

}  // namespace

extern "C" {

CUresult cuModuleLoad(CUmodule* module, const char* fname) {
  return call(
      Call::cuModuleLoad,
      [&] {
        std::string image;
        const CUresult code = load_file(fname, &image);
        return code != CUDA_SUCCESS ? code : load(Call::cuModuleLoad, module, image.c_str());
      },
      out("module", module), text("fname", fname));
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return call(
      Call::cuModuleLoadData, [&] { return load(Call::cuModuleLoadData, module, image); },
      out("module", module));
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned int numOptions,
                            CUjit_option* options, void** optionValues) {
  return call(
      Call::cuModuleLoadDataEx, [&] { return load(Call::cuModuleLoadDataEx, module, image); },
      out("module", module));
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* fatCubin) {
  return call(
      Call::cuModuleLoadFatBinary,
      [&] { return load(Call::cuModuleLoadFatBinary, module, fatCubin); }, out("module", module));
}

CUresult cuModuleUnload(CUmodule hmod) {
  return call(
      Call::cuModuleUnload,
      [&] {
        if (Context* current = current_context()) wait_for_context(*current);
        return unload_module(hmod);
      },
      in("hmod", hmod));
}

CUresult cuModuleGetFunction(CUfunction* hfunc, CUmodule hmod, const char* name) {
  return call(
      Call::cuModuleGetFunction,
      [&] {
        if (hfunc == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return find_function(hmod, name, hfunc);
      },
      out("hfunc", hfunc), in("hmod", hmod), text("name", name));
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* dptr, size_t* bytes, CUmodule hmod, const char* name) {
  return call(Call::cuModuleGetGlobal_v2, [&] {
    if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    return find_variable(hmod, name, dptr, bytes);
  });
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode* mode) {
  return call(Call::cuModuleGetLoadingMode, [&] {
    if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
  });
}

CUresult cuLibraryLoadData(CUlibrary* library, const void* code, CUjit_option* jitOptions,
                           void** jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption* libraryOptions, void** libraryOptionValues,
                           unsigned int numLibraryOptions) {
  return call(Call::cuLibraryLoadData, [&] {
    if (library == nullptr || code == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return load_library(Call::cuLibraryLoadData, current_context(), code, library);
  });
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* fileName, CUjit_option* jitOptions,
                               void** jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption* libraryOptions, void** libraryOptionValues,
                               unsigned int numLibraryOptions) {
  return call(Call::cuLibraryLoadFromFile, [&] {
    std::string image;
    if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult code = load_file(fileName, &image);
    if (code != CUDA_SUCCESS) return code;
    return load_library(Call::cuLibraryLoadFromFile, current_context(), image.c_str(), library);
  });
}

CUresult cuLibraryGetGlobal(CUdeviceptr* dptr, size_t* bytes, CUlibrary library, const char* name) {
  return call(Call::cuLibraryGetGlobal, [&] {
    if (name == nullptr || (dptr == nullptr && bytes == nullptr)) return CUDA_ERROR_INVALID_VALUE;
    return in_context(
        [&](Context& context) { return find_variable(context, library, name, dptr, bytes); });
  });
}

CUresult cuLibraryUnload(CUlibrary library) {
  return call(Call::cuLibraryUnload, [&] { return unload_library(library); });
}

CUresult cuLibraryGetKernel(CUkernel* pKernel, CUlibrary library, const char* name) {
  return call(
      Call::cuLibraryGetKernel,
      [&] {
        if (pKernel == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
        return find_kernel(library, name, pKernel);
      },
      out("pKernel", pKernel), in("library", library), text("name", name));
}

CUresult cuKernelGetFunction(CUfunction* pFunc, CUkernel kernel) {
  return call(Call::cuKernelGetFunction, [&] {
    if (pFunc == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (function_of(as_function(kernel)) == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    *pFunc = without_kernel_bit(as_function(kernel));
    return CUDA_SUCCESS;
  });
}

CUresult cuKernelGetName(const char** name, CUkernel hfunc) {
  return call(Call::cuKernelGetName, [&] { return name_of(as_function(hfunc), name); });
}

CUresult cuFuncGetName(const char** name, CUfunction hfunc) {
  return call(Call::cuFuncGetName, [&] { return name_of(hfunc, name); });
}

CUresult cuFuncGetModule(CUmodule* hmod, CUfunction hfunc) {
  return call(Call::cuFuncGetModule, [&] {
    const auto function = function_of(hfunc);
    if (hmod == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *hmod = function->module;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetAttribute(int* pi, CUfunction_attribute attrib, CUfunction hfunc) {
  return call(Call::cuFuncGetAttribute, [&] { return attribute_of(attrib, hfunc, pi); });
}

CUresult cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t* paramOffset,
                            size_t* paramSize) {
  return call(Call::cuFuncGetParamInfo, [&] {
    if (is_kernel(func)) return CUDA_ERROR_INVALID_HANDLE;
    return parameter_of(func, paramIndex, paramOffset, paramSize);
  });
}

CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t* paramOffset,
                              size_t* paramSize) {
  return call(Call::cuKernelGetParamInfo, [&] {
    return parameter_of(as_function(kernel), paramIndex, paramOffset, paramSize);
  });
}

CUresult cuKernelGetAttribute(int* pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev) {
  return call(Call::cuKernelGetAttribute,
              [&] { return attribute_of(attrib, as_function(kernel), pi); });
}

CUresult cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value) {
  return call(Call::cuFuncSetAttribute, [&] {
    return function_of(hfunc) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  });
}

CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev) {
  return call(Call::cuKernelSetAttribute, [&] {
    if (find_device(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
    return function_of(as_function(kernel)) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  });
}

CUresult cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config) {
  return call(Call::cuFuncSetCacheConfig, [&] {
    return function_of(hfunc) == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
  });
}

SIM_PAIR(cuLaunchKernel, _ptsz,
         (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
          unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
          unsigned int sharedMemBytes, CUstream hStream, void** kernelParams, void** extra),
         return call(
             kCall,
             [&] {
               return on_stream(hStream, kDefault, [&](const StreamRef& target) {
                 return launch(kCall, f,
                               {{gridDimX, gridDimY, gridDimZ},
                                {blockDimX, blockDimY, blockDimZ},
                                sharedMemBytes},
                               target, kernelParams, extra);
               });
             },
             in("f", f), in("gridDimX", gridDimX), in("gridDimY", gridDimY),
             in("gridDimZ", gridDimZ), in("blockDimX", blockDimX), in("blockDimY", blockDimY),
             in("blockDimZ", blockDimZ), in("sharedMemBytes", sharedMemBytes), stream(hStream));)

SIM_PAIR(cuLaunchKernelEx, _ptsz,
         (const CUlaunchConfig* config, CUfunction f, void** kernelParams, void** extra),
         if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
         return call(
             kCall,
             [&] {
               return on_stream(config->hStream, kDefault, [&](const StreamRef& target) {
                 return launch(kCall, f,
                               {{config->gridDimX, config->gridDimY, config->gridDimZ},
                                {config->blockDimX, config->blockDimY, config->blockDimZ},
                                config->sharedMemBytes},
                               target, kernelParams, extra, start_of(*config));
               });
             },
             in("f", f), in("gridDimX", config->gridDimX), in("gridDimY", config->gridDimY),
             in("gridDimZ", config->gridDimZ), in("blockDimX", config->blockDimX),
             in("blockDimY", config->blockDimY), in("blockDimZ", config->blockDimZ),
             in("sharedMemBytes", config->sharedMemBytes), stream(config->hStream));)

SIM_PAIR(cuLaunchCooperativeKernel, _ptsz,
         (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
          unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
          unsigned int sharedMemBytes, CUstream hStream, void** kernelParams),
         return call(
             kCall,
             [&] {
               return on_stream(hStream, kDefault, [&](const StreamRef& target) {
                 return launch(kCall, f,
                               {{gridDimX, gridDimY, gridDimZ},
                                {blockDimX, blockDimY, blockDimZ},
                                sharedMemBytes},
                               target, kernelParams, nullptr);
               });
             },
             in("f", f), in("gridDimX", gridDimX), in("gridDimY", gridDimY),
             in("gridDimZ", gridDimZ), in("blockDimX", blockDimX), in("blockDimY", blockDimY),
             in("blockDimZ", blockDimZ), in("sharedMemBytes", sharedMemBytes), stream(hStream));)

}  // extern "C"
