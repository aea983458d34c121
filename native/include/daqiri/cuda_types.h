/// CUDA's handles: the toolkit's own declarations where it is found, the same ones where it is not.
#pragma once

#if __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#else
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
#endif
