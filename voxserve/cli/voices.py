"""`voxserve voices`."""

from voxserve.cli import options


def voices(
    model: options.Model = None,
    config: options.ConfigFile = None,
    load_format: options.LoadFormat = None,
    set_: options.Settings = None,
) -> None:
    """List the voices and languages of a model."""
    flags: dict[str, object] = {"model": model, "load_format": load_format}
    settings = options.configure(config, set_, flags)

    from rich.console import Console
    from rich.table import Table

    from voxserve import checkpoints

    plugin, checkpoint = checkpoints.find(settings.model, dummy=settings.load_format == "dummy")
    info = plugin.host(checkpoint).info
    console = Console()
    if not console.is_terminal:
        for voice in info.voices:
            print(voice.name, ",".join(voice.languages), voice.description, sep="\t")
        return
    table = Table(title=f"Voices of {info.name}", title_justify="left")
    for column in ("voice", "languages", "description"):
        table.add_column(column)
    for voice in info.voices:
        default = " (default)" if voice.name == info.default_voice else ""
        table.add_row(voice.name + default, ", ".join(voice.languages), voice.description)
    console.print(table)
    console.print(f"languages: {', '.join(info.languages) or 'not named by the model'}")
