"""From the name of a model to its plug-in, configuration and weights.

`find` runs in the API process and imports no torch; the loaders below it run in the engine process
and import torch when called. A model builds its modules on the meta device and hands them to
`load_weights` or `dummy_weights`, so that no weight exists twice.
"""

import difflib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from voxserve.errors import CheckpointError
from voxserve.plugin import Checkpoint, Plugin

if TYPE_CHECKING:
    import torch

GROUP = "voxserve.models"
NAMES_SHOWN = 4
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def find(model: str, *, dummy: bool) -> tuple[Plugin, Checkpoint]:
    """The plug-in and the checkpoint that `model` names.

    model: an entry point's name, a folder, or a hub id (taken from the local cache when there is
    no network). dummy: random weights; then only the configuration is looked for, and for hub ids
    that a plug-in knows not even that.
    Raises CheckpointError saying what was looked for.
    """
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    if model in entries:
        return _by_entry(model, _load_entry(entries[model]), dummy)
    folder = Path(model).expanduser()
    if folder.is_dir():
        return _by_folder(model, folder, entries.values(), dummy)
    plugins, broken = _load_all(entries.values())
    if dummy:
        for plugin in plugins:
            if model in plugin.published:
                return plugin, Checkpoint(model, None, plugin.published[model], dummy=True)
    published = [name for plugin in plugins for name in plugin.published]
    if not _HUB_ID.fullmatch(model):
        raise CheckpointError(_unknown(model, [*entries, *published], broken))
    names = sorted({name for plugin in plugins for name in plugin.config_names})
    try:
        folder = _snapshot(model, names)
        plugin, checkpoint = _by_folder(model, folder, entries.values(), dummy)
        if not dummy:
            _snapshot(model, plugin.files)
    except CheckpointError as error:
        hint = _nearest(model, [*entries, *published])
        raise CheckpointError(f"{error.message}{hint}") from error
    return plugin, checkpoint


def _by_entry(name: str, plugin: Plugin, dummy: bool) -> tuple[Plugin, Checkpoint]:
    if plugin.bundled is not None:
        config = _read_config(plugin.bundled, plugin.config_names)
        if config is None:
            raise CheckpointError(f"model {name} lacks its configuration in {plugin.bundled}")
        random = dummy or plugin.bundled_dummy
        return plugin, Checkpoint(name, plugin.bundled, config, dummy=random)
    if dummy and plugin.published:
        return plugin, Checkpoint(name, None, next(iter(plugin.published.values())), dummy=True)
    known = f", such as {_few(list(plugin.published))}" if plugin.published else ""
    raise CheckpointError(f"model {name} has no weights of its own: name a folder or hub id{known}")


def _by_folder(
    model: str, folder: Path, entries: Iterable[EntryPoint], dummy: bool
) -> tuple[Plugin, Checkpoint]:
    plugins, broken = _load_all(entries)
    seen = False
    for plugin in plugins:
        config = _read_config(folder, plugin.config_names)
        if config is not None:
            seen = True
            if plugin.recognises(config):
                return plugin, Checkpoint(model, folder, config, dummy=dummy)
    names = sorted({name for plugin in plugins for name in plugin.config_names})
    why = "is of no known kind" if seen else f"has no {' or '.join(names)}"
    raise CheckpointError(f"checkpoint {folder} {why}{''.join(broken)}")


def _load_entry(entry: EntryPoint) -> Plugin:
    try:
        plugin = entry.load()
    except (ImportError, AttributeError) as error:
        raise CheckpointError(f"plug-in {entry.name} ({entry.value}): {error}") from error
    if not isinstance(plugin, Plugin):
        kind = type(plugin).__name__
        raise CheckpointError(f"plug-in {entry.name} ({entry.value}) is a {kind}, not a Plugin")
    return plugin


