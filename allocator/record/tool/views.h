// SPDX-License-Identifier: Apache-2.0
// What `cistern trace` prints, one function a view; TRACE.md describes them.
#pragma once

#include "allocator/record/tool/analysis.h"

namespace cistern::alloc::tool {

void show_summary(const Selection& selection);
void show_lists(const Selection& selection);  // --by
void show_csv(const Selection& selection);
void show_events(const Selection& selection);
void show_folded(const Selection& selection);
void show_json(const Selection& selection);

// Not printed, but written with --svg.
std::string live_picture(const Selection& selection);

// --- Shared by views

// "phase forward", "thread 17", ...: what a number of this kind stands for.
std::string label_of(const Recording& recording, By by, uint32_t number);
// The number of an event by which `by` groups.
uint32_t number_of(const Event& event, By by);
std::string end_text(const RecordingHead& head);
std::string began_text(const RecordingHead& head);
double seconds(uint64_t ns);

}  // namespace cistern::alloc::tool
