"""Texts out of what strangers send: which letters the bytes mean, nothing in them that a terminal obeys or an eye
does not see, and a plain reading of HTML.

Pure, standard library only, and linear in the size of its input. It reads HTML where the better converter is not
installed or fails (`pages.py` chooses): headings, paragraphs, lists, links and code blocks stay, all else becomes
text. Knows no network and no tool.
"""

import codecs
import re
from html import unescape
from urllib.parse import urljoin

from duragent.tools.printed import plain

_HALVES = re.compile("[\ud800-\udfff]")
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARED = re.compile(
    rb"""<meta[^>]{0,300}?charset\s*=\s*["']?\s*([\w.:-]+)|<\?xml[^>]{0,100}?encoding=["']([\w.:-]+)""", re.I
)
_LETTERS = (
    "utf-",
    "cp",
    "iso8859",
    "iso2022",
    "koi8",
    "gb",
    "big5",
    "shift_jis",
    "euc_",
    "mac-",
    "tis-",
    "johab",
    "hz",
)
"""How the names of encodings of texts begin. Others that Python knows are programs, packings or tricks."""


def clean(text: str) -> str:
    """The text without what a terminal obeys and without what a reader cannot see."""
    return _HALVES.sub("\ufffd", plain(text).replace("\u00ad", ""))


def cut(text: str, size: int) -> str:
    """The beginning of a text, of at most so many bytes, without half a letter at its end."""
    if len(text) * 4 <= size:
        return text
    data = text.encode()
    return text if len(data) <= size else data[:size].decode("utf-8", "ignore")


def decode(body: bytes, charset: str | None) -> str:
    """Bytes as a text: by their byte order mark, by what the server said, by what they say of themselves, as UTF-8.
    A wrong name or a wrong byte is no reason to fail."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    known = _known(charset or "")
    if known is None:
        said = _DECLARED.search(body[:4096])
        known = _known((said[1] or said[2]).decode("ascii", "replace")) if said else None
        if known is not None and known.startswith("utf-"):
            known = "utf-8"  # who can say so in these bytes does not mean 16 bits
    return body.decode(known or "utf-8", "replace")


def _known(name: str) -> str | None:
    try:
        found = codecs.lookup(name.strip("\"' ")).name if re.fullmatch(r"[\w.:\"' -]{1,40}", name, re.ASCII) else ""
    except (LookupError, ValueError):
        return None
    if found in ("ascii", "iso8859-1"):
        return "cp1252"  # as every browser does: it is the same and a little more
    return found if found.startswith(_LETTERS) and found != "utf-7" else None


_SKIPPED = {"script", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "select", "button", "math"}
_RAW = {"script", "style", "textarea", "title", "xmp"}  # no tags inside: they end at their own end tag
_CHROME = {"nav", "footer"}
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCKS = {
    *("address", "article", "aside", "blockquote", "br", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption"),
    *(
        "figure",
        "form",
        "header",
        "hr",
        "li",
        "main",
        "ol",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "tbody",
        "tfoot",
    ),
    *("thead", "tr", "ul", *_HEADINGS),
}
_UNCLOSED = {"p", "li", "td", "th", "tr", "dt", "dd"}
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
_HIDDEN = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_TAG = re.compile(r"(/?)([a-z][a-z0-9:-]*)", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""([^\s"'=<>/]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+))?""")
_SPACE = re.compile(r"\s+")
_HUGE = re.compile(r"&#0*[0-9]{8,};?")  # larger than any character, and than what Python takes for a number


