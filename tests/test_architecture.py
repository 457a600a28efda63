"""The architecture: imports point to lower layers, `import coalmine` is light, files stay small, names have one spelling.

A new module goes into LAYER first: which layer is it in, and which packages below may it use?
"""

import ast
import inspect
import re
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

import pytest

import coalmine

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "coalmine"

# A module directly below `coalmine` counts as a package of its own. Packages import packages of lower layers only; the files of
# one package may import each other. CONTRIBUTING has the same table, with the purpose of each.
LAYER = {
    "errors": 0,
    "_validate": 0,
    "_random": 0,
    "_hockey_stick": 0,
    "rounding": 0,
    "drawing": 0,
    "progress": 0,
    "pace": 0,
    "shared_memory": 0,
    "tensors": 0,
    "renamed": 0,
    "manifest": 1,
    "contracts": 1,
    "terminal": 1,
    "notebook": 1,
    "hooks": 1,
    "workers": 1,
    "gaussian": 2,
    "gaussian_pairs": 2,
    "trade_off": 3,
    "doctor": 1,
    "serve": 8,
    "participation": 2,
    "data": 2,
    "models": 2,
    "runs": 2,
    "score_files": 2,
    "nulls": 3,
    "mechanisms": 3,
    "accounting": 3,
    "clients": 3,
    "canaries": 4,
    "scores": 4,
    "estimators": 5,
    "views": 5,
    "conformance": 5,
    "simulation": 5,
    "histogram": 5,
    "attacks": 6,
    "verdict": 6,
    "result": 6,
    "calibration": 6,
    "report": 7,
    "audit": 8,
    "training": 9,
    "adapters": 10,
    "zoo": 10,
    "papers": 10,
    "selftest": 10,
    "testing": 10,
    "front": 10,
    "cli": 11,
    "__main__": 12,
}
FRAMEWORKS = {"torch", "jax", "jaxlib", "flax", "tensorflow", "keras", "opacus", "flwr", "ray"}
MAY_USE_FRAMEWORKS = {"models", "clients", "attacks", "training", "adapters"}
MODULES_WITH_FRAMEWORKS = ("canaries.crafted.",)  # parts of packages that are otherwise free of them
FORBIDDEN_NAMES = {"alpha", "eps", "significance", "sigma"}
FIXED_BY_DESIGN = {("simulate_gaussian_mechanism", "sigma"), ("attack_epsilon", "sigma")}


def module_name(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}  # "" is coalmine/__init__.py


@cache
def parsed(path):
    """The syntax tree of a file, which most tests here read."""
    return ast.parse(path.read_text(encoding="utf-8"))


def package_of(module):
    return module.split(".")[0]


