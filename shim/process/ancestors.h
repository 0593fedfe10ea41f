// SPDX-License-Identifier: Apache-2.0
// Messages that one process prints for all its descendants: a bad setting, or an empty report. One
// line is enough for a shell or make and all processes below it.
//
// Nothing is left behind for the children to find: no variable, descriptor or file, which a program
// could see or a killed process leave. Instead a process looks at those above it, as they are now
// in /proc: whether this object is mapped in them, and what their own environment says. If /proc
// does not show it, the line is printed again.
//
// For the object's constructor, which runs before the process can be anybody's parent: a forked
// child is not asked about again. Calls no malloc.
#pragma once

namespace cistern::shim {

// Whether a process above this one has the same fault in its settings, and says so: `line` is what
// this process would say. libcistern.so says it where malloc is first used, which every program
// does that starts others; the object for the device alone where CUDA begins, for which the driver
// is loaded.
bool said_by_an_ancestor(const char* line);

// Whether a process above this one was asked for a report, too.
bool an_ancestor_reports();

}  // namespace cistern::shim
