"""The headings of a Markdown text and what stands below them, as line ranges of the source.

Only block structure is looked at, so a section is always a slice of what the author wrote: code,
lists and raw HTML come out letter by letter. Knows CommonMark; does not know what a heading means.
"""

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct

MAX_NESTING = 100
_blocks = MarkdownIt("commonmark", {"maxNesting": MAX_NESTING}).disable(["inline", "text_join"])
_IMAGE = re.compile(
    # Possessive throughout: what does not match is given up at once, whatever its length.
    r"!\[(?:[^\[\]\\]|\\.|\[[^\[\]]*+\])*+\]"  # ![alt]
    r"\(\s*+(?:<([^<>\n]++)>|([^\s()<>]++(?:\([^\s()]*+\)[^\s()]*+)*+))[^()]*+\)"  # (address "title")
)


class Heading(Struct, frozen=True):
    """A heading outside lists and quotes. Lines count from 0; `end` is the first line after it."""

    depth: int
    text: str
    start: int
    end: int


class Paragraph(Struct, frozen=True):
    """A paragraph; `nested` when it stands in a list or a quote."""

    text: str
    start: int
    end: int
    nested: bool


class Fence(Struct, frozen=True):
    """A fenced block of code. `mark` is the row of backticks or tildes that opens it."""

    language: str
    code: str
    mark: str
    start: int
    end: int


class Outline(Struct, frozen=True):
    """What a Markdown text consists of. `too_deep` is a line that is nested beyond what is read."""

    lines: tuple[str, ...]
    headings: tuple[Heading, ...]
    paragraphs: tuple[Paragraph, ...]
    fences: tuple[Fence, ...]
    too_deep: int | None

    def end_of(self, heading: Heading) -> int:
        """Where the section of `heading` ends: at the next heading that is not below it."""
        later = (each for each in self.headings if each.start > heading.start and each.depth <= heading.depth)
        following = next(later, None)
        return following.start if following else len(self.lines)

    def named(self, depth: int, text: str) -> list[Heading]:
        """Every heading of this depth that says `text`, in any case."""
        wanted = text.casefold()
        return [each for each in self.headings if each.depth == depth and each.text.casefold() == wanted]

    def title(self) -> Heading | None:
        """The first `# heading` that says something and is not the avatar's."""
        for each in self.headings:
            if each.depth == 1 and each.text and each.text.casefold() != "avatar":
                return each
        return None

    def lead(self, heading: Heading) -> Paragraph | None:
        """The first paragraph below `heading` and above any other; one that only shows images does not count."""
        later = (each.start for each in self.headings if each.start > heading.start)
        limit = next(later, len(self.lines))
        for each in self.paragraphs:
            inside = heading.end <= each.start < limit and not each.nested
            if inside and each.text and not only_images(each.text):
                return each
        return None

    def image(self, start: int, end: int) -> tuple[str, int] | None:
        """The address of the first image in these lines, and its line."""
        for each in self.paragraphs:
            if start <= each.start < end and (found := _IMAGE.search(each.text)):
                return found[1] or found[2], each.start + each.text.count("\n", 0, found.start())
        return None

    def slice(self, start: int, end: int) -> str:
        """These lines, without blank ones at either end."""
        return trim(self.lines[start:end])

    def column(self, line: int) -> int:
        """Where a line's text begins, counted from 1."""
        text = self.lines[line]
        return len(text) - len(text.lstrip(" \t")) + 1


def outline(text: str) -> Outline:
    """The structure of a Markdown text. Takes time in proportion to its length, whatever it holds."""
    # A lone carriage return is a line end to Markdown and not to us: line numbers must not drift apart.
    tokens = _blocks.parse(text.replace("\r", " "))
    lines = tuple(text.split("\n"))
    headings, paragraphs, fences = [], [], []
    too_deep = None
    for index, token in enumerate(tokens):
        if token.level >= MAX_NESTING - 1 and too_deep is None:
            too_deep = token.map[0] if token.map else 0
        if token.type == "heading_open" and token.level == 0:
            headings.append(_heading(token, tokens[index + 1]))
        elif token.type == "paragraph_open" and token.map:
            start, end = token.map
            said = tokens[index + 1].content if token.level else "\n".join(lines[start:end])
            paragraphs.append(Paragraph(said.strip(), start, end, token.level > 0))
        elif token.type == "fence" and token.map:
            language = token.info.split()[0].casefold() if token.info.split() else ""
            fences.append(Fence(language, token.content.rstrip("\n"), token.markup, *token.map))
    return Outline(lines, tuple(headings), tuple(paragraphs), tuple(fences), too_deep)


def _heading(opening: Token, inside: Token) -> Heading:
    start, end = opening.map or [0, 0]
    return Heading(int(opening.tag[1:]), " ".join(inside.content.split()), start, end)


def only_images(text: str) -> bool:
    return text.startswith("![") and not _IMAGE.sub("", text).strip()


def trim(lines: tuple[str, ...] | list[str]) -> str:
    """The lines joined, without blank ones at either end; the first keeps its indentation."""
    first, last = 0, len(lines)
    while first < last and not lines[first].strip():
        first += 1
    while last > first and not lines[last - 1].strip():
        last -= 1
    return "\n".join(lines[first:last]).rstrip()


def deepen(text: str, least: int) -> str:
    """The same text with its headings moved down together, so that none is above depth `least`."""
    found = outline(text)
    above = least - min((each.depth for each in found.headings), default=least)
    if above <= 0:
        return text
    lines = list(found.lines)
    for each in reversed(found.headings):
        lines[each.start : each.end] = ["#" * min(each.depth + above, 6) + " " + each.text]
    return "\n".join(lines)


def seal(text: str, *, last: bool = False) -> str:
    """The same text, closed so that a heading after it is one; the `last` text may leave a fence open."""
    if _is_closed(text) or (last and outline(text).too_deep is None):
        return text
    fences = outline(text).fences
    ends = [each.mark for each in fences[-1:]] + [
        "-->",
        "</script>",
        "</pre>",
        "</style>",
        "</textarea>",
        "?>",
        "]]>",
        ">",
    ]
    for end in ends:
        if _is_closed(closed := f"{text}\n{end}"):
            return closed
    return fenced(text, "text")


def _is_closed(text: str) -> bool:
    found = outline(f"{text}\n\n# end")
    return found.too_deep is None and bool(found.headings) and found.headings[-1].start == len(found.lines) - 1


def fenced(code: str, language: str) -> str:
    """Code between two rows of backticks, longer than any row inside it."""
    longest = max((len(row) for row in re.findall(r"`{3,}", code)), default=2)
    mark = "`" * (longest + 1)
    return f"{mark}{language}\n{code}\n{mark}"
