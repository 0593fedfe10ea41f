// SPDX-License-Identifier: Apache-2.0
#include "shim/process/frameworks.h"

#include <link.h>

#include <cstdlib>

namespace cistern::shim {
namespace {

int look(dl_phdr_info* file, size_t /*size*/, void* data) {
  if (file->dlpi_name == nullptr) return 0;
  const config::Framework* framework = config::framework_of(file->dlpi_name);
  if (framework == nullptr) return 0;
  const char* value = framework->variable != nullptr ? getenv(framework->variable) : nullptr;
  if (config::pools_itself(*framework, value)) static_cast<Frameworks*>(data)->add(framework);
  return 0;
}

}  // namespace

Frameworks frameworks_that_pool() {
  Frameworks found;
  dl_iterate_phdr(look, &found);
  return found;
}

}  // namespace cistern::shim
