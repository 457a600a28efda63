"""What a run is told: presets, changes, and messages for what does not fit."""

import pytest

from coalmine.errors import InputFileError
from coalmine.training.config import Config, about_run, fingerprint, parse_config, preset_names, read_config, write_config


def refused(changes, *words, source="tiny", kind=ValueError):
    with pytest.raises(kind) as caught:
        read_config(source, changes)
    message = str(caught.value)
    assert all(word in message for word in words), message
    assert "pydantic" not in message and "\n" not in message
    return message


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_whole(name):
    told = read_config(name)
    text = write_config(told, {"versions": {"torch": "1"}})
    assert parse_config(text) == told  # what a run writes is what it was told
    assert about_run(text) == {"versions": {"torch": "1"}}


def test_presets_that_are_promised():
    assert {"tiny", "mnist-writers", "shakespeare", "stackoverflow-shape"} <= set(preset_names())


def test_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[participation]\nrounds = 3\n[data]\nsource = "digits"\n')
    told = read_config(path, ["run.seed=4"])
    assert (told.participation.rounds, told.data.source, told.run.seed, told.run.workers) == (3, "digits", 4, 2)


@pytest.mark.parametrize(
    ("change", "section", "key", "value"),
    [
        ("mechanism.noise_multiplier=0.25", "mechanism", "noise_multiplier", 0.25),
        ("mechanism.noise_multiplier=1", "mechanism", "noise_multiplier", 1.0),
        (" mechanism . noise_multiplier = 2 ", "mechanism", "noise_multiplier", 2.0),
        ("server.optimiser=adam", "server", "optimiser", "adam"),  # text needs no quotes
        ('server.optimiser="adam"', "server", "optimiser", "adam"),
        ("client.batch_size=all", "client", "batch_size", "all"),
        ("client.batch_size=7", "client", "batch_size", 7),
        ("audit.layers=true", "audit", "layers", True),
        ('audit.views=["known-others"]', "audit", "views", ("known-others",)),
        ("model.options.hidden=[8, 4]", "model", "options", {"hidden": [8, 4]}),
        ("data.options.path=/a=b", "data", "options", {"group": 10, "path": "/a=b"}),
    ],
)
def test_changes(change, section, key, value):
    assert getattr(getattr(read_config("tiny", [change]), section), key) == value


def test_the_last_change_counts():
    assert read_config("tiny", ["run.seed=1", "run.seed=2"]).run.seed == 2


@pytest.mark.parametrize("change", ["noise=1", "mechanism.noise_multiplier", "=1", "privacy.=1", ".x=1", "", "privacy..x=1"])
def test_changes_that_are_none(change):
    refused([change], "--set", "write section.key=value")


def test_a_change_below_a_value():
    refused(["privacy.delta.x=1"], "--set", "delta is not a section")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("mechanism.noise_multipler=1", ("has no key 'noise_multipler'", "did you mean 'noise_multiplier'?")),
        ("pivacy.delta=1", ("unknown key 'pivacy'", "did you mean 'privacy'?")),
        ("run.secret_seed=7", ("unknown key 'run.secret_seed'", "Known here: seed, workers")),
        ("audit.zebra=7", ("unknown key 'audit.zebra'", "Known here: view, bound")),
    ],
)
def test_unknown_keys(change, words):
    refused([change], *words)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("mechanism.noise_multiplier=-1", ("mechanism.noise_multiplier=-1", "greater than or equal to 0")),
        ("mechanism.noise_multiplier=nan", ("mechanism.noise_multiplier=nan", "finite")),
        ("mechanism.noise_multiplier=much", ("mechanism.noise_multiplier='much'", "number")),
        ("privacy.delta=0", ("privacy.delta=0",)),
        ("privacy.delta=1", ("privacy.delta=1",)),
        ("participation.rounds=2.5", ("participation.rounds=2.5", "integer")),
        ("participation.rounds=true", ("participation.rounds=True", "integer")),
        ("participation.rounds=0", ("participation.rounds=0",)),
        ("run.workers=0", ("run.workers=0",)),
        ("run.seed=-1", ("run.seed=-1",)),
        ("run.reference=perhaps", ("run.reference='perhaps'",)),
        ("client.momentum=1", ("client.momentum=1",)),
        ("client.batch_size=some", ("client.batch_size='some'",)),
        ("server.optimiser=adamw", ("server.optimiser='adamw'", "'sgd' or 'adam'")),
        ("audit.view=all", ("audit.view='all'", "known-others")),
        ('audit.views=["all"]', ("audit.view='all'",)),
        ("audit.confidence=95", ("audit.confidence=95", "less than 1")),
        ("model.options=3", ("model.options=3", "dictionary")),
        ("canaries.pool=-1", ("canaries.pool=-1",)),
    ],
)
def test_values_that_are_not_allowed(change, words):
    refused([change], *words, "is not allowed")


