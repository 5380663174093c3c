"""What a person sees while the engine starts and speaks: a bar on a terminal, lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from voxserve.errors import VoxserveError
from voxserve.wire import Warming

if TYPE_CHECKING:
    from voxserve.api.engine_client import EngineClient

LINES_A_PHASE = 4
STARTING = Warming("starting the engine", 0, 0)
"""Until the new process has told something itself."""


class EngineStartError(VoxserveError):
    """The engine process ended before it was ready, as often as it was tried."""

    code = "engine_failed"


async def until_ready(engine: "EngineClient") -> None:
    """Show loading and warm-up on stderr.

    Raises EngineStartError when the engine cannot be started; its own log line says why.
    """
    with _Bar() if sys.stderr.isatty() else _Lines() as display:
        while engine.phase in ("starting", "restarting"):
            display.show(engine.progress or STARTING)
            await engine.changed()
    if engine.phase == "failed":
        raise EngineStartError("the engine could not be started, the lines above say why")


@contextmanager
def speaking() -> Iterator[Callable[[float], None]]:
    """Yields what to call with the seconds of audio made so far. Shows nothing off a terminal."""
    columns = (TextColumn("speaking"), BarColumn(), TextColumn("{task.completed:.1f} s of audio"))
    progress = Progress(
        *columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    )
    with progress:
        task = progress.add_task("speaking", total=None)
        yield lambda audio_s: progress.update(task, completed=audio_s)


class _Bar:
    """One bar, for what is being done now, cleared at the end."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._what = ""

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(self, warming: Warming) -> None:
        if warming.what != self._what:
            self._what = warming.what
            for task in self._progress.task_ids:
                self._progress.remove_task(task)
            # A bar without a total pulses.
            self._task = self._progress.add_task(warming.what, total=warming.total or None)
        self._progress.update(self._task, completed=warming.done)


class _Lines:
    """A line at the start and the end of each thing, and a few between."""

    def __init__(self) -> None:
        self._shown: tuple[str, int] = ("", 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def show(self, warming: Warming) -> None:
        part = LINES_A_PHASE * warming.done // max(1, warming.total)
        if (warming.what, part) != self._shown:
            self._shown = (warming.what, part)
            count = f": {warming.done}/{warming.total}" if warming.total else ""
            print(f"{warming.what}{count}", file=sys.stderr, flush=True)
