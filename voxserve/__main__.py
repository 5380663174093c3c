"""`voxserve` and `python -m voxserve`."""

from voxserve.cli.app import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
