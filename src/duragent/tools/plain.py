"""Texts out of what strangers send: which letters the bytes mean, nothing in them that a terminal obeys or an eye
does not see, and a plain reading of HTML.

Pure, standard library only, and linear in the size of its input. It reads HTML where the better converter is not
installed or fails (`pages.py` chooses): headings, paragraphs, lists, links and code blocks stay, all else becomes
text. Knows no network and no tool.
"""

import codecs
import re
from html.parser import HTMLParser
from urllib.parse import urljoin

# Sequences a terminal obeys: colours and cursor, window titles and other strings, and the escape character itself.
_ESCAPES = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[\\]PX^_]|[\x9d\x90])[^\x07\x1b\x9c\n]{0,4096}(?:\x07|\x1b\\\\|\x9c)|\x1b[ -~]?"
)
# Control characters, marks that turn the direction of writing, invisible letters, halves of pairs.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e01ef]"
)
_HALVES = re.compile("[\ud800-\udfff]")
_BREAKS = re.compile("\r\n?|[\u2028\u2029\x85]")
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARED = re.compile(rb"""<meta[^>]{0,300}?charset\s*=\s*["']?\s*([\w.:-]+)|<\?xml[^>]{0,100}?encoding=["']([\w.:-]+)""", re.I)
_LETTERS = ("utf-", "cp", "iso8859", "iso2022", "koi8", "gb", "big5", "shift_jis", "euc_", "mac-", "tis-", "johab", "hz")
"""How the names of encodings of texts begin. Others that Python knows are programs, packings or tricks."""


def clean(text: str) -> str:
    """The text without what a terminal obeys and without what a reader cannot see."""
    text = _BREAKS.sub("\n", _ESCAPES.sub("", text))
    return _HALVES.sub("\ufffd", _UNSEEN.sub("", text))


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
_CHROME = {"nav", "head", "footer"}
_BLOCKS = {
    *("address", "article", "aside", "blockquote", "br", "dd", "details", "div", "dl", "dt", "fieldset", "figcaption"),
    *("figure", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "ol", "p", "pre", "section"),
    *("summary", "table", "tbody", "td", "tfoot", "th", "thead", "tr", "ul"),
}
_UNCLOSED = {"p", "li", "td", "th", "tr", "dt", "dd"}
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
_HIDDEN = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)


class _Reading(HTMLParser):
    """Collects lines. Looks at one tag after the other and never down into a tree, however deep that is."""

    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self.base, self.title = base, ""
        self.pieces: list[str] = []
        self.skipping, self.depth = "", 0  # the tag that is left out, and how many of its name are open in it
        self.pre = 0
        self.links: list[str] = []
        self.in_title = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if self.skipping:
            if tag == self.skipping and tag not in _UNCLOSED:
                self.depth += 1
            self.in_title = tag == "title" and self.skipping == "head"
            if tag != "body" and not (self.skipping in _UNCLOSED and tag in _BLOCKS):
                return
            self.skipping = ""  # closed by what cannot stand inside it
        said = dict(attributes)
        if tag in _SKIPPED or tag in _CHROME or (tag not in _VOID and _is_hidden(said)):
            self.skipping, self.depth = tag, 1
            return
        if tag in _BLOCKS and not self.pre:
            self._break()
        if tag == "pre":
            self.pre += 1
            self.pieces.append("```\n")
        elif tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self.pieces.append("#" * int(tag[1]) + " ")
        elif tag == "li":
            self.pieces.append("- ")
        elif tag == "code" and not self.pre:
            self.pieces.append("`")
        elif tag == "a":
            self.links.append(_address(self.base, said.get("href")) if not self.pre else "")
            self.pieces.append("[" if self.links[-1] else "")

    def handle_endtag(self, tag: str) -> None:
        if self.skipping:
            self.in_title = False
            self.depth -= tag == self.skipping
            self.skipping = self.skipping if self.depth else ""
            return
        if tag == "pre" and self.pre:
            self.pre -= 1
            self.pieces.append("\n```")
            self._break()
        elif tag == "code" and not self.pre:
            self.pieces.append("`")
        elif tag == "a" and self.links:
            address = self.links.pop()
            self.pieces.append(f"]({address})" if address else "")
        elif tag in ("td", "th"):
            self.pieces.append(" ")
        elif tag in _BLOCKS and not self.pre:
            self._break()

    def handle_data(self, data: str) -> None:
        if self.in_title:
            self.title += data
        elif not self.skipping:
            self.pieces.append(data if self.pre else re.sub(r"\s+", " ", data))

    def _break(self) -> None:
        if self.pieces and not self.pieces[-1].endswith("\n"):
            self.pieces.append("\n\n")


def _is_hidden(said: dict[str, str | None]) -> bool:
    return "hidden" in said or said.get("aria-hidden") == "true" or bool(_HIDDEN.search(said.get("style") or ""))


def _address(base: str, href: str | None) -> str:
    """Where a link leads; nothing where it is no address of a page."""
    try:
        whole = urljoin(base, (href or "").strip())
    except ValueError:
        return ""
    return whole if href and not href.startswith("#") and whole.startswith(("http://", "https://")) else ""


def read_html(text: str, base: str = "") -> str:
    """What a page says, as simple Markdown. `base` is the address that its links start from."""
    reading = _Reading(base)
    reading.feed(text)
    reading.close()
    body = "".join(reading.pieces)
    lines = re.sub(r"[ \t]+\n", "\n", body)
    whole = re.sub(r"\n{3,}", "\n\n", lines).strip()
    title = re.sub(r"\s+", " ", reading.title).strip()
    return f"# {title}\n\n{whole}" if title and not whole.startswith("# ") else whole
