"""Clients that fail or do not answer: the audit goes on, and its result says so."""

import pytest

from coalmine.adapters.flower import Audit, LocalGrid, Statement, audited
from coalmine.errors import NotEnoughCanariesError


def small_audit(**options):
    return Audit(
        **{"delta": 1e-5, "rounds": 6, "pool": 120, "secret_seed": 1, "statement": Statement(unused_rows=1000), **options}
    )


def test_a_client_that_fails_costs_its_round(digits):
    audit = small_audit()
    app = digits.client_app(fails=lambda partition, round_number: partition == 3 and round_number in (2, 5))
    result = digits.train(digits.fixed_clipping(audit, 0.5), audit, app)
    said = " ".join(result.caveats)
    assert "failed clients: some replied with an error (rounds 2, 5)" in said
    assert "no release: the strategy aggregated nothing, since clients failed or none answered (rounds 2, 5)" in said
    assert "4 of 6 released something" in said
    assert result.training["notes"]
    assert result.design.inserted < int(audit.schedule.inserted.sum())  # canaries of these rounds are not looked for


def test_a_client_that_does_not_answer_is_noted(digits):
    audit = small_audit()
    grid = LocalGrid(digits.client_app(), digits.CLIENTS)
    grid.silent = {4, 5}
    strategy = audited(digits.fixed_clipping(audit, 0.5), audit)
    strategy.start(grid, digits.initial_arrays(), 6)
    said = " ".join(audit.result.caveats)
    assert "missing replies: some clients did not answer (rounds 1, 2, 3, 4, 5 and 1 more)" in said
    assert "the noise is scaled for that number" in said


def test_if_nobody_ever_answers_there_is_one_message(digits):
    audit = small_audit()
    grid = LocalGrid(digits.client_app(), digits.CLIENTS)
    grid.silent = set(range(digits.CLIENTS))
    strategy = audited(digits.fixed_clipping(audit, 0.5), audit)
    strategy.start(grid, digits.initial_arrays(), 6)
    with pytest.raises(NotEnoughCanariesError, match=r"no round released anything.*did not answer"):
        audit.result  # noqa: B018


def test_a_training_that_ends_early_is_still_audited(digits):
    audit = small_audit()
    digits.rounds(digits.fixed_clipping(audit, 0.5), audit, 3)
    assert "3 of 6 released something" in " ".join(audit.result.caveats)
