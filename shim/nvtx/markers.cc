// SPDX-License-Identifier: Apache-2.0
// The markers of the installed header, as programs call them. Not including it: its declarations
// are weak, and its macros stand for calls.
#include "shim/nvtx/own_phase.h"

extern "C" {

[[gnu::visibility("default")]] void cistern_graph_begin(const char* name) {
  cistern::shim::marker_begins(name);
}

[[gnu::visibility("default")]] void cistern_graph_end() { cistern::shim::marker_ends(); }

}  // extern "C"
