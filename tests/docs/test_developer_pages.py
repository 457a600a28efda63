"""What the pages for developers name is there: modules with their functions, and classes with their methods."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "coalmine"
PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs" / "developer").glob("*.md"))]
OLD = {"names.md"}  # which is about names that are gone
_CODE = re.compile(r"`((?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*\(?)")


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        yield name, ast.parse(path.read_text(encoding="utf-8"))


def names_of(body):
    """What a module or a class defines, or imports for others."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def missing(text, found, classes):
    """Names in a page that are not there: `package.module.name(`, and `Class.name` of our classes."""
    for name in sorted(set(_CODE.findall(text))):
        home, _, last = name.removesuffix("(").removeprefix("coalmine.").rpartition(".")
        if home in classes:
            if last not in classes[home]:
                yield name
        elif "." in home and name.endswith("(") and last not in found.get(home, ()):
            yield name


@pytest.fixture(scope="module")
def ours():
    trees = dict(modules())
    found = {name: set(names_of(tree.body)) for name, tree in trees.items()}
    classes = {}
    for tree in trees.values():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
                classes.setdefault(node.name, (set(), set()))
                classes[node.name][0].update(names_of(node.body))
                classes[node.name][1].update(bases)
    return found, {
        name: own.union(*(classes[base][0] for base in bases if base in classes)) for name, (own, bases) in classes.items()
    }


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in OLD], ids=lambda page: page.name)
def test_named_code_is_there(page, ours):
    assert list(missing(page.read_text(encoding="utf-8"), *ours)) == []


def test_what_is_gone_is_found(ours):
    text = "`audit.conclude.conclude(scorer)`, `report.finish.write_page(x)`, `Work._train`, `Work.fold`, `audit.also`"
    assert list(missing(text, *ours)) == ["Work._train", "report.finish.write_page("]
