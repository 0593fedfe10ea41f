// SPDX-License-Identifier: Apache-2.0
//
// `cistern doctor [program]`: would it work here, and if not, what is in the way. Looks at the
// object, the settings, driver and devices, limits, and at the program (program.cc).
#include <dlfcn.h>
#include <glob.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <link.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "config/known.h"
#include "config/text.h"
#include "config/tool/tool.h"

namespace cistern::config::tool {
namespace {

std::string version_text(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// --- The machine

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Mon ..."
std::string kernel_module() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  const char* mark = "Kernel Module";
  const size_t at = line.find(mark);
  if (at == std::string::npos) return "none";
  std::istringstream rest(line.substr(at + std::strlen(mark)));
  std::string version;
  rest >> version;
  return version;
}

// Functions of the driver that the object does not know (config/known.h). An object without the
// list is an older one, and nothing is said.
size_t unknown_functions(const std::string& driver, const std::string& object) {
  const std::string bytes = section_of(object, kKnownNamesSection);
  std::vector<uint64_t> known(bytes.size() / sizeof(uint64_t));
  if (known.empty()) return 0;
  std::memcpy(known.data(), bytes.data(), known.size() * sizeof(uint64_t));
  size_t unknown = 0;
  for (const std::string& name : exported_functions(driver)) {
    const bool knows = std::binary_search(known.begin(), known.end(), name_hash(name));
    if (is_driver_name(name) && !knows) ++unknown;
  }
  return unknown;
}

// Asks the driver that a program would get. Returns the number of devices, or -1.
int check_driver(const std::string& object) {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    say("driver", "none: the loader finds no libcuda.so.1; kernel module " + kernel_module());
    return -1;
  }
  struct link_map* map = nullptr;
  ::dlinfo(library, RTLD_DI_LINKMAP, &map);
  const auto init = reinterpret_cast<int (*)(unsigned)>(::dlsym(library, "cuInit"));
  const auto version = reinterpret_cast<int (*)(int*)>(::dlsym(library, "cuDriverGetVersion"));
  const auto count = reinterpret_cast<int (*)(int*)>(::dlsym(library, "cuDeviceGetCount"));
  const std::string path = map == nullptr ? "libcuda.so.1" : map->l_name;
  if (init == nullptr || version == nullptr || count == nullptr) {
    say("driver", path + " is not a CUDA driver");
    return -1;
  }
  int number = 0;
  version(&number);
  say("driver", path + ", CUDA " + version_text(number) + "; kernel module " + kernel_module());
  if (const size_t unknown = unknown_functions(path, object); unknown != 0) {
    say("",
        "this driver is newer than Cistern: " + std::to_string(unknown) +
            " functions are unknown; once a program calls one, the driver serves all its requests");
  }
  if (const int code = init(0); code != 0) {
    say("devices", "none: cuInit returned error " + std::to_string(code));
    return -1;
  }
  int devices = 0;
  if (count(&devices) != 0) devices = -1;
  say("devices", std::to_string(devices));
  return devices;
}

// CUDA_VERSION from the header, which every toolkit has.
int toolkit_version(const std::string& folder) {
  std::ifstream header(folder + "/include/cuda.h");
  const std::string mark = "#define CUDA_VERSION ";
  for (std::string line; std::getline(header, line);) {
    if (line.rfind(mark, 0) == 0) return std::atoi(line.c_str() + mark.size());
  }
  return 0;
}

// The folder whose bin/ has the first nvcc of PATH; empty if there is none.
std::string toolkit_of_path() {
  std::string path;
  char real[PATH_MAX];
  const bool found = find_program("nvcc", path).code == kDone;
  if (!found || ::realpath(path.c_str(), real) == nullptr) return {};
  const std::string nvcc = real;
  return nvcc.substr(0, nvcc.rfind('/', nvcc.rfind('/') - 1));
}

// Where the build looks for it, in its order, after the folders that variables name.
std::vector<std::string> usual_folders() {
  std::vector<std::string> folders;
  if (std::string folder = toolkit_of_path(); !folder.empty()) folders.push_back(folder);
  for (const char* pattern : {"/usr/local/cuda", "/usr/local/cuda-*", "/opt/cuda*"}) {
    glob_t found{};
    if (::glob(pattern, 0, nullptr, &found) == 0) {
      folders.insert(folders.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    }
    ::globfree(&found);
  }
  return folders;
}

void check_toolkit() {
  std::string wrong;
  std::vector<std::string> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* folder = ::getenv(name);
    if (folder == nullptr || *folder == '\0') continue;
    folders.push_back(folder);
    if (toolkit_version(folder) == 0) {
      wrong += std::string("; ") + name + "=" + folder + " has no include/cuda.h";
    }
  }
  for (std::string& folder : usual_folders()) folders.push_back(std::move(folder));
  for (const std::string& folder : folders) {
    if (const int version = toolkit_version(folder); version != 0) {
      return say("toolkit", version_text(version).append(" in ").append(folder).append(wrong));
    }
  }
  say("toolkit",
      "none in CUDA_HOME, CUDA_PATH, PATH, /usr/local/cuda*, /opt/cuda* (only building needs it)" +
          wrong);
}

void check_limits() {
  struct rlimit limit;
  std::string text = "unknown";
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    text = limit.rlim_cur == RLIM_INFINITY ? "unlimited"
                                           : std::to_string(limit.rlim_cur >> 10) + " KiB";
  }
  say("glibc", ::gnu_get_libc_version());
  say("memlock", text);
  const char* preload = ::getenv("LD_PRELOAD");
  say("LD_PRELOAD", preload == nullptr || *preload == '\0' ? "not set" : preload);
}

