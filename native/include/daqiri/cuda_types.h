/// CUDA handle types. If the CUDA toolkit is not installed, the same types are declared here.
#pragma once

#if __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#else
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
#endif
