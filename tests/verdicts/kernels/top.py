"""The eight largest values of each row, the place of the largest, and the place of the largest token."""

import torch
import torch.nn as nn

ROWS = 96
COLUMNS = 300


class Model(nn.Module):
    def forward(self, x, counts):
        return torch.topk(x, 8, 1).values, x.argmax(1), counts.argmax(1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randint(0, 9, (ROWS, COLUMNS))]


def get_init_inputs():
    return []


def first_of_blocks(x, size=64):
    """The first maximum, from maxima of blocks."""
    tops = torch.stack([block.amax(1) for block in x.split(size, 1)], 1)
    block = tops.argmax(1)
    padded = nn.functional.pad(x, (0, -x.shape[1] % size), value=-(2**40))
    inside = padded.view(len(x), -1, size)[torch.arange(len(x)), block].argmax(1)
    return block * size + inside


class Sorted(Model):
    """Honest: sorts each row; first maxima from blocks."""

    def forward(self, x, counts):
        values = x.sort(1, descending=True).values[:, :8]
        return values.contiguous(), first_of_blocks(x), first_of_blocks(counts)


class LastTie(Model):
    """Wrong: of equal counts, the last instead of the first.

    Names: output 2 & tie
    """

    def forward(self, x, counts):
        last = counts.shape[1] - 1 - counts.flip(1).argmax(1)
        return x.topk(8, 1).values, x.argmax(1), last


class Unsorted(Model):
    """Wrong: the eight values are in the order of their places.

    Names: other order | permut
    """

    def forward(self, x, counts):
        places = x.topk(8, 1).indices.sort(1).values
        return x.gather(1, places), x.argmax(1), counts.argmax(1)


class BestOfBlocks(Model):
    """Wrong: the largest value of each of eight blocks.

    Names: blocks
    Unnamed: needs knowledge of the function
    """

    def forward(self, x, counts):
        tops = torch.stack([b.amax(1) for b in x.tensor_split(8, 1)], 1)
        return tops.sort(1, descending=True).values, x.argmax(1), counts.argmax(1)


class FirstBlockOnly(Model):
    """Wrong: the place is relative to its block of 64.

    Names: multiple of 64
    """

    def forward(self, x, counts):
        return x.topk(8, 1).values, first_of_blocks(x) % 64, counts.argmax(1)
