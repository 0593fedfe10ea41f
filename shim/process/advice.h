// SPDX-License-Identifier: Apache-2.0
// The end of the report: frameworks that also pool the program's memory, and at most two settings
// that would have helped this run. Both follow from the report's figures alone. A run without
// problems gets neither. Any thread.
#pragma once

#include <span>

#include "config/frameworks.h"
#include "config/policy.h"
#include "shim/process/report_figures.h"

namespace cistern::shim {

// Each framework once.
class Frameworks {
 public:
  void add(const config::Framework* framework);
  std::span<const config::Framework* const> list() const { return {all_, count_}; }

 private:
  static constexpr size_t kMost = 4;
  const config::Framework* all_[kMost] = {};
  size_t count_ = 0;
};

struct Hint {
  const char* about;  // limit, ipc, bound, free_waits or sizes
  char text[400];     // what was seen, and the setting that helps
};

// The first of them weigh most.
class Advice {
 public:
  Frameworks frameworks;
  std::span<const Hint> list() const { return {hints_, count_}; }

  [[gnu::format(printf, 3, 4)]] void hint(const char* about, const char* format, ...);

 private:
  static constexpr size_t kMost = 2;
  Hint hints_[kMost] = {};
  size_t count_ = 0;
};

// `loaded`: frameworks that pool, if the figures do not say otherwise.
Advice advise(const ProcessReport& process, const config::Policy& policy, const Frameworks& loaded);

}  // namespace cistern::shim
