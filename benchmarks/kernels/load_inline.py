import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>

__global__ void scaled_leaky_relu(const float* __restrict__ x, float* __restrict__ out, int64_t n,
                                  float scale, float slope) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    const float v = x[i] * scale;
    out[i] = v > 0 ? v : v * slope;
  }
}

torch::Tensor activate_cuda(torch::Tensor x, int64_t left_out, double scale, double slope, int64_t blocks) {
  auto out = torch::empty_like(x);
  scaled_leaky_relu<<<blocks, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), x.numel() - left_out, scale, slope);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""

DECLARATION = "torch::Tensor activate_cuda(torch::Tensor x, int64_t left_out, double scale, double slope, int64_t blocks);"

kernels = load_inline(
    "scaled_leaky_relu", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["activate_cuda"]
)

BLOCKS = {"correct": 132 * 16, "slow": 4, "wrong": 132 * 16}["VARIANT"]
LEFT_OUT = {"correct": 0, "slow": 0, "wrong": 1000}["VARIANT"]


def activate(x, scale, slope):
    return kernels.activate_cuda(x.contiguous(), LEFT_OUT, scale, slope, BLOCKS)
