/* SPDX-License-Identifier: Apache-2.0
 * Marks where a graph or an iteration of a program begins and ends, for Cistern: it keeps figures
 * for each name, and names what it records after them. C and C++; nothing is to be linked. In a
 * process without Cistern both calls do nothing.
 *
 *     cistern_graph_begin("step");
 *     ...
 *     cistern_graph_end();
 *
 * Each thread has its own; they nest. The end ends what the calling thread began last; one without
 * a begin does nothing. Once a process has called the begin, no NVTX range and no synchronisation
 * counts as a begin or an end any more. The name is copied; NULL is "".
 *
 * Code that is compiled for a fixed address (-fno-pie, the default of some compilers) never finds
 * Cistern: the linker decides that. There, compile the file that includes this with -fPIE.
 */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

__attribute__((weak)) void cistern_graph_begin(const char* name);
__attribute__((weak)) void cistern_graph_end(void);

#ifdef __cplusplus
}
#endif

/* A call of a weak function that is not there would end the program. */
#define cistern_graph_begin(name) (cistern_graph_begin ? cistern_graph_begin(name) : (void)(name))
#define cistern_graph_end() (cistern_graph_end ? cistern_graph_end() : (void)0)
