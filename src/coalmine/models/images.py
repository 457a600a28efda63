"""The convolutional network of federated EMNIST (Reddi et al. 2021, "Adaptive Federated Optimization").

Two 3×3 convolutions of 32 and 64 channels, maximum over 2×2, a hidden layer of 128, one output for each class: 1,206,590
parameters for 62 classes, 1,199,882 for the 10 digits.

Where we depart, and why:

* No dropout. The paper's model has it after the pooling and the hidden layer; with one or a few passes over each client's data
  it changes little, and without it an update is a function of the parameters and the batches alone.
* The same sums in an order that costs less. Channels come last in memory throughout, so that the inputs of the hidden layer are
  those of the usual order, permuted. The first convolution is a product with the image moved by 0 to 2 pixels, since with one
  channel the gradient of a convolution costs more than its work. The second one's bias and rectifier come after the pooling,
  where there is a quarter as much to do: the largest of four numbers stays the largest.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from coalmine import _validate
from coalmine.models.model import Model


class EmnistCnn(nn.Module):
    """Convolution, convolution, pooling, hidden layer, output; images of (height, width, channels)."""

    def __init__(self, height: int, width: int, channels: int, classes: int) -> None:
        super().__init__()
        self.shape = (height, width, channels)
        self.conv1 = nn.Conv2d(channels, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.hidden = nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128)
        self.output = nn.Linear(128, classes)

    def forward(self, features: Tensor) -> Tensor:
        """Outputs of the classes, one row for each image."""
        height, width, channels = self.shape
        first, second = self.conv1.bias, self.conv2.bias
        assert first is not None and second is not None  # (Conv2d may be made without)
        images = features.reshape(-1, height, width, channels)
        shifted = images.unfold(1, height - 2, 1).unfold(2, width - 2, 1)  # (images, 3, 3, channels, height - 2, width - 2)
        patches = shifted.permute(3, 1, 2, 0, 4, 5).reshape(9 * channels, -1).t()
        maps = torch.addmm(first, patches, self.conv1.weight.flatten(1).t().contiguous())
        maps = torch.relu_(maps).view(-1, height - 2, width - 2, 32)
        maps = functional.conv2d(maps.permute(0, 3, 1, 2), self.conv2.weight)
        maps = torch.max_pool2d(maps, 2).permute(0, 2, 3, 1)
        maps = torch.relu_(maps + second)
        hidden: Tensor = self.hidden(maps.flatten(1))
        outputs: Tensor = self.output(torch.relu_(hidden))
        return outputs


def emnist_cnn(*, classes: int = 62, shape: Sequence[int] = (28, 28)) -> Model:
    """The EMNIST network; `shape` is (height, width) or (height, width, channels).

    >>> emnist_cnn().dim, emnist_cnn(classes=10).dim
    (1206590, 1199882)
    """
    sizes = tuple(_validate.whole("shape", size, least=1) for size in shape)
    if len(sizes) not in (2, 3) or min(sizes[:2]) < 6:
        raise ValueError(
            f"shape={tuple(shape)!r} is not allowed: it must be (height, width), at least 6 each, or with channels."
        )
    height, width, channels = (*sizes, 1)[:3]
    build = partial(EmnistCnn, height, width, channels, _validate.whole("classes", classes, least=2))
    return Model("emnist-cnn", build, features="numbers")