def imported(path):
    """(package, name or None) of every import of a file, those inside functions and type-checking blocks included."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            yield from ((node.module, alias.name) for alias in node.names)


def imported_modules(module):
    """The modules of this package that a module imports, by their names below `coalmine`."""
    found = set()
    for package, name in imported(MODULES[module]):
        if package.split(".")[0] != "coalmine":
            continue
        inner = package.removeprefix("coalmine").lstrip(".")
        deeper = f"{inner}.{name}".lstrip(".")
        found.add(deeper if deeper in MODULES else inner)
    return found


def test_every_package_has_a_layer():
    packages = {package_of(module) for module in MODULES if module}
    assert packages - set(LAYER) == set(), "give the new packages a layer in LAYER"
    assert set(LAYER) - packages == set(), "LAYER lists packages that are gone"


@pytest.mark.parametrize("module", [module for module in MODULES if module])
def test_imports_point_to_lower_layers(module):
    for other in imported_modules(module):
        assert other, f"{module} must not import `coalmine` itself; import the module that holds the name"
        if package_of(other) != package_of(module):
            assert LAYER[package_of(other)] < LAYER[package_of(module)], f"{module} must not import {other}"


def test_the_files_of_a_package_do_not_import_each_other_in_circles():
    graph = {module: imported_modules(module) for module in MODULES if module}
    assert circle(graph) is None
    assert circle({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}) is None
    assert circle({"a": {"b"}, "b": {"c", "d"}, "c": set(), "d": {"b"}}) == "b -> d -> b"


def circle(graph):
    """A circle of imports, if there is one; every module is visited once."""
    finished = set()

    def visit(module, path):
        if module in path:
            return " -> ".join([*path[path.index(module) :], module])
        found = None
        if module not in finished:
            found = next(filter(None, (visit(other, [*path, module]) for other in sorted(graph[module]))), None)
        finished.add(module)
        return found

    return next(filter(None, (visit(module, []) for module in graph)), None)


@pytest.mark.parametrize("module", MODULES)
def test_no_framework_outside_the_packages_that_train(module):
    used = {package.split(".")[0] for package, _ in imported(MODULES[module])}
    allowed = package_of(module) in MAY_USE_FRAMEWORKS or module.startswith(MODULES_WITH_FRAMEWORKS)
    assert allowed or not used & FRAMEWORKS


@pytest.mark.parametrize("module", MODULES)
def test_files_are_small(module):
    assert len(MODULES[module].read_text(encoding="utf-8").splitlines()) <= 350


def test_there_is_no_module_for_odds_and_ends():
    assert not {part for module in MODULES for part in module.split(".")} & {"utils", "util", "helpers", "common", "misc"}


def test_a_name_of_a_class_is_that_of_one_class():
    """Whoever looks for a class by its name finds one; names with an underscore are of their own file."""
    homes = {}
    for module, path in MODULES.items():
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(module)
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def loaded_by(statement):
    shown = subprocess.run(
        [sys.executable, "-c", f"{statement}; import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(shown.stdout.splitlines()[-1].split())


def test_importing_coalmine_is_light():
    loaded = loaded_by("import coalmine")
    assert "coalmine" in loaded
    for heavy in ("scipy", "scipy.stats", "torch", "matplotlib", "pandas", "pyarrow", "dp_accounting", "typer", "rich"):
        assert heavy not in loaded, heavy


def test_the_command_line_loads_its_tools_when_a_verb_needs_them():
    loaded = loaded_by("import coalmine.cli")
    for heavy in ("numpy", "scipy", "dp_accounting", "pyarrow"):
        assert heavy not in loaded, heavy


def test_statistics_need_no_framework_and_no_tables():
    loaded = loaded_by(f"from coalmine import {', '.join(name for name in coalmine.__all__ if not name.startswith('_'))}")
    for heavy in ("torch", "jax", "tensorflow", "matplotlib", "pandas", "pyarrow", "dp_accounting", "typer"):
        assert heavy not in loaded, heavy


def type_checking_imports():
    """{(module, name)} of the imports that type checkers see in `coalmine/__init__.py`."""
    tree = parsed(MODULES[""])
    block = next(node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    found = set()
    for node in block.body:
        for alias in node.names:
            assert alias.asname == alias.name, f"{alias.name}: exported names are imported as themselves"
            found.add((node.module.removeprefix("coalmine."), alias.name))
    return found


def test_type_checkers_and_python_see_the_same_names():
    homes = {(home, name) for home, names in coalmine._HOMES.items() for name in names}
    assert type_checking_imports() == homes
    assert coalmine.__all__ == sorted([*(name for _, name in homes), "__version__"])
    assert len({name for _, name in homes}) == len(homes), "one home for each name"
    assert dir(coalmine) == coalmine.__all__


@pytest.mark.parametrize("name", coalmine.__all__)
def test_every_public_name_comes_from_its_home(name):
    value = getattr(coalmine, name)
    if name != "__version__":
        assert value.__module__ == f"coalmine.{coalmine._HOME_OF[name]}"
        assert value.__doc__


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        coalmine.nonsense  # noqa: B018


def test_one_version_everywhere():
    written = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert coalmine.__version__ == written == version("coalmine")


def public_callables():
    """(name, callable) of every public function, constructor and method."""
    for name in coalmine.__all__:
        value = getattr(coalmine, name)
        if not callable(value):
            continue
        yield name, value
        if inspect.isclass(value):
            methods = inspect.getmembers(value, lambda member: inspect.isfunction(member) or inspect.ismethod(member))
            yield from ((f"{name}.{method}", member) for method, member in methods if not method.startswith("_"))


def test_public_signatures_use_one_spelling():
    """`confidence`, `epsilon`, `noise_multiplier`: never alpha, significance, eps or sigma."""
    for name, value in public_callables():
        used = {parameter for parameter in inspect.signature(value).parameters if (name, parameter) not in FIXED_BY_DESIGN}
        assert not used & FORBIDDEN_NAMES, f"{name}{inspect.signature(value)}"


def test_the_layers_are_those_of_the_contributors_page():
    rows = re.findall(r"^\| (\d+) \| ([^|]*) \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    written = {name.rstrip("/"): int(layer) for layer, names in rows for name in re.findall(r"`([^`]+)`", names)}
    assert written == LAYER


# Classes that everybody may ask for: errors, and the plain data of the contracts (layers 0 and 1).
ASKED_FOR = {name for name, layer in LAYER.items() if layer <= 1}
# Modules that read the configuration although they are neither training nor above it, with the reason.
CONFIGURED = {"training", "papers", "zoo", "cli", "front"}
CONFIG_EXCEPTIONS = {"adapters.flower.engine": "our own trainer on Flower's nodes: it runs a configuration as `training` does"}
# Modules that read `.noise_multiplier` of something else than themselves, with the reason.
NOISE_READERS = {"mechanisms", "accounting", "zoo"}  # the bugs of the zoo are mechanisms
NOISE_EXCEPTIONS = {
    "adapters.flower.reading": "Flower's own strategies have an attribute of that name, and applications state it",
    "adapters.flower.legacy": "asks `reading` for what Flower's strategy says",
    "adapters.flower.strategy": "asks `reading` for what Flower's strategy says",
    "attacks.fine_tuning": "trains by itself: `Tuning` is what people state for it",
    "adapters.opacus.engine": "Opacus's own optimizers have an attribute of that name",
}


def classes_of_others(module):
    """By local name, the package that a name was imported from, where that is another package of coalmine."""
    found = {}
    for node in ast.walk(parsed(MODULES[module])):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] == "coalmine":
            for alias in node.names:
                inner = node.module.removeprefix("coalmine").lstrip(".")
                home = package_of(inner or alias.name)
                if home != package_of(module):
                    found[alias.asname or alias.name] = home
    return found


def names_in(node):
    """The outermost names of an expression: `A`, and `b` of `b.C`."""
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def questions_of_class(tree):
    """(names that are asked for, whether a parameter's own annotation is a union with them) of every isinstance and case."""

    def visit(node, parameters):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            parameters = parameters | {each.arg: each.annotation for each in every}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("isinstance", "issubclass"):
            asked, about = names_in(node.args[1]), node.args[0]
            annotation = parameters.get(about.id) if isinstance(about, ast.Name) else None
            union = annotation is not None and any(isinstance(each, ast.BinOp) for each in ast.walk(annotation))
            yield from ((name, union and name in names_in(annotation)) for name in asked)
        if isinstance(node, ast.MatchClass):
            yield from ((name, False) for name in names_in(node.cls))
        for child in ast.iter_child_nodes(node):
            yield from visit(child, parameters)

    yield from visit(tree, {})


@pytest.mark.parametrize("module", MODULES)
def test_nobody_asks_for_a_class_of_another_package(module):
    """Whoever needs to know asks the object: a class of another package is asked for only in a union of one's own signature."""
    others = classes_of_others(module)
    for name, in_signature in questions_of_class(parsed(MODULES[module])):
        allowed = others.get(name, "contracts") in ASKED_FOR or in_signature
        assert allowed, f"{module} asks for the class {name} of {others[name]}"


def test_the_rule_about_classes_finds_what_it_is_for():
    code = """
def open(signature: A | str, other: A, either: Union[A, str]):
    isinstance(signature, A), isinstance(other, A), isinstance(self.x, (str, b.C)), [lambda: isinstance(signature, D)]
    match other:
        case E(1):
            pass
"""
    assert sorted(questions_of_class(ast.parse(code))) == [
        ("A", False),
        ("A", True),
        ("D", False),
        ("E", False),
        ("b", False),
        ("str", False),
    ]


def test_nobody_but_the_trainer_and_what_stands_on_it_reads_the_configuration():
    readers = {
        module
        for module in MODULES
        if package_of(module) not in CONFIGURED and imported_modules(module) & {"training.config", "training.sections"}
    }
    assert readers == set(CONFIG_EXCEPTIONS)


def test_nobody_but_mechanisms_and_accountants_reads_a_noise_multiplier():
    """As a name of a parameter or a key, where people state it, it stays; an object may also read its own."""
    readers = set()
    for module, path in MODULES.items():
        for node in ast.walk(parsed(path)):
            own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
            if isinstance(node, ast.Attribute) and node.attr == "noise_multiplier" and not own:
                readers.add(module)
    assert {module for module in readers if package_of(module) not in NOISE_READERS} == set(NOISE_EXCEPTIONS)


COMMANDS = (
    ["zoo", "--list"],
    ["reproduce", "--list"],
    *([verb, "--help"] for verb in ("run", "zoo", "reproduce", "plan", "group")),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_lists_and_help_load_no_trainer_and_no_scipy(words):
    program = f"""
import sys
from coalmine.__main__ import main
sys.argv[1:] = {words!r}
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
"""
    loaded = loaded_by(program + "0")
    assert "coalmine.cli" in loaded
    for heavy in (
        *(["numpy"] if "--list" in words else []),
        "torch",
        "scipy.special",
        "scipy.linalg",
        "scipy.fft",
        "dp_accounting",
        "matplotlib",
        "jinja2",
        "ray",
        "flwr",
    ):
        assert heavy not in loaded, heavy


def test_the_package_is_a_program():
    shown = subprocess.run([sys.executable, "-m", "coalmine", "--version"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"coalmine {coalmine.__version__}\n"
