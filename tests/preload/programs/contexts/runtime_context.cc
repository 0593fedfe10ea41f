// SPDX-License-Identifier: Apache-2.0
// Contexts that no hook saw made: those of NVIDIA's runtime are the program's own, others are not.
// It asks for the driver's tables as that runtime does, takes a context, and allocates and frees.
//
//   runtime_context FORM
//
// FORM: made (by the driver's table, made current, then retained), again (twice, with a reset in
// between), refused (the first retain fails), kept (made, and never retained); of a plugin that
// bypasses any preload: hidden (retained by it), strange (created by it), turns (two of those, made
// current in turn).

#include <dlfcn.h>

#include <cstring>

#include "../driver_codes.h"
#include "simcuda/runtime_table.h"

namespace {

using GetExportTable = CUresult(const void** table, const CUuuid* id);

CUcontext made_by_table() {
  void* function = nullptr;
  const void* table = nullptr;
  CUcontext context = nullptr;
  SAY(cuGetProcAddress("cuGetExportTable", &function, 3000, 0, nullptr));
  SAY(reinterpret_cast<GetExportTable*>(function)(&table, &simcuda::kRuntimeTable));
  SAY(static_cast<const simcuda::RuntimeTable*>(table)->make_primary(&context, 0));
  SAY(cuCtxSetCurrent(context));
  return context;
}

CUcontext of_plugin(const char* function) {
  using Take = int(CUcontext*, CUdevice);
  void* plugin = dlopen("libdeepbind_user.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  CUcontext context = nullptr;
  SAY(static_cast<CUresult>(reinterpret_cast<Take*>(dlsym(plugin, function))(&context, 0)));
  return context;
}

void retain() {
  CUcontext retained = nullptr;
  SAY(cuDevicePrimaryCtxRetain(&retained, 0));
}

void ask_for_tables() {
  void* function = nullptr;
  SAY(cuGetProcAddress("cuGetExportTable", &function, 3000, 0, nullptr));
}

void take_turns() {
  CUcontext both[] = {of_plugin("plugin_context_on"), of_plugin("plugin_context_on")};
  for (int i = 0; i < 10; ++i) {
    for (CUcontext context : both) cuCtxSetCurrent(context);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto is = [&](const char* form) { return argc > 1 && std::strcmp(argv[1], form) == 0; };
  const bool by_runtime = is("made") || is("again") || is("refused") || is("kept");
  SAY(cuInit(0));
  if (by_runtime) made_by_table();
  if (by_runtime && !is("kept")) retain();
  if (is("again")) {
    allocate_and_free(5, 3 * kMiB);
    SAY(cuDevicePrimaryCtxReset(0));
  }
  if (is("again") || is("refused")) {
    made_by_table();
    retain();
  }
  if (!by_runtime) ask_for_tables();
  if (is("turns")) take_turns();
  if (is("hidden") || is("strange")) {
    CUcontext context = of_plugin(is("hidden") ? "plugin_primary" : "plugin_context_on");
    SAY(cuCtxSetCurrent(nullptr));
    SAY(cuCtxSetCurrent(context));
  }
  allocate_and_free(20, 3 * kMiB);
  return 0;
}
