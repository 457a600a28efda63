"""The documentation as a static site: `make docs` writes it to site/. Nothing in it is loaded from elsewhere.

The pages are those of this repository. Beside `docs/` they link to the README, which becomes the first page, CONTRIBUTING and
CHANGELOG, and to scripts and examples, which the site holds as files. So they are put together in a folder first, and links are
written as seen from there; a link that leads nowhere ends the build.
"""

import logging
import re
import shutil
import sys
import tempfile
from pathlib import Path

import coalmine

ROOT = Path(__file__).parents[1]
TOP = {"README.md": "index.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
REFERENCE = """# API reference

Every public name of `coalmine`, from its docstring. [Notation](notation.md) has the papers' symbols for them.

"""

MORE = {  # public, and not at the front door
    "coalmine.testing.assert_conforms": "coalmine.testing.steps.assert_conforms",
    "coalmine.testing.assert_samples": "coalmine.testing.samples.assert_samples",
    "coalmine.adapters.opacus.attach": "coalmine.adapters.opacus.engine.attach",
    "coalmine.adapters.loop": "coalmine.adapters.loop.LoopMechanism",
    "coalmine.adapters.Statement": "coalmine.audit.spec.Statement",
}


def pages(folder):
    """All pages and the files that they link to, as the site has them."""
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("__pycache__", "zoo.html"), dirs_exist_ok=True)
    for name in ("examples", "benchmarks", "src"):
        shutil.copytree(
            ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "results", "runs")
        )
    for name, page in TOP.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        (folder / page).write_text(re.sub(r"\]\((\.?/?)docs/", "](", text), encoding="utf-8")
    (folder / "LICENSE").write_bytes((ROOT / "LICENSE").read_bytes())
    for page in folder.rglob("*.md"):
        depth = len(page.relative_to(folder).parts) - 1
        text = page.read_text(encoding="utf-8")
        for name in (*TOP, "examples", "benchmarks", "src"):  # beside docs/ there, inside of it here
            text = re.sub(rf"\]\({re.escape('../' * (depth + 1) + name)}\b", f"]({'../' * depth}{name}", text)
        text = text.replace("README.md#", "index.md#") if page.parent == folder else text
        page.write_text(text.replace("](README.md)", "](index.md)"), encoding="utf-8")
    names = [name for name in coalmine.__all__ if not name.startswith("_")]
    home = coalmine._HOME_OF
    places = {name: f"coalmine.{home[name]}.{name}" for name in names} | MORE
    (folder / "api.md").write_text(REFERENCE + "\n".join(f"## {name}\n\n::: {place}\n" for name, place in places.items()))


def main():
    """Build the site; a warning is an error."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    with tempfile.TemporaryDirectory() as folder:
        pages(Path(folder))
        config = load_config(str(ROOT / "mkdocs.yml"), docs_dir=folder, strict=True)
        config.plugins.on_startup(command="build", dirty=False)
        try:
            build(config)
        finally:
            config.plugins.on_shutdown()
    print("site/ is written; `python -m http.server -d site` shows it. Opened as files the pages have no search field.")


if __name__ == "__main__":
    sys.exit(main())