def test_a_section_that_is_none():
    with pytest.raises(ValueError, match="run=3 is not allowed"):
        parse_config("run = 3\n")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["participation.pattern=poisson"], "'poisson' needs rounds and cohort_size"),
        (["participation.pattern=min-separation", "participation.cohort_size=5"], "cohort_size and separation"),
        (["participation.pattern=trace"], "'trace' needs trace"),
        (["participation.trace=who.csv"], "belong together"),
        (["canaries.pattern=as-clients", "canaries.presentations=2"], "presentations belong to"),
        (
            ["participation.pattern=trace", "participation.trace=who.csv", "canaries.pattern=as-clients"],
            "a trace says nothing about canaries",
        ),
        (
            [
                *("participation.pattern=poisson", "participation.cohort_size=5"),
                *("canaries.pattern=as-clients", "canaries.replace_clients=true"),
            ],
            "not for replacing",
        ),
    ],
)
def test_sections_that_do_not_fit_together(changes, words):
    assert refused(changes, words).startswith("tiny: ")


def test_rounds_or_cohorts():
    with pytest.raises(ValueError, match="'once' needs rounds or cohort_size"):
        parse_config("")
    assert parse_config("[participation]\ncohort_size = 3\n").participation.rounds is None
    assert read_config("tiny", ['audit.views=["final-model"]', "canaries.pool=0"]).audit.views == ("final-model",)


def test_several_mistakes_are_said_at_once():
    refused(["privacy.delta=2", "run.sed=1"], "privacy.delta=2", "did you mean 'seed'?", "; ")


def test_neither_a_file_nor_a_preset():
    refused([], "'tinny' is neither a file nor a preset", "did you mean 'tiny'?", source="tinny", kind=InputFileError)


def test_what_is_no_toml(tmp_path):
    (tmp_path / "bad.toml").write_text("[run\n")
    refused([], "bad.toml is not TOML", source=tmp_path / "bad.toml", kind=InputFileError)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe[run]")
    refused([], "is not TOML", source=tmp_path / "bytes.toml", kind=InputFileError)


def test_a_configuration_is_fixed():
    with pytest.raises(ValueError, match="frozen"):
        read_config("tiny").run.seed = 3


def test_the_fingerprint_is_of_what_changes_a_result():
    told = read_config("tiny")
    assert fingerprint(told) == fingerprint(read_config("tiny", ["run.workers=9", "data.options.data_dir=/there"]))
    for change in ("run.seed=1", "privacy.delta=1e-6", "data.options.group=5", "run.reference=true"):
        assert fingerprint(told) != fingerprint(read_config("tiny", [change]))
    assert fingerprint(told) == fingerprint(Config.model_validate(told.model_dump()))


def test_an_epsilon_of_user_inference_needs_protection():
    with pytest.raises(ValueError, match=r"inference\.epsilon=4 needs DP"):
        read_config("infer-chat", ["inference.epsilon=4"])
    assert read_config("infer-chat", ["inference.epsilon=4", "inference.protection=user"]).inference.guesses == "tenth"
    assert read_config("infer-chat", ["inference.guesses=12"]).inference.guesses == 12
