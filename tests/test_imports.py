"""Who may import whom, and who may read the environment: the house's layering, by reading the AST.

A rule allows modules by prefix. Imports inside functions count as much as those at the top, except
where a rule says `lazy`; imports under `if TYPE_CHECKING` do not count.
"""

import ast
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SOURCES = {"voxserve": ROOT / "voxserve", "kernels": ROOT / "kernels", "models": ROOT / "models"}

DEVICE = ("torch", "triton", "cuda", "flashinfer")


def _ours(names: str) -> tuple[str, ...]:
    return tuple(f"voxserve.{name}" for name in names.split())


WORDS = _ours("errors requests config wire")
HOST_SIDE = _ours("errors requests config wire plugin steps checkpoints json_logs __version__")


@dataclass(frozen=True, slots=True)
class Rule:
    """own: allowed modules of voxserve. others: allowed third-party packages, None for any.

    banned: never, not even of the standard library. lazy: allowed inside functions alone.
    """

    own: tuple[str, ...] = ()
    others: tuple[str, ...] | None = ()
    banned: tuple[str, ...] = ()
    lazy: tuple[str, ...] = ()


RULES = {
    "voxserve": Rule(),
    "voxserve.__main__": Rule(own=_ours("cli")),
    "voxserve.errors": Rule(own=WORDS),
    "voxserve.json_logs": Rule(),
    "voxserve.requests": Rule(own=WORDS, others=("numpy",)),
    "voxserve.config": Rule(
        own=(*WORDS, "voxserve.scheduler.policy"), others=("pydantic", "pydantic_settings", "yaml")
    ),
    "voxserve.wire": Rule(own=WORDS, others=("msgspec", "numpy")),
    "voxserve.plugin": Rule(own=_ours("errors requests"), others=("numpy",)),
    "voxserve.steps": Rule(own=_ours("plugin requests"), others=("numpy",)),
    "voxserve.checkpoints": Rule(
        own=_ours("errors plugin"),
        others=("huggingface_hub", "numpy"),
        lazy=("torch", "safetensors", "yaml"),
    ),
    "voxserve.checkpoint_config": Rule(own=_ours("errors")),
    "voxserve.scheduler": Rule(
        own=_ours("scheduler"), others=("numpy",), banned=("asyncio", "time", "random")
    ),
    "voxserve.api": Rule(own=(*HOST_SIDE, *_ours("api text audio")), others=None, banned=DEVICE),
    "voxserve.text": Rule(own=(*HOST_SIDE, *_ours("text")), others=None, banned=DEVICE),
    "voxserve.audio": Rule(own=(*HOST_SIDE, *_ours("audio")), others=None, banned=DEVICE),
    "voxserve.kernels": Rule(own=_ours("kernels"), others=DEVICE),
    "voxserve.nn": Rule(own=_ours("nn kernels errors"), others=("torch", "numpy", "safetensors")),
    "voxserve.engine": Rule(
        own=(*HOST_SIDE, *_ours("engine scheduler nn kernels bench.profile_file")), others=None
    ),
    "voxserve.bench": Rule(
        own=(*HOST_SIDE, *_ours("bench scheduler")),
        others=("numpy", "msgspec", "httptools", "websockets", "rich", "matplotlib"),
    ),
    **{
        f"voxserve.bench.{name}": Rule(
            own=(*HOST_SIDE, *_ours("bench scheduler engine")), others=None
        )
        for name in ("drive", "profile", "survey", "timing")
    },
    "voxserve.bench.hearing": Rule(own=(*HOST_SIDE, *_ours("bench text")), others=("numpy",)),
    "voxserve.cli": Rule(
        own=(*HOST_SIDE, *_ours("cli api text audio bench")),
        others=("typer", "rich", "numpy", "yaml"),
        banned=DEVICE,
        lazy=_ours("engine"),
    ),
}
# Of one model's modules only `host` is named here; what it imports is kept off torch by
# test_host_side_never_reaches_torch.
MODEL = Rule(
    own=_ours("plugin nn kernels errors requests steps checkpoints checkpoint_config text"),
    others=("torch", "numpy", "safetensors", "tokenizers"),
)
MODEL_HOST = Rule(
    own=_ours("plugin errors requests steps text"), others=("numpy", "tokenizers"), banned=DEVICE
)


@dataclass(frozen=True, slots=True)
class Import:
    target: str
    line: int
    lazy: bool


def _modules() -> dict[str, Path]:
    """Every module of the package by name; the links are followed by hand, since rglob does not."""
    found = {}
    for top, folder in SOURCES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = list(path.relative_to(folder).with_suffix("").parts)
            if parts[-1] == "__init__":
                parts.pop()
            head = ["voxserve"] if top == "voxserve" else ["voxserve", top]
            found[".".join(head + parts)] = path
    return found


MODULES = _modules()


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _imports(node: ast.AST, lazy: bool = False) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                yield from _imports(ast.Module(child.orelse, []), lazy)
            case ast.Import():
                yield from (Import(alias.name, child.lineno, lazy) for alias in child.names)
            case ast.ImportFrom(module=str(module)):
                for alias in child.names:
                    yield Import(_from(module, alias.name), child.lineno, lazy)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from _imports(child, lazy=True)
            case _:
                yield from _imports(child, lazy)


def _from(module: str, name: str) -> str:
    """`from voxserve import errors` names the module `voxserve.errors`."""
    deeper = f"{module}.{name}"
    return deeper if deeper in MODULES or module == "voxserve" else module


