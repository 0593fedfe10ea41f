// SPDX-License-Identifier: Apache-2.0
// Driver functions that Cistern does not know (faces.h). Cistern cannot see what such a
// function does: it may submit work that touches any memory, make a stream or a context, or begin a
// capture. So a program that looks one up gets a *trampoline* in its place. Its first call reports
// to order/careful.h before the driver is called. Then, and at once in each later call, control
// jumps to the driver's function with all arguments unchanged, also those on the stack. So nothing
// can be done after the driver's call, and its possible effects are assumed before it.
//
// Functions of other libraries that submit work *out of sight* are treated alike, but less is
// assumed of them. They reach the driver by ways without hooks, on the program's own contexts and
// streams. The program gets a trampoline for each of the few functions with which such use begins:
//
//   cuvidCreateDecoder         NVIDIA's decoder
//   NvEncodeAPICreateInstance  NVIDIA's encoder
//   optixQueryFunctionTable    OptiX, whose launches take a stream
//   cuGetExportTable           the driver's own tables of functions. NVIDIA's runtime asks for them
//                              by cuGetProcAddress since 11.3, and nobody knows who asks there: a
//                              runtime that is linked into a program lies in that program's code.
//                              So what dlsym() finds is meant for somebody else, unless libcudart,
//                              the management library or the run-time compiler asks (routes.cc).
//                              CUPTI, by which profilers work, is such a somebody.
//
// A library that is loaded and looked up is not in use: FFmpeg, for one, looks up all it might
// need. A program or library that is linked with the decoder's or the encoder's function shows
// nothing more, so the link counts as use. Links are checked at most ten times a second.
//
// An unknown function that the program or one of its libraries is linked with has no trampoline, so
// the link counts as a call.
//
// There are kTrampolines, which are never given back; beyond them the driver's own function is
// handed out *bare*, and the process is careful at once. Without pools every function is. Any
// thread; no lock is held, but the loader's while links are looked for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern::shim {

inline constexpr uint32_t kTrampolines = 256;

// What is assumed from now on, for the reason `what`, and the function's name. Before the program
// gets what it asked for, or its call goes on.
enum class Unknown : uint8_t { called, linked, bare, out_of_sight, linked_out_of_sight };
using BeforeUnknown = void (*)(Unknown how, const char* name);
// Before the first look-up; constant from then on. Until then nothing is unknown.
void tell_before_unknown(BeforeUnknown told);

// What the program gets for `real`, a function of the driver that it looked up as `name`: a
// trampoline, or `real` itself where Cistern knows it, it is none of the driver's, or there are no
// pools.
void* guarded(void* real, const char* name);
// Such a function goes to the program without a trampoline, for which it cannot have one.
void handed_out_bare(const void* real, const char* name);

// The same for a function of any library, which was looked up by such a name.
bool hands_over_out_of_sight(const char* name);
void* guarded_out_of_sight(void* real, const char* name);

// Looks for such links of the program and its libraries, if libraries were loaded since the last
// time.
void look_for_unknown_links();

// Unknown functions that were handed out behind trampolines, and those that were called; objects
// that are linked with one.
struct UnknownCounts {
  uint64_t looked_up, called, linked;
};
UnknownCounts unknown_counts();

}  // namespace cistern::shim
