"""3x3 convolution with padding in float32."""

import torch
import torch.nn as nn

BATCH = 4
CHANNELS = 8
FILTERS = 12
SIZE = 18


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(FILTERS, CHANNELS, 3, 3) / 9)
        self.bias = nn.Parameter(0.3 * torch.randn(FILTERS))

    def forward(self, x):
        return nn.functional.conv2d(x, self.weight, self.bias, padding=1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return []


class ImageToColumns(Model):
    """Honest: im2col and one matrix product."""

    def forward(self, x):
        columns = nn.functional.unfold(x, 3, padding=1)
        out = self.weight.flatten(1) @ columns + self.bias[:, None]
        return out.view(len(x), FILTERS, *x.shape[2:])


class NineShifts(Model):
    """Honest: nine 1x1 convolutions of shifted images, added up."""

    def forward(self, x):
        n, m = x.shape[2:]
        padded = nn.functional.pad(x, (1, 1, 1, 1))
        out = self.bias.view(-1, 1, 1).expand(len(x), -1, n, m).clone()
        for i in range(3):
            for j in range(3):
                tap = padded[:, :, i : i + n, j : j + m]
                out += torch.einsum("fc,bcnm->bfnm", self.weight[:, :, i, j], tap)
        return out


class Winograd(Model):
    """Honest: Winograd's F(2x2, 3x3): 16 products for four outputs instead of 36."""

    def forward(self, x):
        n, m = x.shape[2:]
        b = torch.tensor([[1.0, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]])
        g = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
        a = torch.tensor([[1.0, 1, 1, 0], [0, 1, -1, -1]])
        padded = nn.functional.pad(x, (1, 2, 1, 2))
        tiles = padded.unfold(2, 4, 2).unfold(3, 4, 2)
        v = torch.einsum("ij,bcnmjk,lk->bcnmil", b, tiles, b)
        u = torch.einsum("ij,fcjk,lk->fcil", g, self.weight, g)
        products = torch.einsum("fcil,bcnmil->bfnmil", u, v)
        y = torch.einsum("ij,bfnmjk,lk->bfnmil", a, products, a)
        y = y.permute(0, 1, 2, 4, 3, 5).reshape(len(x), FILTERS, 2 * y.shape[2], 2 * y.shape[3])
        return y[:, :, :n, :m] + self.bias.view(-1, 1, 1)


class Winograd4(Model):
    """Honest: Winograd's F(4x4, 3x3): 36 products for 16 outputs, with constants up to 8."""

    def forward(self, x):
        n, m = x.shape[2:]
        b = torch.tensor(
            [
                [4.0, 0, -5, 0, 1, 0],
                [0, -4, -4, 1, 1, 0],
                [0, 4, -4, -1, 1, 0],
                [0, -2, -1, 2, 1, 0],
                [0, 2, -1, -2, 1, 0],
                [0, 4, 0, -5, 0, 1],
            ]
        )
        g = torch.tensor(
            [
                [1 / 4, 0, 0],
                [-1 / 6, -1 / 6, -1 / 6],
                [-1 / 6, 1 / 6, -1 / 6],
                [1 / 24, 1 / 12, 1 / 6],
                [1 / 24, -1 / 12, 1 / 6],
                [0, 0, 1],
            ]
        )
        a = torch.tensor(
            [[1.0, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]]
        )
        padded = nn.functional.pad(x, (1, 5, 1, 5))
        tiles = padded.unfold(2, 6, 4).unfold(3, 6, 4)
        v = torch.einsum("ij,bcnmjk,lk->bcnmil", b, tiles, b)
        u = torch.einsum("ij,fcjk,lk->fcil", g, self.weight, g)
        products = torch.einsum("fcil,bcnmil->bfnmil", u, v)
        y = torch.einsum("ij,bfnmjk,lk->bfnmil", a, products, a)
        y = y.permute(0, 1, 2, 4, 3, 5).reshape(len(x), FILTERS, 4 * y.shape[2], 4 * y.shape[3])
        return y[:, :, :n, :m] + self.bias.view(-1, 1, 1)


class Fourier(Model):
    """Honest: a product of Fourier transforms of the padded images."""

    def forward(self, x):
        n, m = x.shape[2:]
        size = (n + 2, m + 2)
        images = torch.fft.rfft2(nn.functional.pad(x, (1, 1, 1, 1)))
        filters = torch.fft.rfft2(self.weight, size).conj()
        out = torch.fft.irfft2(torch.einsum("bcnm,fcnm->bfnm", images, filters), size)
        return out[:, :, :n, :m] + self.bias.view(-1, 1, 1)


class ChannelsLast(Model):
    """Honest: the library's convolution in another memory format."""

    def forward(self, x):
        x = x.contiguous(memory_format=torch.channels_last)
        return super().forward(x).contiguous()


class ReflectedPadding(Model):
    """Wrong: the border is reflected instead of zero.

    Names: border & padding
    """

    def forward(self, x):
        return nn.functional.conv2d(
            nn.functional.pad(x, (1, 1, 1, 1), "reflect"), self.weight, self.bias
        )


class NoPaddingBelow(Model):
    """Wrong: pads two rows above and none below.

    Names: shifted
    """

    def forward(self, x):
        return nn.functional.conv2d(nn.functional.pad(x, (1, 1, 2, 0)), self.weight, self.bias)


class Flipped(Model):
    """Wrong: a convolution in the mathematical sense: the filters are flipped.

    Names: flipped
    Unnamed: values cannot tell which weight was multiplied with which input
    """

    def forward(self, x):
        return nn.functional.conv2d(x, self.weight.flip(2, 3), self.bias, padding=1)


class Dilated(Model):
    """Wrong: dilation 2 with padding 2 gives the same shape.

    Names: dilation
    Unnamed: values cannot tell which weight was multiplied with which input
    """

    def forward(self, x):
        return nn.functional.conv2d(x, self.weight, self.bias, padding=2, dilation=2)


class LastChannelDropped(Model):
    """Wrong: the last input channel is left out.

    Names: lacks terms
    Unnamed: a sum that lacks terms has no pattern of its own
    """

    def forward(self, x):
        return nn.functional.conv2d(x[:, :-1], self.weight[:, :-1], self.bias, padding=1)


class BottomTilesDropped(Model):
    """Wrong: rows and columns after the last full tile of 8x8 are zero.

    Names: last 2 & all of them are 0
    """

    def forward(self, x):
        out = super().forward(x)
        n, m = (size // 8 * 8 for size in x.shape[2:])
        out[:, :, n:], out[:, :, :, m:] = 0, 0
        return out


class BiasOfRows(Model):
    """Wrong: the bias is added before the sum over channels: eight times.

    Names: constant in each axis-1 slice
    """

    def forward(self, x):
        return super().forward(x) + (CHANNELS - 1) * self.bias.view(-1, 1, 1)
