"""The command line as a whole: which commands there are, and how errors end them."""

import sys

import typer

from voxserve.cli.bench import bench
from voxserve.cli.check import check
from voxserve.cli.options import USAGE_ERROR
from voxserve.cli.profile import profile
from voxserve.cli.say import say
from voxserve.cli.serve import serve
from voxserve.cli.version import version
from voxserve.cli.voices import voices
from voxserve.errors import VoxserveError

# Plain text instead of rich panels: an error stays one line, and --help starts twice as fast.
app = typer.Typer(
    name="voxserve",
    help="Streaming text-to-speech server for Speech Language Models.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for command in (serve, say, voices, check, profile, version):
    app.command()(command)
app.add_typer(bench)


def main() -> None:
    try:
        app(prog_name="voxserve")
    except VoxserveError as error:
        typer.echo(f"voxserve: {error.message}", err=True)
        sys.exit(USAGE_ERROR)
