import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cuda_runtime.h>
#include <cstdint>

__global__ void scaled_leaky_relu(const float* __restrict__ x, float* __restrict__ out, int64_t n,
                                  float scale, float slope) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n / 4; i += step) {
    float4 v = reinterpret_cast<const float4*>(x)[i];
    v.x *= scale; v.y *= scale; v.z *= scale; v.w *= scale;
    v.x = v.x > 0 ? v.x : v.x * slope;
    v.y = v.y > 0 ? v.y : v.y * slope;
    v.z = v.z > 0 ? v.z : v.z * slope;
    v.w = v.w > 0 ? v.w : v.w * slope;
    reinterpret_cast<float4*>(out)[i] = v;
  }
}

void activate(tvm::ffi::TensorView x, tvm::ffi::TensorView out, int64_t n, double scale, double slope, int64_t blocks) {
  cudaStream_t stream = static_cast<cudaStream_t>(
      TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  scaled_leaky_relu<<<static_cast<unsigned>(blocks), 256, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()), static_cast<float*>(out.data_ptr()), n,
      static_cast<float>(scale), static_cast<float>(slope));
  TVM_FFI_ICHECK(cudaGetLastError() == cudaSuccess) << "the launch failed";
}
"""

kernels = tvm_ffi.cpp.load_inline("scaled_leaky_relu", cuda_sources=SOURCE, functions=["activate"])

BLOCKS = {"correct": 132 * 16, "slow": 4, "wrong": 132 * 16}["VARIANT"]
LEFT_OUT = {"correct": 0, "slow": 0, "wrong": 1000}["VARIANT"]


def activate(x, scale, slope):
    x = x.contiguous()
    out = torch.empty_like(x)
    kernels.activate(x, out, x.numel() - LEFT_OUT, scale, slope, BLOCKS)
    return out