def _under(target: str, prefixes: tuple[str, ...]) -> bool:
    return any(target == prefix or target.startswith(prefix + ".") for prefix in prefixes)


def _rule(module: str) -> Rule:
    parts = module.split(".")
    if parts[:2] == ["voxserve", "models"] and len(parts) > 2:
        own = ".".join(parts[:3])
        side = MODEL_HOST if parts[3:4] == ["host"] else MODEL
        return Rule(own=(*side.own, own), others=side.others, banned=side.banned)
    while parts and (name := ".".join(parts)) not in RULES:
        parts.pop()
    return Rule() if name == "voxserve" else RULES[name]


def _why_not(rule: Rule, found: Import) -> str | None:
    """What the import breaks, or None."""
    top = found.target.split(".")[0]
    if found.lazy and _under(found.target, rule.lazy):
        return None
    if _under(found.target, rule.banned):
        return "banned here"
    if top in sys.stdlib_module_names:
        return None
    if top == "voxserve":
        # The package itself holds the version and nothing else.
        return None if found.target == top or _under(found.target, rule.own) else "another layer"
    return None if rule.others is None or top in rule.others else "a package of another layer"


@pytest.mark.parametrize("module", sorted(MODULES))
def test_import_table(module: str) -> None:
    rule = _rule(module)
    broken = [
        f"{MODULES[module].relative_to(ROOT)}:{found.line} imports {found.target}: {why}"
        for found in _imports(_tree(MODULES[module]))
        if (why := _why_not(rule, found))
    ]
    assert not broken, "\n".join(broken)


def _closure(start: str) -> dict[str, str]:
    """What importing `start` imports in turn, each with the module that asks for it."""
    reached: dict[str, str] = {}
    todo = [start]
    while todo:
        module = todo.pop()
        # A package's __init__ runs before its modules.
        parents = [module.rsplit(".", n)[0] for n in range(1, module.count(".") + 1)]
        asked = [found.target for found in _imports(_tree(MODULES[module])) if not found.lazy]
        for target in parents + asked:
            if target not in reached:
                reached[target] = module
                if target in MODULES:
                    todo.append(target)
    return reached


HOST_ROOTS = [
    name
    for name in sorted(MODULES)
    if _under(name, ("voxserve.api", "voxserve.text", "voxserve.audio", "voxserve.cli"))
    or (name.startswith("voxserve.models.") and name.endswith((".host", ".plugin")))
]


@pytest.mark.parametrize("module", HOST_ROOTS)
def test_host_side_never_reaches_torch(module: str) -> None:
    reached = _closure(module)
    torch = {target: by for target, by in reached.items() if _under(target, DEVICE)}
    assert not torch


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"voxserve.config"}))
def test_environment_is_read_by_the_config_alone(module: str) -> None:
    reads = [
        node.lineno
        for node in ast.walk(_tree(MODULES[module]))
        if (isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"})
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and {"environ", "environb", "getenv"} & {alias.name for alias in node.names}
        )
    ]
    assert not reads, f"{MODULES[module].relative_to(ROOT)} reads the environment, lines {reads}"


def test_every_package_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["cuda"], *extras["bench"], *extras["otel"]]
    declared = {_canonical(Requirement(line).name) for line in lines}
    owners = packages_distributions()
    missing = set()
    for module, path in MODULES.items():
        for found in _imports(_tree(path)):
            top = found.target.split(".")[0]
            if top in sys.stdlib_module_names or top == "voxserve":
                continue
            # Not installed here means one of the GPU packages, whose modules are named in DEVICE.
            names = {_canonical(name) for name in owners.get(top, [])}
            if not names & declared and not (not names and top in DEVICE):
                missing.add(f"{module} imports {top}")
    assert not missing


def _canonical(name: str) -> str:
    return name.lower().replace("_", "-")


@pytest.mark.parametrize(
    ("source", "target", "lazy"),
    [
        ("import torch.nn", "torch.nn", False),
        ("from torch import nn", "torch", False),
        ("from voxserve import errors", "voxserve.errors", False),
        ("def f() -> None:\n    import torch", "torch", True),
        ("if TYPE_CHECKING:\n    pass\nelse:\n    import torch", "torch", False),
        ("class A:\n    import time", "time", False),
    ],
)
def test_reader_finds_every_form_of_import(source: str, target: str, lazy: bool) -> None:
    (found,) = _imports(ast.parse(source))
    assert (found.target, found.lazy) == (target, lazy)


def test_reader_skips_imports_for_types() -> None:
    assert not list(_imports(ast.parse("if TYPE_CHECKING:\n    import torch")))


@pytest.mark.parametrize(
    ("module", "target"),
    [
        ("voxserve.scheduler.core", "time"),
        ("voxserve.scheduler.core", "voxserve.engine.lanes"),
        ("voxserve.api.app", "torch"),
        ("voxserve.models.tiny.host", "torch"),
        ("voxserve.models.tiny.lm", "voxserve.models.other.lm"),
        ("voxserve.engine.loop", "voxserve.models.tiny"),
        ("voxserve.kernels.snake", "voxserve.errors"),
        ("voxserve.newcomer", "numpy"),
    ],
)
def test_table_refuses(module: str, target: str) -> None:
    assert _why_not(_rule(module), Import(target, line=1, lazy=False))
