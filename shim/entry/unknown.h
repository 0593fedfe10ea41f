// SPDX-License-Identifier: Apache-2.0
// Driver functions that Cistern does not know (driver.h). Cistern cannot see what such a
// function does: it may submit work that touches any memory, make a stream or a context, or begin a
// capture. So a program that looks one up gets a *trampoline* in its place. Its first call reports
// to order/careful.h. Then it jumps to the driver's function with all arguments unchanged, also
// those on the stack; later calls jump at once. So Cistern gets no control after the driver's call,
// and assumes the call's possible effects before it.
//
// Some libraries submit work *out of sight*: they reach the driver past all hooks, but only on the
// program's own contexts and streams. The program gets a trampoline for each function with which
// such use begins; its effects are assumed to be smaller (order/careful.h):
//
//   cuvidCreateDecoder         NVIDIA's decoder
//   NvEncodeAPICreateInstance  NVIDIA's encoder
//   optixQueryFunctionTable    OptiX, whose launches take a stream
//   cuGetExportTable           the driver's own tables of functions. NVIDIA's runtime gets it by
//                              cuGetProcAddress since 11.3, so those look-ups get no trampoline.
//                              A look-up by dlsym() gets one, unless it comes from libcudart, the
//                              management library or the run-time compiler (routes.cc). CUPTI, the
//                              library of profilers, is an example of a caller that gets one.
//
// Loading such a library and looking up its functions is not yet use: FFmpeg, for example, looks up
// all that it might need. If a program or library is linked with the decoder's or the encoder's
// function, Cistern cannot see the call, so the link counts as use. Links are checked at most ten
// times a second.
//
// If the program or one of its libraries is linked with an unknown driver function, there is no
// trampoline either, so the link counts as a call.
//
// There are kTrampolines trampolines, which are never given back. After the last one the driver's
// own function is handed out *bare*, and the process becomes careful at once. If Cistern is
// inactive, every function is handed out bare, without that consequence. Any thread. No lock is
// held, except the loader's while links are checked.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cistern::shim {

inline constexpr uint32_t kTrampolines = 256;

// Called with the name of the function and how the program got or called it, before the program
// gets the function, or before its call goes on.
enum class Unknown : uint8_t { called, linked, bare, out_of_sight, linked_out_of_sight };
using BeforeUnknown = void (*)(Unknown how, const char* name);
// Sets that function, once, before the first look-up. Until then no function counts as unknown.
void tell_before_unknown(BeforeUnknown told);

// What the program gets for `real`, a function that it looked up as `name`: a trampoline if the
// function is an unknown one of the driver. It gets `real` itself if Cistern knows the function, if
// that is not the driver's, if Cistern is inactive, or after the last trampoline.
void* guarded(void* real, const char* name);
// The program gets `real` without a trampoline, because the look-up cannot be answered with one. If
// the function is unknown, the process becomes careful.
void handed_out_bare(const void* real, const char* name);

// Whether out-of-sight use begins with a function of this name, in whichever library; what the
// program gets for it, as guarded().
bool hands_over_out_of_sight(const char* name);
void* guarded_out_of_sight(void* real, const char* name);

// Checks the links of the program and its libraries, if libraries were loaded since the last check.
void look_for_unknown_links();

// How many unknown functions were handed out behind trampolines, how many of them were called, and
// how many loaded objects are linked with an unknown function.
struct UnknownCounts {
  uint64_t looked_up, called, linked;
};
UnknownCounts unknown_counts();

}  // namespace cistern::shim