bool check_settings() {
  const Loaded& loaded = settings();
  if (loaded.status == Status::kBad) return say("settings", loaded.error.text), false;
  char line[512];
  format_policy_line(loaded, line, sizeof line);
  say("settings", line);
  for (size_t i = 0; i < loaded.warning_count; ++i) say("", loaded.warnings[i].text);
  return true;
}

}  // namespace

std::string shown(std::string_view text) {
  std::string out;
  for_each_shown(text, "?", [&](std::string_view piece) { out += piece; });
  return out;
}

void say(const char* what, const std::string& value) {
  std::printf("%-11s %s\n", what, shown(value).c_str());
}

int doctor(int argc, char** argv) {
  if (argc < 2 || argc > 3 || std::strcmp(argv[0], "--object") != 0) {
    return fail(kUsage, "bad usage; allowed: doctor --object FILE [PROGRAM]; try: cistern doctor");
  }
  Elf object;
  const Problem problem = check_object(argv[1], object);
  const bool has_object = problem.code == kDone;
  say("object", has_object ? std::string(argv[1]) + " (" + describe(object) + ")" : problem.text);
  const bool has_settings = check_settings();
  const bool has_device = check_driver(argv[1]) > 0;
  check_toolkit();
  check_limits();
  Reach reach{.works = true, .without_cuda = false};
  if (argc == 3 && has_object) reach = say_program(argv[2], object, argv[1]);
  const bool works = has_object && has_settings && has_device && reach.works;
  const std::string but = reach.but.empty() ? "" : "; " + reach.but;
  if (!works && has_object && has_settings && reach.works) {
    say("verdict",
        (reach.without_cuda && reach.serves_malloc
             ? "malloc works here, and no CUDA is seen in the program; there is no GPU: --sim runs "
               "CUDA programs on the simulated one"
             : "no GPU: CUDA programs cannot run here; --sim runs them on the simulated one") +
            but);
  } else {
    say("verdict", works ? "works here" + but : "does not work here, see above");
  }
  return works ? kDone : kNotHere;
}

}  // namespace cistern::config::tool
