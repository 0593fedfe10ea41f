// SPDX-License-Identifier: Apache-2.0
#include "config/loaded.h"

namespace cistern::config {

Given given_for(const Loaded& loaded, const char* name) {
  unsigned device = kNoDevice;
  const Row* row = find_row(name, device);
  if (row == nullptr) return {};
  if (row->store != nullptr) return loaded.given[static_cast<size_t>(row - kTable.data())];
  return device < kMaxDevices ? loaded.given_device[device] : Given{};
}

}  // namespace cistern::config
