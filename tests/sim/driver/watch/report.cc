// SPDX-License-Identifier: Apache-2.0
#include "watch/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>

namespace simcuda {
namespace {

constexpr uint64_t kMostParagraphs = 100;
constexpr const char* kNames[kFindingKinds] = {"race", "invalid access", "invalid free",
                                               "leak", "order lost",     "order added"};

constinit int g_report = STDERR_FILENO;
constinit bool g_fatal = false;
constinit std::array<std::atomic<uint64_t>, kFindingKinds> g_counts{};

}  // namespace

bool open_reports(const std::string& file, bool fatal) {
  g_fatal = fatal;
  if (file.empty()) return true;
  const int opened = open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (opened >= 0) g_report = opened;
  return opened >= 0;
}

void report(Finding kind, const std::string& text, const std::string& details) {
  const auto index = static_cast<size_t>(kind);
  const uint64_t before = g_counts[index].fetch_add(1);
  if (before < kMostParagraphs) {
    const std::string paragraph =
        std::string("simcuda: ") + kNames[index] + ": " + text + "\n" + details;
    const ssize_t written = write(g_report, paragraph.data(), paragraph.size());
    static_cast<void>(written);  // a full disk costs paragraphs; the count stays right
  }
  if (g_fatal && kind != Finding::kLeak) std::abort();
}

uint64_t findings(Finding kind) { return g_counts[static_cast<size_t>(kind)].load(); }

}  // namespace simcuda
