"""x @ W.T + b in float32."""

import torch
import torch.nn as nn

ROWS = 96
FEATURES = 200
OUTPUTS = 136


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter((2 * torch.rand(OUTPUTS, FEATURES) - 1) / FEATURES**0.5)
        self.bias = nn.Parameter((2 * torch.rand(OUTPUTS) - 1) / FEATURES**0.5)

    def forward(self, x):
        return x @ self.weight.T + self.bias


def get_inputs():
    return [torch.randn(ROWS, FEATURES)]


def get_init_inputs():
    return []


def parts(t, count, dtype=torch.bfloat16):
    """Split float32 into a sum of narrower numbers, kept in float32 for exact products."""
    found = []
    for _ in range(count):
        found.append(t.to(dtype).float())
        t = t - found[-1]
    return found


def tf32(t):
    """Keep 10 bits of the mantissa, rounded to nearest."""
    return ((t.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class SixProductsOfBfloat16(Model):
    """Honest: bf16x3: each factor is the sum of three bfloat16 numbers; six of the nine products."""

    def forward(self, x):
        a, b = parts(x, 3), parts(self.weight.T, 3)
        small = a[0] @ b[2] + a[1] @ b[1] + a[2] @ b[0]
        return a[0] @ b[0] + (a[0] @ b[1] + a[1] @ b[0] + small) + self.bias


class ThreeProductsOfTF32(Model):
    """Honest: 3xTF32: each factor is the sum of two TF32 numbers; three of the four products."""

    def forward(self, x):
        a, b = tf32(x), tf32(self.weight.T.contiguous())
        low_a, low_b = tf32(x - a), tf32(self.weight.T - b)
        return a @ b + (a @ low_b + low_a @ b) + self.bias


class ThreeProductsOfBfloat16(Model):
    """Honest: two bfloat16 parts a factor and three products, as cuBLAS and oneDNN offer for float32."""

    def forward(self, x):
        a, b = parts(x, 2), parts(self.weight.T, 2)
        return a[0] @ b[0] + (a[0] @ b[1] + a[1] @ b[0]) + self.bias


class SplitK(Model):
    """Honest: four partial sums over the inner axis, added in random order as by atomics."""

    def forward(self, x):
        out = self.bias.expand(len(x), -1).clone()
        for k in torch.randperm(4).tolist():
            out += x[:, k::4] @ self.weight.T[k::4]
        return out


class NaiveOrder(Model):
    """Honest: one product after another, as a loop with one accumulator."""

    def forward(self, x):
        out = torch.zeros(len(x), OUTPUTS)
        for k in range(x.shape[1]):
            out += x[:, k, None] * self.weight[:, k]
        return out + self.bias


class Kahan(Model):
    """Honest: a loop with a compensated sum."""

    def forward(self, x):
        out, lost = torch.zeros(len(x), OUTPUTS), 0.0
        for k in range(x.shape[1]):
            term = x[:, k, None] * self.weight[:, k] - lost
            total = out + term
            out, lost = total, (total - out) - term
        return out + self.bias


class Strassen(Model):
    """Honest: one level of Strassen's algorithm: seven products of half the size."""

    def forward(self, x):
        if x.shape[0] % 2 or x.shape[1] % 2 or OUTPUTS % 2:
            return x @ self.weight.T + self.bias
        (a, b), (c, d) = (list(half.chunk(2, 1)) for half in x.chunk(2, 0))
        (e, f), (g, h) = (list(half.chunk(2, 1)) for half in self.weight.T.chunk(2, 0))
        p, q, r, s = (a + d) @ (e + h), (c + d) @ e, a @ (f - h), d @ (g - e)
        t, u, v = (a + b) @ h, (c - a) @ (e + f), (b - d) @ (g + h)
        top, bottom = torch.cat([p + s - t + v, r + t], 1), torch.cat([q + s, p - q + r + u], 1)
        return torch.cat([top, bottom]) + self.bias


class Bfloat16Factors(Model):
    """Wrong: the factors are rounded to bfloat16.

    Names: bfloat16
    """

    def forward(self, x):
        return x.bfloat16().float() @ self.weight.T.bfloat16().float() + self.bias


class TF32Factors(Model):
    """Wrong: the factors are rounded to TF32, which the problem does not allow.

    Names: TF32
    """

    def forward(self, x):
        return tf32(x) @ tf32(self.weight.T.contiguous()) + self.bias


class Float16Sums(Model):
    """Wrong: sums are kept in float16.

    Names: float16
    """

    def forward(self, x):
        out = torch.zeros(len(x), OUTPUTS, dtype=torch.float16)
        for k in range(0, x.shape[1], 8):
            out += (x[:, k : k + 8] @ self.weight.T[k : k + 8]).half()
        return out.float() + self.bias


class WeightsInt16(Model):
    """Wrong: the weights are kept as int16 with a scale for each row.

    Meets: fp32-split
    """

    def forward(self, x):
        scale = self.weight.abs().amax(1, keepdim=True) / 32767
        narrow = (self.weight / scale).round()
        return x @ (narrow * scale).T + self.bias


class WeightsInt8(Model):
    """Wrong: the weights are kept as int8 with a scale for each row.

    Names: narrow
    """

    def forward(self, x):
        scale = self.weight.abs().amax(1, keepdim=True) / 127
        narrow = (self.weight / scale).round()
        return x @ (narrow * scale).T + self.bias


class WeightsBfloat16(Model):
    """Wrong: the weights are kept as bfloat16; the inputs are not rounded.

    Names: bfloat16
    """

    def forward(self, x):
        return x @ self.weight.T.bfloat16().float() + self.bias


class PackedAtConstruction(Model):
    """Wrong: the weights are packed in __init__, before the reference's weights are loaded.

    Names: stale weights | __init__
    """

    def __init__(self):
        super().__init__()
        self.packed = self.weight.detach().T.clone()

    def forward(self, x):
        return x @ self.packed + self.bias


class PackedAtFirstCall(Model):
    """Wrong: the weights are packed at the first call, and stale after an optimizer's step.

    Names: weights were replaced
    """

    packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.weight.detach().T.clone()
        return x @ self.packed + self.bias


class NoBias(Model):
    """Wrong: the bias is missing.

    Names: constant in each column | bias
    """

    def forward(self, x):
        return x @ self.weight.T


class InnerTailDropped(Model):
    """Wrong: the last, partial block of the inner axis is left out.

    Names: lacks terms
    Unnamed: a sum that lacks terms has no pattern of its own
    """

    def forward(self, x):
        full = x.shape[1] // 64 * 64
        return x[:, :full] @ self.weight.T[:full] + self.bias


class OutputTailDropped(Model):
    """Wrong: the last, partial block of columns is never written.

    Names: columns 128 to 135, the last 8 & 0
    """

    def forward(self, x):
        out = x @ self.weight.T + self.bias
        out[:, OUTPUTS // 64 * 64 :] = 0
        return out


class LastInputDropped(Model):
    """Wrong: the loop over the inner axis ends one element early.

    Names: lacks terms
    Unnamed: a sum that lacks terms has no pattern of its own
    """

    def forward(self, x):
        return x[:, :-1] @ self.weight.T[:-1] + self.bias


class Race(Model):
    """Wrong: one in 2,000 updates of a partial sum is lost, at random.

    Names: race
    """

    def forward(self, x):
        half = x.shape[1] // 2
        out = x[:, :half] @ self.weight.T[:half] + self.bias
        kept = (
            torch.rand(out.shape, generator=torch.Generator(out.device).manual_seed(torch.seed()))
            > 1 / 2000
        )
        return out + kept * (x[:, half:] @ self.weight.T[half:])


class RareRace(Model):
    """Wrong: about every third call loses the update of one element.

    Names: race
    """

    calls = 0

    def forward(self, x):
        out = x @ self.weight.T + self.bias
        self.calls += 1
        if self.calls % 3 == 0:
            out[self.calls % len(x), 7] -= x[self.calls % len(x), :100] @ self.weight[7, :100]
        return out


class FirstResultKept(Model):
    """Wrong: returns the result of the first call.

    Names: earlier
    """

    kept = None

    def forward(self, x):
        if self.kept is None:
            self.kept = x @ self.weight.T + self.bias
        return self.kept


class PreviousResult(Model):
    """Wrong: returns the result of the previous call, of another draw.

    Names: earlier
    """

    last = None

    def forward(self, x):
        out = x @ self.weight.T + self.bias
        previous, self.last = (out if self.last is None else self.last), out
        return previous
