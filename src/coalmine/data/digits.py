"""The digits that come with scikit-learn: 1,797 images of 8×8 grey values, for quick tests. They have no writers."""

import numpy as np

from coalmine.data._files import needs
from coalmine.data.dataset import Examples, FederatedDataset, in_groups


def read_digits(*, group: int = 1) -> FederatedDataset:
    """One image per client, or `group` consecutive images; 8×8 grey values from 0 to 1, classes 0 to 9."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise needs("scikit-learn", what="the data set of digits") from None
    pixels, classes = load_digits(return_X_y=True)
    images = (pixels.reshape(-1, 8, 8) / 16).astype(np.float32)
    return in_groups("digits", Examples(images, classes.astype(np.int64)), group)
