"""How the words of a command are looked at: flags and their beginnings, operands, and paths that matter.

What `programs.py` and the modules for single programs share. Knows no program, and allows nothing.
"""

import posixpath
import re
from functools import cache

Words = tuple[str, ...]
MARKS = re.compile("[\x00\x01]")
NOWHERE = "\x01standard input"
"""Stands for code that no word of the command shows: no rule can write it out."""
_FOLDERS = frozenset((".git", ".duragent", ".ssh", ".gnupg", ".vscode", ".idea", ".husky", ".githooks"))
_FILES = re.compile(
    r"duragent\.ya?ml|agent\.ya?ml|policy.*\.ya?ml|agent\.acl|.*\.agent|.*\.agent\.md|skill\.md|\.envrc|\.env"
    r"|\.gitconfig|\.gitmodules|\.gitattributes|\.npmrc|\.yarnrc.*|\.pypirc|\.netrc|\.inputrc|\.vimrc|\.exrc"
    r"|\.(?:bash|zsh|k?sh|csh|tcsh)(?:rc|_profile|_login|_logout|env)|\.z(?:profile|login|logout)|\.profile"
)


_UNSURE = re.compile(r"[\x00\x01](?:[^\]{]*\])?|\{[^}]*\}")
"""A mark with the rest of a choice of letters, or a choice of texts."""
_SAMPLES: Words = (
    *_FOLDERS,
    *("duragent.yaml", "duragent.yml", "agent.yaml", "agent.yml", "policy.yaml", "policy.yml", "policy.local.yaml"),
    *("agent.acl", "a.agent", "a.agent.md", "skill.md", ".envrc", ".env", ".gitconfig", ".gitmodules", ".npmrc"),
    *(".gitattributes", ".yarnrc", ".pypirc", ".netrc", ".inputrc", ".vimrc", ".exrc", ".bashrc", ".bash_profile"),
    *(".zshrc", ".zshenv", ".zprofile", ".profile"),
)
"""Names that a word with unknown parts may become."""


def protected(path: str) -> bool:
    """Whether a path names what decides about what runs: rules, agents, hooks, start files. A part that is partly
    unknown counts if it could become such a name."""
    parts = [part.lower() for part in path.split("/")]
    if _FOLDERS.intersection(parts) or _FILES.fullmatch(parts[-1]) or any(part.endswith(".git") for part in parts[:-1]):
        return True
    return MARKS.search(path) is not None and any(map(_may_become_protected, parts))


def _may_become_protected(part: str) -> bool:
    """What is nothing but unknown is left to whoever allowed it."""
    known = _UNSURE.split(part)
    if len(known) == 1 or not any(known):
        return False
    shape = re.compile(".*".join(map(re.escape, known)))
    return any(map(shape.fullmatch, _SAMPLES))


def of_repository(path: str) -> bool:
    """Whether a path would make the working folder itself a repository of git, with hooks and settings of its own."""
    first, _, rest = posixpath.normpath(path).lower().partition("/")
    return first == "hooks" if rest else first in ("config", "head", "hooks")


@cache
def beginnings(flags: Words) -> frozenset[str]:
    """Every text by which one of these long flags may be meant."""
    return frozenset(flag[:end] for flag in flags for end in range(3, len(flag) + 1))


def begins(name: str, flags: Words) -> bool:
    """Whether one of the long flags may be meant: many programs take any beginning of one."""
    return name in beginnings(flags)


def unclear(word: str) -> bool:
    """Whether a word nobody knows yet could become a flag."""
    return "\x01" in word or ("\x00" in word and word[0] in "-\x00")


def operands(words: Words) -> list[str]:
    return [word for word in words[1:] if not word.startswith("-")]


def everything(words: Words) -> Words:
    return tuple(words[1:])


def writes(words: Words) -> Words:
    """What is written, where that could be anywhere or matters."""
    return tuple(
        word
        for word in operands(words)
        if MARKS.search(word)
        or protected(posixpath.normpath(word))
        or of_repository(word)
        or (word[:1] in "/~" and word != "/dev/null")
        or ".." in word.split("/")
    )


def guards(words: Words) -> Words:
    """Words that name what decides about what runs, also as the value of a flag."""
    return tuple(word for word in words[1:] if any(protected(posixpath.normpath(each)) for each in _paths(word)))


def lands(words: Words) -> Words:
    """The same for programs whose last word is where something comes to lie."""
    return (*guards(words), *(word for word in operands(words)[-1:] if of_repository(word)))


def assigns(words: Words) -> Words:
    return tuple(word for word in words[1:] if re.match(r"-?-?[\w.-]+[:+?!]*=", word))


def _paths(word: str) -> Words:
    return (word, word.partition("=")[2], word[2:]) if word.startswith("-") else (word,)
