from dataclasses import dataclass
from enum import Enum


class Gate(Enum):
    SIGMOID = "sigmoid"
    TANH = "tanh"


@dataclass
class BlockConfig:
    width: int = 32
    heads: int = 4
    gate: Gate = Gate.TANH
    scale: float = 0.5
    dropout: float = 0.1
    experimental: bool = False
    name: str = "block"
