// SPDX-License-Identifier: Apache-2.0
// Every driver function the simulated runtime uses, once, with the version of the ABI it wants.
// The table generates the members that hold the functions and the queries that fill them, so a
// function cannot be called that was not asked for. Versions are those of cudaTypedefs.h.
#pragma once

// F(name, version): does not depend on the default stream, asked once.
#define SIMCUDART_CALLS(F)                                      \
  F(cuInit, 2000)                                               \
  F(cuDriverGetVersion, 2020)                                   \
  F(cuGetExportTable, 3000)                                     \
  F(cuGetErrorName, 6000)                                       \
  F(cuGetErrorString, 6000)                                     \
  F(cuDeviceGet, 2000)                                          \
  F(cuDeviceGetCount, 2000)                                     \
  F(cuDeviceGetName, 2000)                                      \
  F(cuDeviceGetUuid, 9020)                                      \
  F(cuDeviceTotalMem, 3020)                                     \
  F(cuDeviceGetAttribute, 2000)                                 \
  F(cuDeviceCanAccessPeer, 4000)                                \
  F(cuDevicePrimaryCtxRetain, 7000)                             \
  F(cuDevicePrimaryCtxReset, 7000)                              \
  F(cuCtxGetCurrent, 4000)                                      \
  F(cuCtxSetCurrent, 4000)                                      \
  F(cuCtxGetDevice, 2000)                                       \
  F(cuCtxSynchronize, 2000)                                     \
  F(cuCtxGetStreamPriorityRange, 5050)                          \
  F(cuCtxEnablePeerAccess, 4000)                                \
  F(cuCtxDisablePeerAccess, 4000)                               \
  F(cuMemAlloc, 3020)                                           \
  F(cuMemAllocPitch, 3020)                                      \
  F(cuMemAllocManaged, 6000)                                    \
  F(cuMemFree, 3020)                                            \
  F(cuMemGetInfo, 3020)                                         \
  F(cuMemHostAlloc, 2020)                                       \
  F(cuMemFreeHost, 2000)                                        \
  F(cuMemHostRegister, 6050)                                    \
  F(cuMemHostUnregister, 4000)                                  \
  F(cuMemHostGetDevicePointer, 3020)                            \
  F(cuMemHostGetFlags, 2030)                                    \
  F(cuPointerGetAttributes, 7000)                               \
  F(cuIpcGetMemHandle, 4010)                                    \
  F(cuIpcOpenMemHandle, 11000)                                  \
  F(cuIpcCloseMemHandle, 4010)                                  \
  F(cuIpcGetEventHandle, 4010)                                  \
  F(cuIpcOpenEventHandle, 4010)                                 \
  F(cuStreamCreate, 2000)                                       \
  F(cuStreamCreateWithPriority, 5050)                           \
  F(cuStreamDestroy, 4000)                                      \
  F(cuEventCreate, 2000)                                        \
  F(cuEventDestroy, 4000)                                       \
  F(cuEventQuery, 2000)                                         \
  F(cuEventSynchronize, 2000)                                   \
  F(cuEventElapsedTime, 2000)                                   \
  F(cuThreadExchangeStreamCaptureMode, 10010)                   \
  F(cuGraphInstantiateWithFlags, 11040)                         \
  F(cuGraphDestroy, 10000)                                      \
  F(cuGraphExecDestroy, 10000)                                  \
  F(cuLibraryLoadData, 12000)                                   \
  F(cuLibraryGetKernel, 12000)                                  \
  F(cuKernelGetAttribute, 12000)                                \
  F(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 7000) \
  F(cuDeviceGetPCIBusId, 4010)                                  \
  F(cuDeviceGetDefaultMemPool, 11020)                           \
  F(cuDeviceGetGraphMemAttribute, 11040)                        \
  F(cuDeviceSetGraphMemAttribute, 11040)                        \
  F(cuMemPoolGetAttribute, 11020)                               \
  F(cuMemPoolSetAttribute, 11020)                               \
  F(cuMemPoolSetAccess, 11020)                                  \
  F(cuMemPoolTrimTo, 11020)                                     \
  F(cuProfilerStart, 4000)                                      \
  F(cuProfilerStop, 4000)                                       \
  F(cuGraphAddNode, 12030)                                      \
  F(cuGraphGetNodes, 10000)                                     \
  F(cuGraphNodeGetDependencies, 12030)                          \
  F(cuGraphConditionalHandleCreate, 12030)                      \
  F(cuGraphRetainUserObject, 11030)                             \
  F(cuUserObjectCreate, 11030)                                  \
  F(cuUserObjectRelease, 11030)                                 \
  F(cuLibraryLoadFromFile, 12000)                               \
  F(cuLibraryUnload, 12000)                                     \
  F(cuLibraryGetKernelCount, 12040)                             \
  F(cuLibraryGetGlobal, 12000)                                  \
  F(cuLibraryGetManaged, 12000)                                 \
  F(cuLibraryGetUnifiedFunction, 12000)                         \
  F(cuKernelSetAttribute, 12000)                                \
  F(cuArray3DCreate, 3020)                                      \
  F(cuArrayDestroy, 2000)                                       \
  F(cuArray3DGetDescriptor, 3020)                               \
  F(cuTexObjectCreate, 5000)                                    \
  F(cuTexObjectDestroy, 5000)                                   \
  F(cuTexObjectGetResourceDesc, 5000)                           \
  F(cuTexObjectGetTextureDesc, 5000)                            \
  F(cuSurfObjectCreate, 5000)                                   \
  F(cuSurfObjectDestroy, 5000)                                  \
  F(cuDeviceGetMemPool, 11020)                                  \
  F(cuDeviceSetMemPool, 11020)                                  \
  F(cuMemPoolCreate, 11020)                                     \
  F(cuMemPoolDestroy, 11020)                                    \
  F(cuDeviceGetByPCIBusId, 4010)                                \
  F(cuCtxGetLimit, 3010)                                        \
  F(cuCtxSetLimit, 3010)                                        \
  F(cuMemAdvise, 12020)                                         \
  F(cuGraphDebugDotPrint, 11030)                                \
  F(cuGetProcAddress, 12000)

