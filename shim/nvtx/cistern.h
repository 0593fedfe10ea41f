/* SPDX-License-Identifier: Apache-2.0
 * Tells Cistern where a graph or an iteration of the program begins and ends. Cistern keeps figures
 * for each name, and records the name with each allocation. For C and C++; there is nothing to
 * link. In a process without Cistern both calls do nothing.
 *
 *     cistern_graph_begin("step");
 *     ...
 *     cistern_graph_end();
 *
 * Any thread may call both. Graphs belong to the calling thread and may nest. cistern_graph_end()
 * ends the graph that the thread began last; if it is in none, the call does nothing. After the
 * first cistern_graph_begin() of a process, NVTX ranges and synchronisations no longer begin or end
 * graphs in it. The name is copied; NULL means "".
 *
 * Compile the file that includes this header with -fPIE or -fPIC. In code for a fixed address
 * (-fno-pie, the default of some compilers) the linker sets both functions to null, and the calls
 * never reach Cistern.
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

/* Without Cistern the weak functions are null, and calling one would crash. */
#define cistern_graph_begin(name) (cistern_graph_begin ? cistern_graph_begin(name) : (void)(name))
#define cistern_graph_end() (cistern_graph_end ? cistern_graph_end() : (void)0)
