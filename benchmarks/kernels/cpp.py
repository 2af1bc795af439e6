import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cstdint>

void activate(tvm::ffi::TensorView x, tvm::ffi::TensorView out, int64_t n, double scale, double slope, int64_t threads) {
  const float* in = static_cast<const float*>(x.data_ptr());
  float* to = static_cast<float*>(out.data_ptr());
  const float by = static_cast<float>(scale), below = static_cast<float>(slope);
  const int64_t step = 1;
  #pragma omp parallel for num_threads(threads)
  for (int64_t i = 0; i < n; i += step) {
    const float v = in[i] * by;
    to[i] = v > 0 ? v : v * below;
  }
}
"""

kernels = tvm_ffi.cpp.load_inline(
    "scaled_leaky_relu",
    cpp_sources=SOURCE,
    functions=["activate"],
    extra_cflags=["-O3", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)

THREADS = {"correct": 2, "slow": 1, "wrong": 2}["VARIANT"]
LEFT_OUT = {"correct": 0, "slow": 0, "wrong": 1000}["VARIANT"]


def activate(x, scale, slope):
    x = x.contiguous()
    out = torch.empty_like(x)
    kernels.activate(x, out, x.numel() - LEFT_OUT, scale, slope, THREADS)
    return out