def _load_all(entries: Iterable[EntryPoint]) -> tuple[list[Plugin], list[str]]:
    """All plug-ins that load, and a note on each that does not: one may not break the others."""
    plugins, broken = [], []
    for entry in entries:
        try:
            plugins.append(_load_entry(entry))
        except CheckpointError as error:
            broken.append(f"; {error.message}")
    return plugins, broken


def _read_config(folder: Path, names: Sequence[str]) -> Mapping[str, Any] | None:
    """The first of the named files that exists in the folder, parsed: YAML or JSON by its name."""
    for name in names:
        file = folder / name
        if file.is_file():
            yaml = file.suffix in (".yaml", ".yml")
            try:
                config = (_read_yaml if yaml else json.loads)(file.read_text(encoding="utf-8"))
            except ValueError as error:
                kind = "YAML" if yaml else "JSON"
                raise CheckpointError(f"{file} is not {kind}: {error}") from error
            if not isinstance(config, dict):
                raise CheckpointError(f"{file} holds a {type(config).__name__}, not an object")
            return config
    return None


def _read_yaml(text: str) -> Any:
    """YAML as plain data. Tags, with which some checkpoints name classes to be built, call nothing:
    a mapping keeps its tag under the key `!`, anything else loses it. Raises ValueError."""
    import yaml

    class Plain(yaml.SafeLoader):
        pass

    def construct(loader: yaml.SafeLoader, tag: str, node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode):
            return {"!": tag, **loader.construct_mapping(node, deep=True)}
        if isinstance(node, yaml.SequenceNode):
            return loader.construct_sequence(node, deep=True)
        assert isinstance(node, yaml.ScalarNode)
        return loader.construct_scalar(node)

    Plain.add_multi_constructor("!", construct)
    try:
        return yaml.load(text, Plain)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def _snapshot(hub_id: str, patterns: Sequence[str]) -> Path:
    """The hub's files that match, downloaded or from the cache."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(patterns)))
    except (OSError, ValueError) as error:
        first = f"{type(error).__name__}: {str(error).strip()}".splitlines()[0]
        raise CheckpointError(f"no folder and no hub id {hub_id}: {first}") from error


def _unknown(model: str, names: Sequence[str], broken: Sequence[str]) -> str:
    known = f"known models: {', '.join(names)}" if names else "no model is installed"
    return f"no model, folder or hub id {model!r}; {known}{_nearest(model, names)}{''.join(broken)}"


def _nearest(model: str, names: Sequence[str]) -> str:
    plain = {name.casefold(): name for name in names}
    near = difflib.get_close_matches(model.casefold(), plain, n=1, cutoff=0.5)
    return f"; did you mean {plain[near[0]]}?" if near and plain[near[0]] != model else ""


def _few(names: Sequence[str]) -> str:
    rest = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


Rename = Callable[[str], str | None]
"""Published tensor name -> name in the module, or None for a tensor that is knowingly unused."""

Moments = Callable[[str, tuple[int, ...]], tuple[float, float] | None]
"""(tensor name, shape) -> (mean, standard deviation) of random weights, None for the default."""


def load_weights(
    module: "torch.nn.Module",
    path: Path,
    *,
    device: str,
    dtype: "torch.dtype",
    rename: Rename = lambda name: name,
) -> None:
    """Fill a module made on the meta device; its tensors end on `device`, floats as `dtype`.

    path: a folder with one .safetensors file or an index of shards, or a .safetensors or .pt file.
    Tensors are read one at a time. Buffers that no checkpoint holds are moved as they are.
    Raises CheckpointError on a missing, unexpected, doubled or differently shaped tensor.
    """
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    found: dict[str, torch.Tensor] = {}
    unexpected: list[str] = []
    misshapen: dict[str, tuple[int, ...]] = {}
    for file in weight_files(path):
        for published, shape, read in _tensors(file, device):
            name = rename(published)
            if name is None:
                continue
            if name not in wanted:
                unexpected.append(published)
            elif name in found:
                raise CheckpointError(f"{path} holds {published} twice")
            elif shape != wanted[name]:
                misshapen[name] = shape
            else:
                tensor = read()
                found[name] = tensor.to(device, dtype if tensor.is_floating_point() else None)
    missing = [name for name in wanted if name not in found and name not in misshapen]
    shapes = [f"{name} {list(shape)} for {list(wanted[name])}" for name, shape in misshapen.items()]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": shapes}
    said = [f"{len(names)} {kind}: {_few(names)}" for kind, names in kinds.items() if names]
    if said:
        raise CheckpointError(f"tensors of {path}: {'; '.join(said)}")
    _assign(module, found, device)


def dummy_weights(
    module: "torch.nn.Module",
    *,
    device: str,
    dtype: "torch.dtype",
    seed: int = 0,
    moments: Moments = lambda name, shape: None,
) -> None:
    """Fill a module made on the meta device with random weights, made on `device`.

    Each tensor depends on (seed, its name, its shape) alone, drawn in float32 whatever `dtype`.
    By default matrices have standard deviation 1 / sqrt(inputs), vectors named `weight` are ones,
    other vectors zeros.
    """
    import torch

    made = {}
    for name, tensor in module.state_dict().items():
        shape = tuple(tensor.shape)
        mean, deviation = moments(name, shape) or _default_moments(name, shape)
        # The CPU's generator looks at 32 bits of its seed.
        generator = torch.Generator(device).manual_seed(zlib.crc32(f"{seed} {name}".encode()))
        values = torch.empty(shape, dtype=torch.float32, device=device)
        made[name] = values.normal_(mean, deviation, generator=generator).to(dtype)
    _assign(module, made, device)


def weight_files(path: Path) -> list[Path]:
    """The files of one set of tensors. Raises CheckpointError when there is none."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise CheckpointError(f"{path} is not there")
    index = path / "model.safetensors.index.json"
    if index.is_file():
        places = (_read_config(path, [index.name]) or {}).get("weight_map")
        if not isinstance(places, dict) or not places:
            raise CheckpointError(f"{index} has no weight_map")
        shards = sorted(set(places.values()))
        absent = [name for name in shards if not (path / name).is_file()]
        if absent:
            raise CheckpointError(f"{path} lacks {len(absent)} shards: {_few(absent)}")
        return [path / name for name in shards]
    files = sorted(path.glob("*.safetensors"))
    if len(files) != 1:
        what = "no" if not files else "more than one"
        raise CheckpointError(f"{path} has {what} .safetensors file and no {index.name}")
    return files


