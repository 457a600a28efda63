"""The image networks of CANIFE (Maddock et al. 2023): the small convolutional network of LEAF's CelebA, and ResNet18.

    model         layers                                                        parameters (CelebA: 32×32×3, two classes)
    leaf-cnn      four 3×3 convolutions of 32 channels, each with pooling       29,282
    resnet18-gn   He et al. 2016, group instead of batch normalisation          11,177,538

Both counts are those of the paper. Images are (height, width, channels).

Where we depart, and why:

* No dropout, as in that paper.
* leaf-cnn has one normalisation that all four convolutions share, and pads by two, as its PyTorch version does: only so it has
  the stated number of parameters. Each channel is a group of its own.
* resnet18-gn has groups of 32, so that an update is a function of the client's own examples.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from coalmine import _validate
from coalmine.models.model import Model

_CHANNELS, _CONVOLUTIONS, _PADDING = 32, 4, 2
_LEAST_SIDE = 4  # below, nothing is left after four poolings


class LeafCnn(nn.Module):
    """Four times convolution, normalisation, rectifier and pooling; then the classes."""

    def __init__(self, height: int, width: int, channels: int, classes: int) -> None:
        super().__init__()
        self.shape = (height, width, channels)
        inputs = (channels, *(_CHANNELS,) * (_CONVOLUTIONS - 1))
        self.convolutions = nn.ModuleList(nn.Conv2d(each, _CHANNELS, 3, padding=_PADDING) for each in inputs)
        self.norm = nn.GroupNorm(_CHANNELS, _CHANNELS)
        self.output = nn.Linear(_CHANNELS * _left(height) * _left(width), classes)

    def forward(self, features: Tensor) -> Tensor:
        """Outputs of the classes, one row for each image."""
        maps = _channels_first(features, self.shape)
        for convolution in self.convolutions:
            maps = torch.max_pool2d(torch.relu(self.norm(convolution(maps))), 2)
        outputs: Tensor = self.output(maps.flatten(1))
        return outputs


class ResidualBlock(nn.Module):
    """Two convolutions with a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(groups, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(groups, outputs)
        self.around = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.around.append(nn.Conv2d(inputs, outputs, 1, stride, bias=False))
            self.around.append(nn.GroupNorm(groups, outputs))

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the block."""
        inner: Tensor = self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(maps)))))
        return torch.relu(inner + self.around(maps))


class ResNet18(nn.Module):
    """A stem, eight blocks of two convolutions, the mean over places, the classes."""

    def __init__(self, height: int, width: int, channels: int, classes: int, groups: int, base: int) -> None:
        super().__init__()
        self.shape = (height, width, channels)
        self.stem = nn.Conv2d(channels, base, 7, 2, 3, bias=False)
        self.norm = nn.GroupNorm(groups, base)
        widths, blocks, inputs = (base, 2 * base, 4 * base, 8 * base), [], base
        for place, outputs in enumerate(widths):
            for number in range(2):
                blocks.append(ResidualBlock(inputs, outputs, 2 if place and not number else 1, groups))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.output = nn.Linear(widths[-1], classes)

    def forward(self, features: Tensor) -> Tensor:
        """Outputs of the classes, one row for each image."""
        maps = torch.relu(self.norm(self.stem(_channels_first(features, self.shape))))
        maps = self.blocks(torch.nn.functional.max_pool2d(maps, 3, 2, 1))
        outputs: Tensor = self.output(maps.mean((2, 3)))
        return outputs


def _channels_first(features: Tensor, shape: tuple[int, int, int]) -> Tensor:
    return features.reshape(-1, *shape).permute(0, 3, 1, 2)


def _left(side: int) -> int:
    """What four convolutions with pooling leave of a side."""
    for _ in range(_CONVOLUTIONS):
        side = (side + 2 * _PADDING - 2) // 2
    return side


def _image_model(name: str, build: type[nn.Module], shape: Sequence[int], classes: int, *further: int) -> Model:
    sizes = tuple(_validate.whole("shape", size, least=1) for size in shape)
    if len(sizes) not in (2, 3) or min(sizes[:2]) < _LEAST_SIDE:
        raise ValueError(
            f"shape={tuple(shape)!r} is not allowed: it must be (height, width), at least {_LEAST_SIDE} each, or with channels."
        )
    height, width, channels = (*sizes, 1)[:3]
    made = partial(build, height, width, channels, _validate.whole("classes", classes, least=2), *further)
    return Model(name, made, features="numbers")


def leaf_cnn(*, shape: Sequence[int], classes: int) -> Model:
    """The small network of LEAF's CelebA; `shape` is (height, width) or (height, width, channels).

    >>> leaf_cnn(shape=(32, 32, 3), classes=2).dim
    29282
    """
    return _image_model("leaf-cnn", LeafCnn, shape, classes)


def resnet18_gn(*, shape: Sequence[int], classes: int, groups: int = 32, base: int = 64) -> Model:
    """ResNet18 with group normalisation; `base` is the number of channels of its first layer, which `groups` must divide.

    >>> resnet18_gn(shape=(32, 32, 3), classes=2).dim
    11177538
    """
    if _validate.whole("base", base, least=1) % _validate.whole("groups", groups, least=1):
        raise ValueError(f"groups={groups} is not allowed: it must divide base={base}, the channels of the first layer.")
    return _image_model("resnet18-gn", ResNet18, shape, classes, groups, base)
