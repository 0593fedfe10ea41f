// SPDX-License-Identifier: Apache-2.0
#include "config/tool/libraries.h"

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

namespace cistern::config::tool {
namespace {

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

}  // namespace

std::vector<Library> libraries_of(const std::string& path, const Elf& elf) {
  return Walk(path, elf).take();
}

}  // namespace cistern::config::tool