class _Reading:
    """Collects pieces of Markdown. Looks at one tag after the other and never down into a tree, however deep it is."""

    def __init__(self, base: str) -> None:
        self.base, self.title = base, ""
        self.pieces: list[str] = []
        self.skipping, self.depth = "", 0  # the tag that is left out, and how many of its name are open in it
        self.pre = 0
        self.links: list[str] = []

    def read(self, text: str) -> None:
        """Every step moves on to a character that was searched for once: no input makes this slow."""
        at = 0
        while (start := text.find("<", at)) >= 0:
            found = _TAG.match(text, start + 1)
            if found is None and not text.startswith(("!", "?", "/"), start + 1):
                self.text(text[at : start + 1])
                at = start + 1
                continue
            self.text(text[at:start])
            comment = text.startswith("!--", start + 1)
            end = text.find("-->" if comment else ">", start)
            if end < 0:
                if not comment:
                    self.text(text[start:])
                return
            at = end + (3 if comment else 1)
            if found is not None:
                at = self.tag(text, found, at)
        self.text(text[at:])

    def tag(self, text: str, found: re.Match[str], at: int) -> int:
        """Take one tag that ends before `at`; answers where to read on."""
        name = found[2].lower()
        if found[1]:
            self.closed(name)
            return at
        self.opened(name, text[found.end() : min(at - 1, found.end() + 4096)])
        if name not in _RAW:
            return at
        end = re.compile(f"</{name}", re.IGNORECASE).search(text, at)
        inside = text[at : end.start() if end else len(text)]
        if name == "title" and not self.skipping:
            self.title = self.title or _SPACE.sub(" ", _unescape(inside[:500])).strip()
        elif name not in ("script", "style", "title"):
            self.text(inside)
        return end.start() if end else len(text)

    def opened(self, tag: str, written: str) -> None:
        if self.skipping:
            if not (self.skipping in _UNCLOSED and tag in _BLOCKS):
                self.depth += tag == self.skipping
                return
            self.skipping = ""  # closed by what cannot stand inside it
        said = {name.lower(): _unescape(value.strip("\"'")) for name, value in _ATTRIBUTE.findall(written)}
        if tag in _SKIPPED or tag in _CHROME or (tag not in _VOID and _is_hidden(said)):
            self.skipping, self.depth = tag, 1
            return
        if tag in _BLOCKS and not self.pre:
            self.end_line()
        if tag == "pre":
            self.pre += 1
            self.pieces.append("```\n")
        elif tag in _HEADINGS:
            self.pieces.append("#" * _HEADINGS[tag] + " ")
        elif tag == "li":
            self.pieces.append("- ")
        elif tag == "code" and not self.pre:
            self.pieces.append("`")
        elif tag == "a":
            self.links.append("" if self.pre else _address(self.base, said.get("href", "")))
            self.pieces.append("[" if self.links[-1] else "")

    def closed(self, tag: str) -> None:
        if self.skipping:
            self.depth -= tag == self.skipping
            self.skipping = self.skipping if self.depth else ""
        elif tag == "pre" and self.pre:
            self.pre -= 1
            self.pieces.append("\n```")
            self.end_line()
        elif tag == "code" and not self.pre:
            self.pieces.append("`")
        elif tag == "a" and self.links:
            address = self.links.pop()
            self.pieces.append(f"]({address})" if address else "")
        elif tag in ("td", "th"):
            self.pieces.append(" ")
        elif tag in _BLOCKS and not self.pre:
            self.end_line()

    def text(self, text: str) -> None:
        if text and not self.skipping:
            self.pieces.append(_unescape(text) if self.pre else _SPACE.sub(" ", _unescape(text)))

    def end_line(self) -> None:
        if self.pieces and not self.pieces[-1].endswith("\n"):
            self.pieces.append("\n\n")


def _unescape(text: str) -> str:
    return unescape(_HUGE.sub("\ufffd", text)) if "&" in text else text


def _is_hidden(said: dict[str, str]) -> bool:
    return "hidden" in said or said.get("aria-hidden") == "true" or bool(_HIDDEN.search(said.get("style", "")))


def _address(base: str, href: str) -> str:
    """Where a link leads; nothing where it is no address of a page."""
    try:
        whole = urljoin(base, href.strip())
    except ValueError:
        return ""
    return whole if href and not href.startswith("#") and whole.startswith(("http://", "https://")) else ""


def read_html(text: str, base: str = "") -> str:
    """What a page says, as simple Markdown. `base` is the address that its links start from."""
    reading = _Reading(base)
    reading.read(text)
    lines = [line.rstrip() for line in "".join(reading.pieces).split("\n")]
    whole = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return f"# {reading.title}\n\n{whole}" if reading.title and not whole.startswith("# ") else whole


def in_one_line(text: str, size: int) -> str:
    """A text with tags and entities from a list of results, as one short line."""
    line = _SPACE.sub(" ", clean(_unescape(re.sub(r"</?[a-zA-Z][^<>]{0,200}>", "", text[: size * 20])))).strip()
    return line if len(line) <= size else f"{line[: size - 1].rstrip()}…"
