// SPDX-License-Identifier: Apache-2.0
// What the files of the test clock say to each other.
#pragma once

namespace test_clock {

// A thread of Cistern's own is about to be created, or could not be. It is known by its name when
// it first waits; until then nothing is settled.
void own_thread_begins();
void own_thread_failed();

}  // namespace test_clock
