// SPDX-License-Identifier: Apache-2.0
//
// `cistern doctor [program]`: would it work here, and if not, what is in the way. Looks at the
// object, the settings, driver and devices, limits, and at the routes by which a program reaches
// the driver.
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "config/tool/program.h"
#include "config/tool/tool.h"

namespace cistern::config::tool {
namespace {

void say(const char* what, const std::string& value) {
  std::printf("%-11s %s\n", what, value.c_str());
}

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

// Asks the driver that a program would get. Returns the number of devices, or -1.
int check_driver() {
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

void check_toolkit() {
  for (const char* folder :
       {::getenv("CUDA_HOME"), ::getenv("CUDA_PATH"), static_cast<char*>(nullptr)}) {
    if (folder == nullptr) continue;
    if (const int version = toolkit_version(folder); version != 0) {
      return say("toolkit", version_text(version) + " in " + folder);
    }
  }
  for (const char* folder : {"/usr/local/cuda", "/opt/cuda"}) {
    if (const int version = toolkit_version(folder); version != 0) {
      return say("toolkit", version_text(version) + " in " + folder);
    }
  }
  say("toolkit",
      "none in CUDA_HOME, CUDA_PATH, /usr/local/cuda, /opt/cuda (only building needs it)");
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

// --- The program

std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// The libraries that the loader will map with the program, those of its libraries included, one
// "name => path" a line: the loader's own list.
std::string loaded_libraries(const std::string& binary) {
  const std::string command =
      "LD_PRELOAD= LD_TRACE_LOADED_OBJECTS=1 " + shell_quoted(binary) + " 2>/dev/null </dev/null";
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return {};
  std::string text;
  char buffer[4096];
  for (size_t got; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    text.append(buffer, got);
  ::pclose(pipe);
  return text;
}

// The line of the list that begins with `name`, or empty.
std::string line_with(const std::string& list, const std::string& name) {
  std::istringstream lines(list);
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, line.find_first_not_of(" \t"));
    if (line.rfind(name, 0) == 0) return line.substr(0, line.find(" ("));
  }
  return {};
}

bool say_routes(const Program& program) {
  const std::string libraries = loaded_libraries(program.binary);
  const std::string driver = line_with(libraries, "libcuda.so");
  const std::string runtime = line_with(libraries, "libcudart.so");
  // The first is an error text of NVIDIA's runtime, which a stripped program keeps too.
  const std::vector<bool> has =
      find_markers(program.binary, {"cudaErrorCudartUnloading", "libcuda.so"});
  const std::string base = program.binary.substr(program.binary.rfind('/') + 1);
  bool any = false;
  const auto route = [&](const std::string& text) {
    say(any ? "" : "routes", text);
    any = true;
  };
  if (!driver.empty()) route(driver + ": linked with the driver; caught by symbol");
  if (!runtime.empty())
    route(runtime + ": shared CUDA runtime; caught by dlsym and cuGetProcAddress");
  if (has[0]) route("static CUDA runtime; caught by dlsym and cuGetProcAddress");
  if (has[1] && !has[0] && driver.empty()) route("opens libcuda itself; caught by dlsym");
  if (base.rfind("python", 0) == 0) route("Python: what it imports is caught as it is loaded");
  if (!any) route("none seen; libraries it loads later are caught then");
  const std::string lacks = line_with(libraries, "libcuda") + line_with(libraries, "libcudart");
  if (lacks.find("not found") == std::string::npos) return true;
  say("", "a CUDA library is not found: the program cannot start here");
  return false;
}

// The path in a line "name => path (address)" or "path (address)" of the loader's list, or empty.
std::string path_in(const std::string& line) {
  const size_t at = line.find('/', line.find("=> ") == std::string::npos ? 0 : line.find("=> "));
  return at == std::string::npos ? std::string() : line.substr(at, line.find(" (", at) - at);
}

// Whose malloc will serve the program's memory. A definition of the program itself comes before
// each library's, preloaded or not. A library's own comes after; it would be missed only by a
// program that counts on it.
void say_malloc(const Program& program, const std::string& object) {
  if (!defines_function(object, "malloc")) {
    return say("malloc", "left alone: " + object + " serves none");
  }
  if (defines_function(program.binary, "malloc")) {
    return say("malloc", "the program brings its own, which no preload replaces; try: --host off");
  }
  std::istringstream lines(loaded_libraries(program.binary));
  bool any = false;
  for (std::string line; std::getline(lines, line);) {
    const std::string path = path_in(line);
    if (path.empty() || read_elf(path).soname == "libc.so.6") continue;
    if (!defines_function(path, "malloc")) continue;
    say(any ? "" : "malloc", path + " brings its own, which Cistern's replaces; try: --host off");
    any = true;
  }
  if (!any) say("malloc", "Cistern's; --host off leaves it alone");
}

bool check(const char* name, const Elf& object, const std::string& object_path) {
  Program program;
  const Problem problem = check_program(name, &object, program);
  if (problem.code != kDone) return say("program", problem.text), false;
  const bool script = program.binary != program.path;
  say("program", program.path + (script ? ", run by " + program.binary : "") + " (" +
                     (program.elf.valid ? describe(program.elf) : "neither ELF nor script") + ")");
  if (!program.elf.valid) return true;
  say_malloc(program, object_path);
  return say_routes(program);
}

}  // namespace

int doctor(int argc, char** argv) {
  if (argc < 2 || argc > 3 || std::strcmp(argv[0], "--object") != 0) {
    return fail(kUsage, "bad usage; allowed: doctor --object FILE [PROGRAM]; try: cistern doctor");
  }
  Elf object;
  const Problem problem = check_object(argv[1], object);
  const bool has_object = problem.code == kDone;
  say("object", has_object ? std::string(argv[1]) + " (" + describe(object) + ")" : problem.text);
  const bool has_settings = check_settings();
  const bool has_device = check_driver() > 0;
  check_toolkit();
  check_limits();
  const bool has_program = argc == 2 || !has_object || check(argv[2], object, argv[1]);
  const bool works = has_object && has_settings && has_device && has_program;
  if (!works && has_object && has_settings && has_program) {
    say("verdict", "no GPU: CUDA programs cannot run here; --sim runs them on the simulated one");
  } else {
    say("verdict", works ? "works here" : "does not work here, see above");
  }
  return works ? kDone : kNotHere;
}

}  // namespace cistern::config::tool
