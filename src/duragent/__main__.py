"""The `duragent` command."""

import os
import sys


def main() -> None:
    _open_closed()
    _import_nothing_from_here()
    if sys.argv[1:] == ["--version"]:
        # Answered before anything else is imported: scripts ask this in loops.
        from duragent import __version__  # noqa: PLC0415

        print(f"duragent {__version__}")
        return
    from duragent.cli import run  # noqa: PLC0415

    run()


def _import_nothing_from_here() -> None:
    """`python -m` looks for modules in the current folder first; what lies there may be an agent's work."""
    if sys.path and sys.path[0] in ("", os.getcwd()):
        del sys.path[0]


def _open_closed() -> None:
    """A standard stream that the caller has closed leads nowhere: else the next file that is opened would become it."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number is this one
            setattr(sys, name, open(number, mode, encoding="utf-8"))  # noqa: SIM115 - for as long as we run


if __name__ == "__main__":
    main()
