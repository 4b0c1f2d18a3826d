"""The `duragent` command."""

import sys


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        # Answered before anything else is imported: scripts ask this in loops.
        from duragent import __version__  # noqa: PLC0415

        print(f"duragent {__version__}")
        return
    from duragent.cli import run  # noqa: PLC0415

    run()


if __name__ == "__main__":
    main()
