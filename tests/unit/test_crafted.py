"""Crafted canaries: products without gradients, designs that stand out, updates of the real client."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

import coalmine
from coalmine._random import stream
from coalmine.canaries.crafted.ghost import ghosts
from coalmine.canaries.crafted.pool import mock_clients
from coalmine.clients import LocalTraining, Trainer
from coalmine.data.dataset import Examples
from coalmine.errors import AuditError, NonFiniteError
from coalmine.models import Model, mlp
from coalmine.models.language import shakespeare_lstm
from coalmine.models.stacked import dense_shapes

MODEL = mlp(shape=20, classes=4, hidden=(12,))
PARAMETERS = MODEL.initial(0)
ONE_STEP = LocalTraining(learning_rate=0.5, batch_size=None)


def clients(count, examples=3, seed=0):
    rng = np.random.default_rng(seed)
    made = (rng.random((count, examples, 20)) * np.linspace(0, 1, 20)).astype(np.float32)
    return [Examples(each, rng.integers(4, size=examples)) for each in made]


def with_dropout():
    return torch.nn.Sequential(torch.nn.Linear(20, 12), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(12, 4))


def designed(count=4, model=MODEL, training=ONE_STEP, **options):
    return coalmine.design_canaries(
        model,
        PARAMETERS,
        training,
        clients(24),
        count=count,
        clip_norm=0.5,
        noise_multiplier=0.5,
        cohort_size=10,
        options=coalmine.Crafting(**options),
        streams=partial(stream, 7, "test"),
        held_out=clients(20, seed=1),
    )


def test_products_of_factors_are_those_of_gradients():
    some = clients(1, examples=5)[0]
    targets = torch.nn.functional.one_hot(torch.from_numpy(some.targets), 4).float()
    shapes = dense_shapes(MODEL, MODEL.flat().module)
    found = ghosts(shapes, torch.from_numpy(PARAMETERS), torch.from_numpy(some.features), targets)
    rows = -Trainer(MODEL, replace(ONE_STEP, learning_rate=1.0)).single_updates(PARAMETERS, some)
    assert np.allclose(found.products(found), rows @ rows.T, atol=1e-5)
    assert np.allclose(found.norms(), np.linalg.norm(rows, axis=1), atol=1e-5)
    assert np.allclose(found.along(torch.from_numpy(rows), shapes), rows @ rows.T, atol=1e-5)


def test_the_cheap_pool_sees_what_rows_of_updates_see():
    trainer, pool = Trainer(MODEL, ONE_STEP), clients(6)
    cheap = mock_clients(trainer, PARAMETERS, pool, 0.1)
    assert cheap.rows is None
    images, labels = torch.rand(3, 20, generator=torch.manual_seed(0)), torch.eye(4)[:3]
    gradients = -Trainer(MODEL, replace(ONE_STEP, learning_rate=1.0)).single_updates(
        PARAMETERS, Examples(images.numpy(), np.arange(3))
    )
    updates = [each.vector for each in trainer.updates(PARAMETERS, pool, [stream(0, place) for place in range(6)])]
    clipped = np.stack([each / max(np.linalg.norm(each), 0.1) for each in updates])
    expected = -clipped @ (gradients / np.linalg.norm(gradients, axis=1, keepdims=True)).T
    assert np.allclose(cheap.see(images, labels).cosines, expected, atol=1e-5)


@pytest.mark.parametrize("loss", ["log", "covariance", "mean"])
def test_a_design_stands_out_of_the_noise(loss):
    begun, crafted = designed(iterations=1, norm_margin=1e-9), designed(loss=loss, iterations=150)
    assert np.median(crafted.metrics["overlap"]) < np.median(begun.metrics["overlap"])
    assert crafted.metrics["reach"].min() == 1
    assert np.abs(crafted.directions.gram - np.eye(4)).max() < 0.5


def test_the_default_is_nearly_perfect_for_clients_that_it_never_saw():
    assert np.median(designed().metrics["efficiency"]) > 0.95


def test_the_same_streams_give_the_same_bits_and_others_do_not():
    first, again = designed(iterations=5), designed(iterations=5)
    assert first.updates.tobytes() == again.updates.tobytes()
    assert sum(values[0] for values in first.shares.values()) == pytest.approx(1)


@pytest.mark.parametrize("options", [{"init": "sample", "target": "sample"}, {"init": "rare", "target": 2}, {"target": "soft"}])
def test_starts_and_targets(options):
    crafted = designed(count=2, iterations=40, **options)
    assert crafted.metrics["cosine"].min() > 0.999
    if options["target"] == 2:
        assert [int(sample.targets[0]) for sample in crafted.samples] == [2, 2]


def test_a_box_holds():
    crafted = designed(count=2, iterations=30, box=(0.0, 1.0))
    pixels = np.stack([sample.features for sample in crafted.samples])
    assert pixels.min() >= 0
    assert pixels.max() <= 1


def test_the_published_recipe_forges_the_length_and_says_so():
    crafted = designed(count=1, iterations=30, as_published=True)
    plain = Trainer(MODEL, ONE_STEP).updates(PARAMETERS, crafted.samples, [stream(0, "any")])
    assert np.allclose(crafted.updates[0] * 0.5, next(iter(plain)).vector, atol=1e-6)
    assert any("forged" in flag for flag in crafted.flags)


def test_an_update_that_is_not_the_designed_gradient_is_refused():
    with pytest.raises(AuditError, match="cosine"):
        designed(count=1, model=Model("dropout", with_dropout), iterations=3)


EPOCHS = LocalTraining(learning_rate=0.5, batch_size=None, epochs=4, momentum=0.6)


def test_all_steps_of_a_client_as_factors():
    """Against the real client: four steps with momentum on each image alone."""
    trainer, some = Trainer(MODEL, EPOCHS), clients(5, examples=1)
    seen = mock_clients(trainer, PARAMETERS, clients(6), 0.1, unroll=True)
    features = torch.from_numpy(np.concatenate([each.features for each in some]))
    targets = torch.nn.functional.one_hot(torch.from_numpy(np.concatenate([each.targets for each in some])), 4).float()
    rows = np.stack([each.vector for each in trainer.updates(PARAMETERS, some, [stream(0, place) for place in range(5)])])
    made = seen.ghosts(features, targets)
    assert np.allclose(-0.5 * made.vectors().numpy(), rows, atol=1e-5)
    assert np.allclose(0.25 * made.products(made), rows @ rows.T, atol=1e-5)
    found, lengths = seen.see(features, targets), np.linalg.norm(rows, axis=1)
    assert np.allclose(0.5 * found.norms, lengths, atol=1e-5)
    assert np.allclose(found.cosines, -seen.rows.numpy() @ (rows / lengths[:, None]).T, atol=1e-5)


def test_a_design_that_looks_at_all_steps_is_better_than_its_first_step():
    first, unrolled = designed(training=EPOCHS), designed(training=EPOCHS, unroll=True)
    assert 1 - unrolled.metrics["cosine"].min() < 1e-6 < 1 - first.metrics["cosine"].min()
    assert np.median(unrolled.metrics["overlap"]) < np.median(first.metrics["overlap"])
    assert designed(count=1, iterations=3, unroll=True).updates.tobytes() == designed(count=1, iterations=3).updates.tobytes()


def test_an_update_may_be_used_as_it_is():
    crafted = designed(count=1, model=Model("dropout", with_dropout), iterations=3, use_as_is=True)
    assert crafted.metrics["cosine"].min() < 0.99
    assert any("as it is" in flag for flag in crafted.flags)


def test_what_cannot_be_unrolled_is_refused():
    with pytest.raises(ValueError, match="at most 8"):
        designed(training=replace(EPOCHS, epochs=9), unroll=True)
    with pytest.raises(ValueError, match="dense"):
        designed(training=EPOCHS, model=Model("dropout", with_dropout), unroll=True)


def test_texts_by_flips():
    model = shakespeare_lstm(vocabulary=20, embedding=4, hidden=8)
    rng = np.random.default_rng(0)
    rows = [rng.choice(np.arange(4, 20), size=(4, 9), p=rng.dirichlet(np.ones(16) * 0.3)) for _ in range(24)]
    pool = [Examples(each[:, :-1], each[:, 1:]) for each in rows]
    found = {}
    for flips in (1, 10):
        found[flips] = coalmine.design_canaries(
            model,
            model.initial(0),
            LocalTraining(learning_rate=1.0, batch_size=2),
            pool,
            count=1,
            clip_norm=0.2,
            noise_multiplier=0.5,
            cohort_size=10,
            options=coalmine.Crafting(iterations=flips),
            streams=partial(stream, 3, "texts"),
        )
    tokens = found[10].samples[0]
    assert (tokens.features[:, 1:] == tokens.targets[:, :-1]).all()
    assert tokens.features.min() >= 4
    assert found[10].metrics["health"][0] > found[1].metrics["health"][0]


def test_directions():
    canaries = coalmine.CraftedCanaries([[3.0, 4.0, 0.0], [0.0, 0.0, 2.0]])
    assert canaries.project(np.array([3.0, 4.0, 1.0])).tolist() == pytest.approx([5, 1])
    assert canaries.combine([0, 1], [5, 2]).tolist() == pytest.approx([3, 4, 2])
    assert canaries.norms([slice(0, 2)]).tolist() == [pytest.approx([1, 0])]
    root, inverse = coalmine.CraftedCanaries([[1.0, 0.0], [0.6, 0.8]]).roots()
    assert np.allclose(root @ inverse, np.eye(2))
    with pytest.raises(ValueError, match="nearly dependent"):
        coalmine.CraftedCanaries([[1.0, 0.0], [1.0, 1e-9]]).roots()
    with pytest.raises(NonFiniteError):
        coalmine.CraftedCanaries([[0.0, 0.0]])


def test_options_are_checked():
    with pytest.raises(ValueError, match="loss"):
        coalmine.Crafting(loss="logg")
    with pytest.raises(ValueError, match="box"):
        coalmine.Crafting(box=(1, 0))
    for one_number in ({"box": 3}, {"temperature": 3}):
        with pytest.raises(ValueError, match=f"{next(iter(one_number))}=3 is not allowed"):
            coalmine.Crafting(**one_number)
    for other in ({"target": 1.5}, {"target": True}, {"target": -1}, {"unroll": "no"}, {"as_published": "false"}):
        with pytest.raises(ValueError, match=f"{next(iter(other))}=.* is not allowed"):
            coalmine.Crafting(**other)


def test_what_cannot_be_designed_for_is_refused():
    about = {"count": 1, "clip_norm": 0.5, "noise_multiplier": 0.5, "cohort_size": 10, "streams": partial(stream, 7, "test")}
    with pytest.raises(NonFiniteError, match="diverged"):
        coalmine.design_canaries(MODEL, np.nan * PARAMETERS, ONE_STEP, clients(8), **about)
    with pytest.raises(ValueError, match="Crafting"):
        coalmine.design_canaries(MODEL, PARAMETERS, ONE_STEP, clients(8), options={"loss": "log"}, **about)
    with pytest.raises(ValueError, match="Design fewer"):
        coalmine.design_canaries(MODEL, PARAMETERS, ONE_STEP, clients(8), **about | {"count": MODEL.dim})
    narrow = [Examples(each.features[:, :5], each.targets) for each in clients(8)]
    with pytest.raises(ValueError, match="features of 5 numbers do not fit"):
        coalmine.design_canaries(MODEL, PARAMETERS, ONE_STEP, narrow, **about)
    empty = [Examples(np.nan * each.features, each.targets) for each in clients(8)]
    with pytest.raises(NonFiniteError, match="mock clients"):
        coalmine.design_canaries(MODEL, PARAMETERS, ONE_STEP, empty, **about)
