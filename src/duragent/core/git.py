"""What `git` may be told that a star does not mean: to run or load a program, to write elsewhere, to open an editor.

Before the subcommand every flag counts. A subcommand that is not in `_PLAIN` must be written out, since git runs
whatever program or alias is called so; after it, the flags that run, load or write, and the editor it may open. Adding
a subcommand whose flags were looked through: a word in `_PLAIN`, and its flags in `_RUNS`.
"""

import re
from collections.abc import Mapping
from itertools import pairwise

from duragent.core.flags import MARKS, Words, beginnings, begins, guards, unclear

_BEFORE = frozenset(
    (
        *(
            "--no-pager",
            "-P",
            "--version",
            "-v",
            "--help",
            "-h",
            "--no-optional-locks",
            "--no-replace-objects",
        ),
        *("--literal-pathspecs", "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs", "--no-lazy-fetch"),
    )
)
_VALUED: Words = (
    "-C",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "-c",
    "--config-env",
    "--exec-path",
    "--super-prefix",
)
_VALUED += ("--attr-source", "--list-cmds")
_READING = frozenset(
    (
        *("annotate", "blame", "cat-file", "check-attr", "check-ignore", "check-mailmap", "check-ref-format", "cherry"),
        *("column", "count-objects", "describe", "diff", "diff-files", "diff-index", "diff-tree", "for-each-ref"),
        *("fsck", "get-tar-commit-id", "grep", "log", "ls-files", "ls-remote", "ls-tree", "merge-base", "merge-tree"),
        *("name-rev", "patch-id", "range-diff", "reflog", "rev-list", "rev-parse", "shortlog", "show", "show-branch"),
        *("show-ref", "status", "stripspace", "var", "verify-commit", "verify-tag", "version", "whatchanged", "add"),
    )
)
_PLAIN = _READING.union(
    (
        *(
            "archive",
            "bisect",
            "branch",
            "bundle",
            "checkout",
            "cherry-pick",
            "clean",
            "clone",
            "commit",
            "commit-graph",
        ),
        *("commit-tree", "fetch", "fmt-merge-msg", "format-patch", "gc", "hash-object", "init", "merge", "mktag"),
        *("mktree", "mv", "notes", "pack-refs", "prune", "pull", "push", "rebase", "remote", "rerere", "reset"),
        *("restore", "revert", "rm", "stash", "submodule", "switch", "symbolic-ref", "tag", "update-index"),
        *("update-ref", "worktree", "write-tree"),
    )
)
_HUNKS: Words = ("-p", "--patch", "-i", "--interactive", "-e", "--edit")
_RUNS: Mapping[str, Words] = {
    "submodule": ("foreach", "update", "add", "init", "set-url"),
    "bisect": ("run", "visualize", "view", "replay"),
    "bundle": ("create", "unbundle"),
    "worktree": ("add", "move", "repair"),
    "rebase": ("-x", "--exec", "-i", "--interactive", "--edit-todo", "-s", "--strategy"),
    "grep": ("-O", "--open-files-in-pager"),
    "archive": ("-o", "--output", "--exec", "--remote"),
    "format-patch": ("-o", "--output-directory", "--signature-file"),
    "stash": ("branch", "-p", "--patch"),
    "notes": ("edit", "-e", "--edit"),
    "remote": ("add", "set-url", "rename"),
    "clone": ("-u", "-c", "--bundle-uri", "--bare", "--mirror"),
    "init": ("--bare",),
    "commit": (*_HUNKS, "-t"),
    "add": _HUNKS,
    "checkout": ("-p", "--patch"),
    "restore": ("-p", "--patch"),
    "reset": ("-p", "--patch"),
    "clean": ("-i", "--interactive"),
    "tag": ("-e", "--edit"),
    "merge": ("-e", "--edit", "-s", "--strategy"),
    "pull": ("-e", "--edit", "-s", "--strategy"),
    "cherry-pick": ("-e", "--edit", "--strategy"),
    "revert": ("-e", "--edit", "--strategy"),
    "branch": ("--edit-description",),
    "cat-file": ("--textconv", "--filters"),
    "reflog": ("delete", "expire"),
}
_VALUES: Mapping[str, str] = {
    **{"commit": "mFCctuS", "tag": "mFun", "notes": "mFCc", "grep": "efABCmO", "merge": "mFsXS", "pull": "sXSj"},
    **{
        "clone": "bojuc",
        "checkout": "bB",
        "rebase": "sXSCx",
        "revert": "mSX",
        "cherry-pick": "mSX",
        "archive": "o",
        "format-patch": "o",
    },
}
"""Letters of short flags that take a value: what follows them in the same word is no flag."""
_FLAGS: Words = (
    "--upload-pack",
    "--receive-pack",
    "--exec",
    "--output",
    "--output-directory",
    "--template",
    "--config",
)
_FLAGS += (
    "--ext-diff",
    "--textconv",
    "--separate-git-dir",
    "--open-files-in-pager",
    "--reference",
    "--tool",
    "--extcmd",
)
_FLAGS += ("--reference-if-able", "--export-marks", "--import-marks", "--import-marks-if-exists", "--edit-description")
_FLAGS += ("--edit-todo", "--trailer-command", "--sendmail-cmd")
_ALONE: Words = ("--edit", "--patch", "--interactive", "--textconv", "--ext-diff", "--edit-description", "--edit-todo")
_ALONE += ("--bare", "--mirror")
_VALUELESS = frozenset(("--oneline", "--stat", "--cached", "--staged", "--name-only", "--name-status", "--follow"))
"""Flags of which none takes a value in any subcommand."""
_WHOLE = frozenset(
    ("config", "difftool", "mergetool", "filter-branch", "send-email", "instaweb", "for-each-repo", "hook", "help")
)
_NAMING = re.compile(
    r"(?i)alias\.|include|[^=]*(?:[\x00\x01]|command|cmd|program|pager|editor|helper|hookspath|fsmonitor|textconv"
    r"|driver|clean|smudge|external|proxy|askpass)"
)
_SUBCOMMAND = re.compile(r"[a-z][a-z0-9-]*")
_STRATEGY = frozenset(("ort", "recursive", "resolve", "octopus", "ours", "subtree"))
_FORCED: Words = ("--edit", "--interactive", "--patch", "--edit-description", "--edit-todo", "--continue")
_SAID = {
    "commit": (frozenset("mFC"), ("--message", "--file", "--reuse-message", "--no-edit", "--fixup", "--dry-run")),
    "tag": (frozenset("mFldv"), ("--message", "--file", "--list", "--delete", "--verify")),
    "notes": (
        frozenset("mFC"),
        ("--message", "--file", "--reuse-message", "show", "list", "remove", "prune", "copy", "get-ref"),
    ),
}
"""What saves a subcommand from opening an editor."""
_SIGNED: Words = ("--annotate", "--sign", "--local-user")
_TAKING: Words = ("--author", "--date", "--cleanup", "--template", "--pathspec-from-file", "--squash", "--trailer")
_TAKING += ("--reedit-message", "--local-user", "--sort", "--format", "--ref")


