"""The header of a Markdown file: YAML between two `---` lines, and the body below it."""

from msgspec import Struct

from duragent.agent import Json
from duragent.formats.reader import Reader, read_yaml
from duragent.formats.write import dump_yaml
from duragent.formats.yaml import Node


class Page(Struct, frozen=True):
    """A Markdown file cut in two. Lines count from 1; a file without a header has `header` None."""

    header: str | None
    header_line: int
    body: str
    body_line: int
    closed: bool = True


def cut(text: str, *, leading_space: bool = False) -> Page:
    """Split a text into header and body. With `leading_space` blank lines may come before the header."""
    lines = text.split("\n")
    first = 0
    if leading_space:
        while first < len(lines) and not lines[first].strip():
            first += 1
    if first >= len(lines) or (lines[first].strip() if leading_space else lines[first].rstrip()) != "---":
        return Page(None, 1, text, 1)
    for index in range(first + 1, len(lines)):
        if lines[index].rstrip() == "---":
            header = "\n".join(lines[first + 1 : index])
            return Page(header, first + 2, "\n".join(lines[index + 1 :]), index + 2)
    return Page("\n".join(lines[first + 1 :]), first + 2, "", len(lines) + 1, closed=False)


def read_header(page: Page, reader: Reader) -> Node | None:
    """The header's YAML with positions that count from the top of the file. None if empty or unreadable."""
    if page.header is None:
        return None
    padded = "\n" * (page.header_line - 1) + page.header + "\n"  # a block text at the end keeps its line break
    return read_yaml(reader, padded, "1.2")


def with_header(header: dict[str, Json], body: str) -> str:
    """A Markdown file with this header, in this order."""
    return f"---\n{dump_yaml(header)}---\n\n{body.strip(chr(10))}\n" if header else body.strip("\n") + "\n"
