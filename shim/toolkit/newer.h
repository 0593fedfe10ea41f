// SPDX-License-Identifier: Apache-2.0
//
// What CUDA 13.1 to 13.5 added, for toolkits that do not declare it: a driver has these functions
// whatever toolkit Cistern was built with. Types that are passed on and never looked into are
// declared only. Included by cuda.h beside it; with 13.5 and later it adds none of CUDA's types.
#pragma once
#pragma GCC system_header

extern "C" {

// CUstreamBatchMemOpParams of an atomic reduction, under names of their own: neither the toolkit's
// union nor the range of its enumeration can be extended. No version guards them.
constexpr unsigned int CISTERN_ATOMIC_REDUCTION = 8;
typedef struct {
  unsigned int operation, flags, reductionOp, dataType;
  CUdeviceptr address;
  cuuint64_t value;
  CUdeviceptr alias;
} CisternAtomicReduction;

#if CUDA_VERSION < 13020
struct CUstreamCigCaptureParams_st;
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
#endif

#if CUDA_VERSION < 13030
constexpr CUresult CUDA_ERROR_GRAPH_RECAPTURE_FAILURE = static_cast<CUresult>(918);
typedef enum {
  CU_GRAPH_RECAPTURE_ELIGIBLE_FOR_UPDATE,
  CU_GRAPH_RECAPTURE_INELIGIBLE_FOR_UPDATE,
  CU_GRAPH_RECAPTURE_ERROR
} CUgraphRecaptureStatus;
typedef CUresult(CUDA_CB* CUgraphRecaptureCallback)(void* data, CUgraphNode node,
                                                    const CUgraphNodeParams* originalParams,
                                                    const CUgraphNodeParams* recaptureParams,
                                                    CUgraphRecaptureStatus status);

typedef cuuint32_t CUlogicalEndpointId;
typedef enum {
  CU_LOGICAL_ENDPOINT_IPC_HANDLE_TYPE_NONE,
  CU_LOGICAL_ENDPOINT_IPC_HANDLE_TYPE_FABRIC
} CUlogicalEndpointIpcHandleType;
struct CUlogicalEndpointProp_struct;
typedef struct CUlogicalEndpointProp_struct CUlogicalEndpointProp;
#endif

#if CUDA_VERSION < 13050
typedef enum {
  CU_FABRIC_COPY_OPERAND_TYPE_POINTER = 1,
  CU_FABRIC_COPY_OPERAND_TYPE_LOGICAL_ENDPOINT = 2,
  CU_FABRIC_COPY_OPERAND_TYPE_MAX = 0x7FFFFFFF
} CUfabricCpyOperandType;

typedef struct {
  CUfabricCpyOperandType type;
  union {
    struct {
      CUdeviceptr ptr;
      CUmemLocation locHint;
    } ptr;
    struct {
      CUlogicalEndpointId id;
      cuuint64_t offset;
    } le;
  } op;
} CUfabricCpyOperand;

typedef struct {
  CUfabricCpyOperand src, dst;
  size_t size;
  unsigned int flags;
} CUDA_FABRIC_COPY_BATCH_OP;
#endif

// cudaEGL.h and the headers of graphics libraries that it needs are not included. What is passed by
// value is passed as so many bytes.
struct CUeglStreamConnection_st;
typedef struct {
  void* planes[3];
  unsigned int rest[9];
} CisternEglFrame;

// Under the names of cuda.h where it has the function: the same declaration twice is no error.
CUresult CUDAAPI cuGraphAddNode_v3(CUgraphNode* phGraphNode, CUgraph hGraph,
                                   const CUgraphNode* dependencies,
                                   const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                   CUgraphNodeParams* nodeParams);
CUresult CUDAAPI cuGraphNodeSetParams_v2(CUgraphNode hNode, CUgraphNodeParams* nodeParams);

CUresult CUDAAPI cuLogicalEndpointBindAddr(CUlogicalEndpointId leId, CUdevice dev,
                                           cuuint64_t offset, void* ptr, cuuint64_t size,
                                           unsigned long long flags);
CUresult CUDAAPI cuLogicalEndpointBindMem(CUlogicalEndpointId leId, CUdevice dev, cuuint64_t offset,
                                          CUmemGenericAllocationHandle memHandle,
                                          cuuint64_t memOffset, cuuint64_t size,
                                          unsigned long long flags);
CUresult CUDAAPI cuLogicalEndpointCreate(CUlogicalEndpointId leId,
                                         const CUlogicalEndpointProp* prop);
CUresult CUDAAPI cuLogicalEndpointDestroy(CUlogicalEndpointId leId);
CUresult CUDAAPI cuLogicalEndpointIdReserve(CUlogicalEndpointId* baseLeId, cuuint32_t count);
CUresult CUDAAPI cuMulticastBindAddr_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                                        size_t mcOffset, CUdeviceptr memptr, size_t size,
                                        unsigned long long flags);
CUresult CUDAAPI cuMulticastBindMem_v2(CUmemGenericAllocationHandle mcHandle, CUdevice dev,
                                       size_t mcOffset, CUmemGenericAllocationHandle memHandle,
                                       size_t memOffset, size_t size, unsigned long long flags);

// Of cudaGL.h and cudaVDPAU.h: a VdpDevice is a number, and the last parameter a function of
// VDPAU's.
CUresult CUDAAPI cuGLCtxCreate(CUcontext* pCtx, unsigned int Flags, CUdevice device);
CUresult CUDAAPI cuGLCtxCreate_v2(CUcontext* pCtx, unsigned int Flags, CUdevice device);
CUresult CUDAAPI cuVDPAUCtxCreate(CUcontext* pCtx, unsigned int flags, CUdevice device,
                                  cuuint32_t vdpDevice, void* vdpGetProcAddress);
CUresult CUDAAPI cuVDPAUCtxCreate_v2(CUcontext* pCtx, unsigned int flags, CUdevice device,
                                     cuuint32_t vdpDevice, void* vdpGetProcAddress);

#define CISTERN_BOTH(name, parameters) \
  CUresult CUDAAPI name parameters;    \
  CUresult CUDAAPI name##_ptsz parameters;
CISTERN_BOTH(cuFabricCpyBatchAsync, (size_t numOps, CUDA_FABRIC_COPY_BATCH_OP* opList,
                                     unsigned long long flags, CUstream hStream))
CISTERN_BOTH(cuLaunchHostFunc_v2,
             (CUstream hStream, CUhostFn fn, void* userData, unsigned int syncMode))
CISTERN_BOTH(cuMemcpy3DWithAttributesAsync,
             (CUDA_MEMCPY3D_BATCH_OP * op, unsigned long long flags, CUstream hStream))
CISTERN_BOTH(cuMemcpyWithAttributesAsync, (CUdeviceptr dst, CUdeviceptr src, size_t size,
                                           CUmemcpyAttributes* attr, CUstream hStream))
CISTERN_BOTH(cuStreamBeginCaptureToCig,
             (CUstream hStream, CUstreamCigCaptureParams* streamCigCaptureParams))
CISTERN_BOTH(cuStreamBeginRecaptureToGraph,
             (CUstream hStream, CUstreamCaptureMode mode, CUgraph hGraph,
              CUgraphRecaptureCallback callbackFunc, void* userData))
CISTERN_BOTH(cuStreamEndCaptureToCig, (CUstream hStream))
#undef CISTERN_BOTH
}  // extern "C"