_LONG = {name: beginnings((*_FLAGS, *(each for each in runs if each[:2] == "--"))) for name, runs in _RUNS.items()}
_SHORT = {
    name: frozenset(each[1] for each in runs if len(each) == 2 and each[0] == "-") for name, runs in _RUNS.items()
}
_EDITING = frozenset(name for name, runs in _RUNS.items() if {"-e", "-i", "-p"}.intersection(runs)).union(_SAID)
_EDITING |= {"branch", "am", "revert", "cherry-pick", "citool"}
_ANY_LONG = beginnings(_FLAGS)
_REMOTE = frozenset(("fetch", "clone", "ls-remote", "pull", "push", "submodule", "remote", "archive"))


def _cut(words: Words) -> tuple[Words, str, Words]:
    """The flags before the subcommand with their values, the subcommand, and what follows it."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _VALUED else 1
    return words[1:at], words[at] if at < len(words) else "", words[at + 1 :]


def stripped(words: Words) -> Words:
    """The same without the flags that stand before the subcommand."""
    _, command, rest = _cut(words)
    return (words[0], command, *rest) if command else words[:1]


def _letters(command: str, word: str) -> str:
    """The short flags in one word, without the value of the last."""
    if word[:1] != "-" or word[1:2] == "-":
        return ""
    values = _VALUES.get(command, "")
    end = next((at for at, letter in enumerate(word) if letter in values), len(word))
    return word[1 : end + 1]


def opens_editor(words: Words) -> bool:
    """Whether it may open an editor, which takes commands from whatever it is fed."""
    _, command, rest = _cut(words)
    return command in _EDITING and _edits(command, rest)


def _edits(command: str, rest: Words) -> bool:
    forced = _SHORT.get(command, frozenset()) & {"e", "i", "p"}
    options = [word for at, word in enumerate(rest) if not at or not begins(rest[at - 1], _TAKING)]
    if any(begins(word, _FORCED) or forced.intersection(_letters(command, word)) for word in options):
        return True
    if any(_rebases(command, word) for word in rest) or (command == "commit" and _rewords(rest)):
        return True
    if command not in _SAID or (command == "notes" and not rest):
        return False
    if command == "tag" and not any(
        begins(word, _SIGNED) or {"a", "s", "u"}.intersection(_letters(command, word)) for word in options
    ):
        return False
    letters, said = _SAID[command]
    return not any(
        word.partition("=")[0] in said or not letters.isdisjoint(_letters(command, word)) for word in options
    )


def renames(words: Words) -> bool:
    """Whether it is told settings that give its words another meaning or name programs for it to run."""
    before, _, _ = _cut(words)
    settings = [value for flag, value in pairwise(before) if flag == "-c"]
    settings += [word[2:] for word in before if word[:2] == "-c"]
    return any(word.startswith("--config-env") for word in before) or any(map(_NAMING.match, settings))


def risky(words: Words) -> Words:
    """The words that a rule must write out."""
    before, command, rest = _cut(words)
    found = [word for word in before if word not in _BEFORE]
    if not command:
        return tuple(found)
    if MARKS.search(command) or command in _WHOLE:
        return (*found, command, *rest)
    if command not in _PLAIN or not _SUBCOMMAND.fullmatch(command):
        found.append(command)
    runs = _RUNS.get(command, ())
    end = _end_of_flags(rest)
    for at, word in enumerate(rest):
        if word in runs or (at < end and (word[:1] in "-\x00\x01" or "\x01" in word)):
            found += _flagged(command, rest[at : at + 2], runs)
    if command not in _READING:
        found += guards((command, *rest))
    if command in _REMOTE:
        found += [word for word in rest if "::" in word]
    if command in _EDITING and _edits(command, rest):
        found += [command, *(word for word in rest if _rebases(command, word))]
    return tuple(found)


def _end_of_flags(rest: Words) -> int:
    """Where `--` ends the flags for certain: after a flag it may be the value of that."""
    for at, word in enumerate(rest):
        before = rest[at - 1] if at else ""
        if word == "--" and (before[:1] != "-" or before in _VALUELESS or re.match(r"--[a-z-]+=", before)):
            return at
    return len(rest)


def _rebases(command: str, word: str) -> bool:
    """Whether `git pull` is told to rebase and to ask in an editor how."""
    if command != "pull":
        return False
    name, _, value = word.partition("=")
    return re.match(r"-[a-z]*r=?[i\x00\x01]", word) is not None or (
        name[:5] == "--reb" and "--rebase".startswith(name) and value[:1] in ("i", "\x00", "\x01")
    )


def _rewords(rest: Words) -> bool:
    """Whether `git commit --fixup` is told to change a message, which opens an editor."""
    for at, word in enumerate(rest):
        name, equals, value = word.partition("=")
        if name[:4] == "--fi" and "--fixup".startswith(name):
            value = value if equals else "".join(rest[at + 1 : at + 2])
            if value.startswith(("amend:", "reword:")) or MARKS.search(value.partition(":")[0]):
                return True
    return False


def _flagged(command: str, flag: Words, runs: Words) -> Words:
    """What of one word and the next must be written out."""
    word = flag[0]
    if not _runs(command, word, runs) or _known_strategy(flag):
        return ()
    alone = word[:1] != "-" or "=" in word or begins(word, _ALONE) or unclear(word)
    short = word[:2] != "--" and word[-1] not in _VALUES.get(command, "")
    return flag[:1] if alone or short else flag


def _runs(command: str, word: str, runs: Words) -> bool:
    if word in runs or unclear(word):
        return True
    if word.startswith("--"):
        return word.partition("=")[0] in _LONG.get(command, _ANY_LONG)
    short = _SHORT.get(command)
    return short is not None and not short.isdisjoint(_letters(command, word))


def _known_strategy(flag: Words) -> bool:
    """Whether a strategy is one of git's own; another is the name of a program."""
    name, equals, value = flag[0].partition("=")
    if name in ("-s", "--strategy"):
        return (value if equals else flag[1] if len(flag) > 1 else "") in _STRATEGY
    return name[:2] == "-s" and name[2:] in _STRATEGY
