"""`voxserve voices`."""

from voxserve.cli import options


def voices(
    model: options.Model = None,
    voices_dir: options.VoicesDir = None,
    config: options.ConfigFile = None,
    load_format: options.LoadFormat = None,
    set_: options.Settings = None,
) -> None:
    """List the voices and languages of a model, and the voices uploaded for it."""
    flags: dict[str, object] = {
        "model": model,
        "load_format": load_format,
        "api.voices_dir": voices_dir,
    }
    settings = options.configure(config, set_, flags)

    from rich.console import Console
    from rich.table import Table

    from voxserve.cli.model import find

    found = find(settings)
    info = found.host.info
    rows = [(voice.name, ", ".join(voice.languages), voice.description) for voice in info.voices]
    for voice in found.uploaded:
        rows.append((voice.name, "", " ".join((voice.description or "uploaded").split())))
    console = Console()
    if not console.is_terminal:
        for name, languages, description in rows:
            print(name, languages.replace(", ", ","), description, sep="\t")
        return
    table = Table(title=f"Voices of {info.name}", title_justify="left")
    for column in ("voice", "languages", "description"):
        table.add_column(column)
    for name, languages, description in rows:
        default = " (default)" if name == info.default_voice else ""
        table.add_row(name + default, languages, description)
    console.print(table)
    console.print(f"languages: {', '.join(info.languages) or 'not named by the model'}")