_Read = Callable[[], "torch.Tensor"]


def _tensors(file: Path, device: str) -> Iterator[tuple[str, tuple[int, ...], _Read]]:
    """(name, shape, read) of each tensor; `read` does the work, so that a check can come first."""
    import pickle

    import torch
    from safetensors import SafetensorError, safe_open

    if file.suffix == ".safetensors":
        try:
            with safe_open(file, framework="pt", device=device) as tensors:
                for name in tensors.keys():  # noqa: SIM118 (not a mapping)
                    shape = tuple(tensors.get_slice(name).get_shape())
                    yield name, shape, partial(tensors.get_tensor, name)
        except SafetensorError as error:
            raise CheckpointError(f"{file} is damaged: {error}") from error
        return
    try:
        content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise CheckpointError(f"{file} is not a plain file of tensors: {error}") from error
    for name, tensor in content.items():
        yield name, tuple(tensor.shape), tensor.clone


def _default_moments(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
    if len(shape) < 2:
        return (1.0 if name.endswith("weight") else 0.0), 0.0
    inputs = 1
    for size in shape[1:]:
        inputs *= size
    return 0.0, inputs**-0.5


def _assign(module: "torch.nn.Module", tensors: "Mapping[str, torch.Tensor]", device: str) -> None:
    module.load_state_dict(tensors, strict=True, assign=True)
    module.requires_grad_(False)
    module.eval()
    module.to(device)
