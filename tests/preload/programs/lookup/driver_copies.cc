// SPDX-License-Identifier: Apache-2.0
// The driver closed and opened again, by a link, and as a copy under another path.
// A link to the same file is the same library, a copy of it another one. Each gives its own
// functions, and all work.

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "../driver_session.h"

namespace {

std::string real_path(void* library) {
  const link_map* map = nullptr;
  dlinfo(library, RTLD_DI_LINKMAP, &map);
  return map->l_name;
}

template <class Function>
void find(void* library, const char* name, Function* out) {
  *out = reinterpret_cast<Function>(dlsym(library, name));
}

int session(const char* what, void* library) {
  std::printf("%s: opened %d\n", what, library != nullptr);
  if (library == nullptr) return 1;
  DriverCalls cu;
  find(library, "cuInit", &cu.init);
  find(library, "cuDevicePrimaryCtxRetain", &cu.retain);
  find(library, "cuCtxSetCurrent", &cu.set_current);
  find(library, "cuMemAlloc_v2", &cu.alloc);
  find(library, "cuMemFree_v2", &cu.free);
  find(library, "cuMemGetInfo_v2", &cu.info);
  find(library, "cuMemGetAddressRange_v2", &cu.range);
  find(library, "cuMemsetD8_v2", &cu.fill);
  find(library, "cuMemcpyHtoD_v2", &cu.to_device);
  find(library, "cuMemcpyDtoH_v2", &cu.to_host);
  find(library, "cuCtxSynchronize", &cu.synchronize);
  return run_session(cu);
}

void copy_file(const std::string& from, const std::string& to) {
  std::ifstream in(from, std::ios::binary);
  std::ofstream(to, std::ios::binary) << in.rdbuf();
}

}  // namespace

int main() {
  void* first = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  session("by name", first);
  const std::string path = real_path(first);
  void* again = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::printf("by path: the same %d\n", again == first);
  std::printf("closed: %d %d\n", dlclose(first), dlclose(again));
  session("closed and opened again", dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL));

  const std::string link = "./libcuda.so", copy = "./libcuda.so.1";
  if (symlink(path.c_str(), link.c_str()) != 0) return 1;
  void* linked = dlopen(link.c_str(), RTLD_NOW | RTLD_LOCAL);
  session("through a link", linked);
  copy_file(path, copy);
  void* copied = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  std::printf("the copy is the same %d\n", copied == linked);
  session("the copy", copied);
  session("the first once more", linked);
  std::printf("an error is one's own: %d\n", dlsym(copied, "cuNoSuchFunction") == nullptr);
  return 0;
}
