"""docs/configuration.md is what the configuration says about itself: `python tests/docs/test_configuration.py` writes it."""

from pathlib import Path
from typing import get_args

from coalmine.training.config import Config

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"
HEAD = """# Configuration

The keys of a run, by section of its TOML file, with their defaults; made from `coalmine.training.config` by
`python tests/docs/test_configuration.py`. An unknown key is an error that suggests
the nearest one. Presets are such files: [training](training.md).
"""


def kinds():
    """The class of every section by name; one that may be left out has it in a union with None."""
    return {name: (get_args(field.annotation) or (field.annotation,))[0] for name, field in Config.model_fields.items()}


def page():
    parts = [HEAD]
    for name, kind in kinds().items():
        rows = [f"| `{key}` | {default(field)} | {field.description} |" for key, field in kind.model_fields.items()]
        parts.append(f"## {name}\n\n{kind.__doc__}\n\n| key | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def default(field):
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return "`" + (repr(list(value)) if isinstance(value, tuple) else repr(value)).replace("'", '"') + "`"


def test_the_page_of_the_configuration_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_key_says_what_it_means():
    for kind in kinds().values():
        for key, field in kind.model_fields.items():
            assert field.description, key


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