// F(name, version, version of the per-thread twin): works on a stream, asked for both rules.
#define SIMCUDART_STREAM_CALLS(F)                    \
  F(cuMemcpy, 4000, 7000)                            \
  F(cuMemcpyAsync, 4000, 7000)                       \
  F(cuMemcpyHtoD, 3020, 7000)                        \
  F(cuMemcpyDtoH, 3020, 7000)                        \
  F(cuMemcpyDtoD, 3020, 7000)                        \
  F(cuMemcpyHtoDAsync, 3020, 7000)                   \
  F(cuMemcpyDtoHAsync, 3020, 7000)                   \
  F(cuMemcpyDtoDAsync, 3020, 7000)                   \
  F(cuMemcpy2DUnaligned, 3020, 7000)                 \
  F(cuMemcpy2DAsync, 3020, 7000)                     \
  F(cuMemsetD8, 3020, 7000)                          \
  F(cuMemsetD8Async, 3020, 7000)                     \
  F(cuMemsetD2D8, 3020, 7000)                        \
  F(cuMemsetD2D8Async, 3020, 7000)                   \
  F(cuMemAllocAsync, 11020, 11020)                   \
  F(cuMemFreeAsync, 11020, 11020)                    \
  F(cuStreamSynchronize, 2000, 7000)                 \
  F(cuStreamQuery, 2000, 7000)                       \
  F(cuStreamWaitEvent, 3020, 7000)                   \
  F(cuEventRecord, 2000, 7000)                       \
  F(cuStreamBeginCapture, 10010, 10010)              \
  F(cuStreamEndCapture, 10000, 10000)                \
  F(cuStreamIsCapturing, 10000, 10000)               \
  F(cuGraphLaunch, 10000, 10000)                     \
  F(cuLaunchKernel, 4000, 7000)                      \
  F(cuMemcpyPeerAsync, 4000, 7000)                   \
  F(cuStreamGetId, 12000, 12000)                     \
  F(cuStreamGetFlags, 5050, 7000)                    \
  F(cuStreamGetPriority, 5050, 7000)                 \
  F(cuStreamAddCallback, 5000, 7000)                 \
  F(cuStreamGetCaptureInfo, 12030, 12030)            \
  F(cuStreamUpdateCaptureDependencies, 12030, 12030) \
  F(cuStreamBeginCaptureToGraph, 12030, 12030)       \
  F(cuEventRecordWithFlags, 11010, 11010)            \
  F(cuLaunchKernelEx, 11060, 11060)                  \
  F(cuLaunchCooperativeKernel, 9000, 9000)           \
  F(cuMemcpy3D, 3020, 7000)                          \
  F(cuMemcpy3DAsync, 3020, 7000)                     \
  F(cuMemcpyPeer, 4000, 7000)                        \
  F(cuMemAllocFromPoolAsync, 11020, 11020)           \
  F(cuMemPrefetchAsync, 12020, 12020)                \
  F(cuGraphUpload, 11010, 11010)                     \
  F(cuLaunchHostFunc, 10000, 10000)
