// SPDX-License-Identifier: Apache-2.0
// What a program or library would load, and doctor's report on it.
#include <glob.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "config/known.h"
#include "config/tool/tool.h"

namespace cistern::config::tool {
namespace {

// The libraries that the loader would map with a program or library, found without a loader: even a
// loader that only lists libraries maps files, and a forged file can make it map code over its own.
// Nothing is mapped here to be run. Whatever the files are, the walk ends: kMostLibraries names are
// looked up at most, and only regular files are opened.
//
// Folders are those of ld.so(8), in its order: DT_RPATH, LD_LIBRARY_PATH, DT_RUNPATH, the loader's
// cache, and the system's own. Where a folder has a variant for this processor (glibc-hwcaps), the
// plain one is found. Folders with $LIB or $PLATFORM are ignored.
constexpr size_t kMostLibraries = 4096;

struct Library {
  std::string name;  // as what needs it calls it
  std::string path;  // empty: not found
};

constexpr size_t kMostFolders = 64;  // of one path; the loader has no bound

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// The folders of a path; an empty one is the working directory.
std::vector<std::string> folders_in(std::string_view path, const std::string& origin) {
  std::vector<std::string> folders;
  while (!path.empty() && folders.size() < kMostFolders) {
    const size_t end = std::min(path.find_first_of(":;"), path.size());
    std::string folder(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
    for (const std::string_view token : {"${ORIGIN}", "$ORIGIN"}) {
      const size_t at = folder.find(token);
      if (at != std::string::npos) folder.replace(at, token.size(), origin);
    }
    if (folder.find('$') == std::string::npos) folders.push_back(folder.empty() ? "." : folder);
  }
  return folders;
}

// --- The loader's cache, which ldconfig writes: a head, entries and their texts.

struct CacheHead {
  char magic[20];
  uint32_t entries, text_bytes, unused[5];
};
struct CacheEntry {
  int32_t flags;
  uint32_t name, path, unused;
  uint64_t hwcap;  // 0: for every processor
};
constexpr std::string_view kCacheMagic = "glibc-ld.so.cache1.1";

std::unordered_multimap<std::string, std::string> read_cache() {
  std::unordered_multimap<std::string, std::string> paths;
  std::ifstream file("/etc/ld.so.cache", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  const size_t begin = all.find(kCacheMagic);  // one of an older format may stand before it
  CacheHead head;
  if (begin == std::string::npos || all.size() - begin < sizeof head) return paths;
  const std::string_view bytes = std::string_view(all).substr(begin);
  std::memcpy(&head, bytes.data(), sizeof head);
  const auto text = [&](uint32_t at) { return std::string(at < bytes.size() ? &bytes[at] : ""); };
  for (uint64_t i = 0; i < head.entries; ++i) {
    CacheEntry entry;
    const uint64_t at = sizeof head + i * sizeof entry;
    if (at + sizeof entry > bytes.size()) break;
    std::memcpy(&entry, &bytes[at], sizeof entry);
    if (entry.hwcap == 0) paths.emplace(text(entry.name), text(entry.path));
  }
  return paths;
}

// --- The walk

class Walk {
 public:
  Walk(const std::string& path, const Elf& elf) : bits_(elf.bits), machine_(elf.machine) {
    const char* folders = ::getenv("LD_LIBRARY_PATH");
    if (folders != nullptr) of_user_ = folders_in(folders, folder_of(path));
    add_needs_of(elf, path, {});
    for (size_t i = 0; i < waiting_.size(); ++i) look_at(i);
  }
  std::vector<Library> take() { return std::move(found_); }

 private:
  // A library that something needs, and the folders for what it needs in turn.
  struct Needed {
    std::string name;
    std::vector<std::string> before, after;  // LD_LIBRARY_PATH stands between them
  };

  // DT_RPATH counts for what the libraries need, too, and not beside a DT_RUNPATH of the same file.
  void add_needs_of(const Elf& elf, const std::string& path,
                    const std::vector<std::string>& above) {
    std::vector<std::string> before;
    if (elf.runpath.empty()) {
      before = folders_in(elf.rpath, folder_of(path));
      before.insert(before.end(), above.begin(), above.end());
      if (before.size() > kMostFolders) before.resize(kMostFolders);
    }
    const std::vector<std::string> after = folders_in(elf.runpath, folder_of(path));
    for (const std::string& name : elf.needed) {
      if (known_.size() >= kMostLibraries) break;
      if (known_.insert(name).second) waiting_.push_back({name, before, after});
    }
  }

  void look_at(size_t i) {
    const Needed needed = waiting_[i];  // a copy: the list grows
    Elf elf;
    std::string path = find(needed, elf);
    if (!path.empty()) {
      if (!elf.soname.empty()) known_.insert(elf.soname);
      add_needs_of(elf, path, needed.before);
    }
    found_.push_back({needed.name, std::move(path)});
  }

  bool fits(const std::string& path, Elf& elf) const {
    elf = read_elf(path);
    return elf.valid && elf.bits == bits_ && elf.machine == machine_;
  }

  std::string find(const Needed& needed, Elf& elf) const {
    const std::string& name = needed.name;
    if (name.find('/') != std::string::npos) return fits(name, elf) ? name : std::string();
    for (const auto* folders : {&needed.before, &of_user_, &needed.after}) {
      if (std::string path = find_in(*folders, name, elf); !path.empty()) return path;
    }
    const auto [first, last] = cache_.equal_range(name);
    for (auto each = first; each != last; ++each) {
      if (fits(each->second, elf)) return each->second;
    }
    return find_in(of_system_, name, elf);
  }

  std::string find_in(const std::vector<std::string>& folders, const std::string& name,
                      Elf& elf) const {
    for (const std::string& folder : folders) {
      std::string path = folder;
      path.append("/").append(name);
      if (fits(path, elf)) return path;
    }
    return {};
  }

  const int bits_;
  const uint16_t machine_;
  const std::unordered_multimap<std::string, std::string> cache_ = read_cache();
  const std::vector<std::string> of_system_ = {"/lib64", "/usr/lib64", "/lib", "/usr/lib"};
  std::vector<std::string> of_user_;
  std::vector<Needed> waiting_;
  std::unordered_set<std::string> known_;  // names and sonames
  std::vector<Library> found_;
};

// Those that the file `path` needs, and that they need in turn, each name once. `elf` is what was
// read of the file.
std::vector<Library> libraries_of(const std::string& path, const Elf& elf) {
  return Walk(path, elf).take();
}

// --- doctor's report

std::string base_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The library whose name begins so, or nullptr.
const Library* named(const std::vector<Library>& libraries, const std::string& begin) {
  for (const Library& library : libraries) {
    if (library.name.rfind(begin, 0) == 0) return &library;
  }
  return nullptr;
}

std::string described(const Library& library) {
  return library.name + " => " + (library.path.empty() ? "not found" : library.path);
}

std::vector<std::string> paths_of(const std::vector<Library>& libraries) {
  std::vector<std::string> paths;
  paths.reserve(libraries.size());
  for (const Library& library : libraries) paths.push_back(library.path);
  return paths;
}

// Whether all are there that have to be. What a library lacks beside CUDA's the program that loads
// it may have found before.
bool say_missing(const Program& program, const std::vector<Library>& libraries) {
  std::string names;
  bool cuda = false;
  for (const Library& library : libraries) {
    if (!library.path.empty()) continue;
    names += " " + library.name;
    cuda |= library.name.rfind("libcuda", 0) == 0;
  }
  if (names.empty()) return true;
  const bool in_the_way = cuda || !program.elf.is_library;
  say("", std::string(cuda ? "a CUDA library" : "a library") + " is not found:" + names +
              (in_the_way ? "; the program cannot start here"
                          : "; who loads this library may have it"));
  return !in_the_way;
}

// The routes of the file itself and of the libraries that come with it. Whether there is any.
bool say_routes(const Program& program, const std::vector<Library>& libraries) {
  const Library* driver = named(libraries, "libcuda.so");
  const Library* runtime = named(libraries, "libcudart.so");
  // The first is an error text of NVIDIA's runtime, which a stripped program keeps too.
  const std::vector<bool> has =
      find_markers(program.binary, {"cudaErrorCudartUnloading", "libcuda.so"});
  const std::string base = base_of(program.binary);
  bool any = false;
  const auto route = [&](const std::string& text) {
    say(any ? "" : "routes", text);
    any = true;
  };
  if (driver != nullptr) route(described(*driver) + ": linked with the driver; caught by symbol");
  if (runtime != nullptr)
    route(described(*runtime) + ": shared CUDA runtime; caught by dlsym and cuGetProcAddress");
  if (has[0]) route("static CUDA runtime; caught by dlsym and cuGetProcAddress");
  if (has[1] && !has[0] && driver == nullptr) route("opens libcuda itself; caught by dlsym");
  if (base.rfind("python", 0) == 0)
    route("Python: imported libraries are caught when they are loaded");
  const bool none = !any;
  if (none) route("none found; libraries that it loads later are caught then");
  if (program.elf.is_library) {
    say("covered",
        none ? "nothing to cover"
             : "in programs that a preload reaches; not in libraries opened with dlmopen, and in "
               "those opened with RTLD_DEEPBIND only under --audit; try: cistern doctor PROGRAM");
  }
  return !none;
}

// Whose malloc will serve the program's memory. A definition of the program itself comes before
// each library's, preloaded or not. A library's own comes after; it would be missed only by a
// program that counts on it. Whether it is ours.
bool say_malloc(const Program& program, const std::vector<Library>& libraries,
                const std::string& object) {
  if (!defines_function(object, "malloc")) {
    return say("malloc", "left alone: " + object + " serves none"), false;
  }
  if (const std::string runtime = sanitizer_of(program.elf); !runtime.empty()) {
    return say("malloc", "that of " + runtime + ", which must be loaded first; try: --host off"),
           false;
  }
  const bool own = defines_function(program.binary, "malloc");
  if (own && !program.elf.is_library) {
    return say("malloc", "the program brings its own, which no preload replaces; try: --host off"),
           false;
  }
  std::vector<std::string> paths = paths_of(libraries);
  if (own) paths.insert(paths.begin(), program.binary);
  bool any = false;
  for (const std::string& path : paths) {
    if (path.empty() || read_elf(path).soname == "libc.so.6") continue;
    if (!defines_function(path, "malloc")) continue;
    say(any ? "" : "malloc", path + " brings its own, which Cistern's replaces; try: --host off");
    any = true;
  }
  if (!any) say("malloc", "Cistern's; --host off leaves it alone");
  return true;
}

// --- Who pools its memory

// The folders of packages that a Python interpreter has beside it: those of its own version, where
// its file says which that is.
std::vector<std::string> package_folders(const std::string& python) {
  const size_t slash = python.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : python.substr(0, slash);
  char* real = ::realpath(python.c_str(), nullptr);
  const std::string version = real == nullptr ? "" : base_of(real);
  std::free(real);
  const bool known = version.find('.') != std::string::npos;
  std::vector<std::string> folders = {folder + "/../lib/" + (known ? version : "python3*") +
                                      "/site-packages/"};
  if (folder == "/usr/bin" || folder == "/bin") {  // as Debian has it
    folders.emplace_back("/usr/local/lib/" + (known ? version : "python3*") + "/dist-packages/");
    folders.emplace_back("/usr/lib/python3/dist-packages/");
  }
  return folders;
}

std::string first_match(const std::string& pattern) {
  glob_t found;
  std::string path;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) path = found.gl_pathv[0];
  ::globfree(&found);
  return path;
}

void say_framework(bool& any, const Framework& framework, const std::string& path, const char* when,
                   Reach& reach) {
  const char* value = framework.variable == nullptr ? nullptr : ::getenv(framework.variable);
  char text[200];
  describe_framework(framework, text, sizeof text);
  const std::string name = std::string(framework.name) + " (" + path + ")" + when;
  say(any ? "" : "pooling",
      pools_itself(framework, value)
          ? name + " " + text
          : name + " leaves it to Cistern: " + framework.variable + " is set to \"" + value + "\"");
  any = true;
  if (framework.reads_flags) {
    say("",
        std::string(framework.name) +
            " reads FLAGS_ variables too: one that both know takes effect in its own pool and in "
            "Cistern's; for Cistern only, write it into a file: --config FILE");
  }
  if (!framework.binds_deep) return;
  say("", std::string(framework.name) +
              " opens its library with RTLD_DEEPBIND, which bypasses a preload: with a preloaded "
              "malloc "
              "the program ends; try: --audit, or --host off");
  if (reach.serves_malloc) {
    reach.but += std::string(reach.but.empty() ? "" : ", ") + "not with " + framework.name + when +
                 " unless with --audit or --host off";
  }
}

// Frameworks that the loader maps with the program or library, or that a Python interpreter may
// import.
void say_frameworks(const Program& program, const std::vector<Library>& libraries, Reach& reach) {
  bool any = false;
  const Framework* last = nullptr;
  std::vector<std::string> paths = paths_of(libraries);
  paths.insert(paths.begin(), program.binary);
  for (const std::string& path : paths) {
    const Framework* framework = framework_of(path);
    if (framework == nullptr || framework == last) continue;
    say_framework(any, *framework, path, "", reach);
    last = framework;
  }
  if (base_of(program.binary).rfind("python", 0) != 0) return;
  for (const std::string& folder : package_folders(program.binary)) {
    for (const Framework& framework : frameworks()) {
      const std::string path = first_match(folder + framework.file);
      if (!path.empty()) say_framework(any, framework, path, ", where it is imported,", reach);
    }
  }
}

void say_sanitizer(const Program& program, Reach& reach) {
  const std::string runtime = sanitizer_of(program.elf);
  if (runtime.empty()) return;
  say("sanitizer", runtime +
                       " must come before the object: cistern run puts it there; by hand, "
                       "LD_PRELOAD=" +
                       runtime + ":OBJECT");
  reach.but = "malloc stays the sanitizer's";
}

void say_audit(Reach& reach) {
  say("audit",
      "libraries for audit leave the object too little thread-local storage (static TLS): cistern "
      "run makes room; by hand, GLIBC_TUNABLES=glibc.rtld.optional_static_tls=4096");
  reach.but += std::string(reach.but.empty() ? "" : ", ") +
               "beside libraries for audit only with room for static TLS, see above";
}

// What the file is, as the loader sees it.
bool say_file(Program& program, const char* name, const Elf& object) {
  program.elf = read_elf(name);
  if (program.elf.is_library) {
    program.path = program.binary = name[0] == '/' ? name : std::string("./") + name;
    const Problem problem = check_architecture(program, object);
    if (problem.code != kDone) return say("library", problem.text), false;
    say("library", program.path + " (" + describe(program.elf) +
                       "): a library, not a program; the lines below are about the library");
    return true;
  }
  const Problem problem = check_program(name, &object, program);
  if (problem.code != kDone) return say("program", problem.text), false;
  const bool script = program.binary != program.path;
  say("program", program.path + (script ? ", run by " + program.binary : "") + " (" +
                     (program.elf.valid ? describe(program.elf) : "neither ELF nor script") + ")");
  return true;
}

}  // namespace

Reach say_program(const char* name, const Elf& object, const std::string& object_path) {
  Program program;
  Reach reach;
  if (!say_file(program, name, object)) return reach;
  if (!program.elf.valid) return {.works = true, .without_cuda = false};
  const std::vector<Library> libraries = libraries_of(program.binary, program.elf);
  reach.serves_malloc = say_malloc(program, libraries, object_path);
  say_sanitizer(program, reach);
  if (is_audited(program.elf) && defines_function(object_path, "malloc")) say_audit(reach);
  say_frameworks(program, libraries, reach);
  reach.without_cuda = !say_routes(program, libraries);
  reach.works = say_missing(program, libraries);
  return reach;
}

}  // namespace cistern::config::tool
