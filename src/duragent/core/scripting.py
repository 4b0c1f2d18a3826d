"""`sed` and `awk`: their arguments are small programs, of which only harmless ones are covered by a star.

Flags are read letter by letter as these programs read them; a flag that is not known here must be written out.
"""

import re

from duragent.core.flags import MARKS, Words


def _delimited(sign: str) -> str:
    """What stands before, between and after three delimiters: a pattern, in which brackets may not hold one, a text."""
    bracket = rf"\[\^?\]?(?:[^\]\[{sign}\n]|\[:[a-z]+:\])*\]"
    return rf"{sign}(?:[^{sign}\\\n\[]|\\.|{bracket})*{sign}(?:[^{sign}\\\n]|\\.)*{sign}"


_PATTERN = r"/(?:[^/\\\n\[]|\\.|\[\^?\]?(?:[^\]\[/\n]|\[:[a-z]+:\])*\])*/"
_ADDRESS = rf"(?:(?:\d+|\$|{_PATTERN})(?:,(?:\d+|\$|\+\d+|{_PATTERN}))?)?!?"
_CHANGE = "|".join(_delimited(sign) for sign in ("/", r"\|", "#", ","))
_COMMAND = rf"{_ADDRESS}(?:[pdq=]|s(?:{_CHANGE})[gpI0-9]*)"
_SAFE_SED = re.compile(rf"\s*{_COMMAND}(?:\s*;\s*{_COMMAND})*\s*")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=")
_UNSAFE_AWK = re.compile(r"system|[|>@<\x00\x01]|getline|extension|ENVIRON|close|fflush|load")
_SED_LONG = frozenset(("--quiet", "--silent", "--regexp-extended", "--null-data", "--zero-terminated", "--unbuffered"))
_SED_LONG |= {"--posix", "--debug", "--sandbox", "--help", "--version"}
_SED_LETTERS = "nrEuz"


def sed(words: Words) -> Words:
    """The words of sed that a rule must write out."""
    found, scripts, files = list[str](), list[tuple[str, str]](), list[str]()
    ended, at = False, 1
    while at < len(words):
        word, following = words[at], words[at + 1] if at + 1 < len(words) else ""
        at += 1
        if ended or word[:1] != "-" or word == "-":
            files.append(word)
        elif word == "--":
            ended = True
        else:
            at += _sed_flag(word, following, found, scripts)
    if not scripts and files:
        scripts.append((files[0], files[0]))
    found += [word for word, script in scripts if MARKS.search(script) or not _SAFE_SED.fullmatch(script)]
    return tuple(found)


def _sed_flag(word: str, following: str, found: list[str], scripts: list[tuple[str, str]]) -> int:
    """Note what one flag means; gives how many more words it takes."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        if len(name) > 2 and "--expression".startswith(name):
            scripts.append((word, value) if equals else (following, following))
            return 0 if equals else 1
        if name not in _SED_LONG:
            found.append(word)
        return 0
    for at, letter in enumerate(word[1:], 2):
        if letter == "e":
            scripts.append((word, word[at:]) if word[at:] else (following, following))
            return 0 if word[at:] else 1
        if letter == "l" and (word[at:] or following).isdigit():
            return 0 if word[at:] else 1
        if letter not in _SED_LETTERS:
            found += [word] if letter in "is" or word[at:] else [word, following]
            return 1 if letter == "f" and not word[at:] else 0
    return 0


def awk(words: Words) -> Words:
    """The words of awk that a rule must write out: its program if it does more than print, and all flags but -F, -v."""
    found, at = list[str](), 1
    while at < len(words) and words[at][:1] == "-" and words[at] != "-":
        word = words[at]
        at += 1
        if word == "--":
            break
        if word[:2] not in ("-F", "-v"):
            found += words[at - 1 : at + 1]
            continue
        value = word[2:] or "".join(words[at : at + 1])
        at += 0 if word[2:] else 1
        if "\x01" in value or (word[1] == "v" and not _ASSIGNED.match(value)):
            found += [word, value]
    found += [word for word in words[at : at + 1] if _UNSAFE_AWK.search(word)]
    return tuple(found)
