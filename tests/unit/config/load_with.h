// SPDX-License-Identifier: Apache-2.0
//
// For tests: settings loaded from a list of NAME=value, and files of settings.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "config/load.h"

namespace cistern::config::test {

inline std::unique_ptr<Loaded> load_with(const std::vector<std::string>& entries) {
  std::vector<const char*> envp;
  for (const std::string& entry : entries) envp.push_back(entry.c_str());
  envp.push_back(nullptr);
  auto loaded = std::make_unique<Loaded>();
  load(envp.data(), *loaded);
  return loaded;
}

// A file that goes when the object goes.
class SettingsFile {
 public:
  explicit SettingsFile(const std::string& text) {
    const int fd = ::mkstemp(path_.data());
    if (fd < 0 || ::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
      throw std::runtime_error("cannot write " + path_);
    }
    ::close(fd);
  }
  ~SettingsFile() { ::unlink(path_.c_str()); }
  SettingsFile(const SettingsFile&) = delete;
  SettingsFile& operator=(const SettingsFile&) = delete;

  const std::string& path() const { return path_; }
  std::string entry() const { return "CISTERN_CONFIG=" + path_; }

 private:
  std::string path_ = "/tmp/cistern-settings-XXXXXX";
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace cistern::config::test
