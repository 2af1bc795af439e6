"""An exponential moving average in C++: one pass over time, with the state of 64 channels in registers."""

import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
#include <cmath>
#include <cstdint>

using tvm::ffi::TensorView;

const float* floats(TensorView tensor) {
  TVM_FFI_ICHECK(tensor.dtype() == (DLDataType{kDLFloat, 32, 1}) && tensor.IsContiguous()) << "must be dense float32";
  return static_cast<const float*>(tensor.data_ptr());
}

void moving_average(TensorView x, TensorView decay, TensorView out) {
  constexpr int64_t block = 64;
  const int64_t batch = x.size(0), steps = x.size(1), channels = x.size(2);
  const int64_t blocks = (channels + block - 1) / block;
  const float *xs = floats(x), *decays = floats(decay);
  float* results = const_cast<float*>(floats(out));
#pragma omp parallel for schedule(static)
  for (int64_t part = 0; part < batch * blocks; ++part) {
    const int64_t first = part % blocks * block;
    const int64_t width = channels - first < block ? channels - first : block;
    float state[block] = {};
    for (int64_t step = 0; step < steps; ++step) {
      const int64_t offset = (part / blocks * steps + step) * channels + first;
#pragma omp simd
      for (int64_t i = 0; i < width; ++i) {
        const float kept = decays[first + i];
        state[i] = kept * state[i] + (1.0f - kept) * xs[offset + i];
        results[offset + i] = state[i];
      }
    }
  }
}
"""

kernels = tvm_ffi.cpp.load_inline(
    "moving_average",
    cpp_sources=SOURCE,
    functions=["moving_average"],
    extra_cflags=["-O3", "-march=native", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.logit = nn.Parameter(torch.linspace(0.5, 3.0, channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        kernels.moving_average(x, torch.sigmoid(self.logit), out)
        return out
