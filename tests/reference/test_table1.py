"""The whole of Table 1 (Andrew et al., ICLR 2024), 50 simulations in each of the twelve cells, ten million dimensions included.

24 z-scores beyond 3.3 would occur by chance for one seed in about 43 (24 · 9.7e-4); the seed is fixed.
"""

import pytest

from coalmine.papers.one_shot.numbers import TABLE1
from coalmine.papers.one_shot.table1 import DIMS, Table1, table1

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table() -> Table1:
    return table1(simulations=50, seed=0)


def test_the_mean_only_estimator_reproduces_every_cell(table: Table1) -> None:
    cells = [cell for cell in table.cells if cell.estimator == "mean"]
    assert len(cells) == len(DIMS) * len(TABLE1) == 12
    for cell in cells:
        assert abs(cell.z_mean) <= 3.3, cell
        assert abs(cell.z_std) <= 3.3, cell


def test_the_literal_estimator_does_not(table: Table1) -> None:
    """It is too large in every cell by more than four standard errors: the printed table was not made this way."""
    assert all(cell.z_mean > 4 for cell in table.cells if cell.estimator == "fitted")
