"""Programs that run another program they are given: the one inside is judged as well as the one around it.

`inside` takes one command and gives what it would start: further commands, scripts for a shell, and doubts where
nobody can tell. Knows how each wrapper reads its flags; a flag it does not know is a doubt, since the command might
begin somewhere else. Adding a wrapper: a row in `_WRAPPERS`.
"""

import re
from collections.abc import Callable, Mapping
from shlex import split as split_words

from msgspec import Struct

from duragent.core.lines import SPLIT, UNKNOWN, Simple, readable

Words = tuple[str, ...]
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=")
_OTHER_SHELLS = frozenset(("zsh", "ksh", "mksh", "ksh93", "yash"))
SHELLS = frozenset(("sh", "bash", "dash", "ash", "rbash", "posh")) | _OTHER_SHELLS
_NEVER: Mapping[str, str] = {
    "eval": "",  # looked into below
    "source": "it runs a file in this shell",
    ".": "it runs a file in this shell",
    "alias": "it gives words another meaning",
    "unalias": "it gives words another meaning",
    "trap": "it leaves a command for later",
    "enable": "it changes which programs are built in",
    "coproc": "it runs a command beside this one",
    "shopt": "it changes how lines are read",
    "bind": "it can leave a command for later",
    "complete": "it can leave a command for later",
    "compgen": "it can run a command",
    "compopt": "it can leave a command for later",
    "hash": "it can give a program another path",
    "fc": "it runs commands of before",
    "history": "it runs or writes commands of before",
    "parallel": "what it runs is put together by itself",
    "dirs": "",
}
RESERVED = frozenset(
    (
        *("if", "then", "elif", "else", "fi", "do", "done", "case", "esac", "while", "until", "for", "in", "function"),
        *("select", "{", "}", "!", "[[", "]]", "((", "))"),
    )
)


class Inner(Struct, frozen=True):
    """What a command starts."""

    commands: tuple[Simple, ...] = ()
    scripts: Words = ()
    doubts: Words = ()


NOTHING = Inner()


class Wrapper(Struct, frozen=True):
    """How a wrapper is told its command. `script` reads the rest as text for a shell."""

    valued: str = ""  # letters of flags with a value
    flags: str = ""  # letters of flags without one
    long: Words = ()  # long flags without a value
    long_valued: Words = ()
    before: int = 0  # arguments before the command
    script: str = ""  # the letter of a flag whose value is a script
    joined: bool = False  # the command is put together to a script again
    numbers: bool = False  # `-5` is a flag
    extra: bool = False  # more arguments are added by what it reads
    foreign: str = ""  # why the command inside means something else than here
    shell: bool = False  # told no command, it starts a shell


_WRAPPERS: Mapping[str, Wrapper] = {
    "nohup": Wrapper(),
    "timeout": Wrapper("ks", "v", ("--foreground", "--preserve-status", "--verbose"), ("--kill-after", "--signal"), 1),
    "gtimeout": Wrapper("ks", "v", ("--foreground", "--preserve-status"), ("--kill-after", "--signal"), 1),
    "nice": Wrapper("n", long_valued=("--adjustment",), numbers=True),
    "ionice": Wrapper("cn", "t", ("--ignore",), ("--class", "--classdata")),
    "stdbuf": Wrapper("ioe", long_valued=("--input", "--output", "--error")),
    "setsid": Wrapper("", "cfw", ("--ctty", "--fork", "--wait")),
    "time": Wrapper("fo", "pavq", ("--append", "--verbose", "--portability", "--quiet"), ("--format", "--output")),
    "command": Wrapper("", "p"),
    "builtin": Wrapper(),
    "exec": Wrapper("a", "cl"),
    "xargs": Wrapper(
        "adEILnPs",
        "0prtxo",
        ("--null", "--no-run-if-empty", "--verbose", "--interactive", "--exit", "--open-tty"),
        ("--arg-file", "--delimiter", "--max-args", "--max-lines", "--max-procs", "--max-chars", "--replace"),
        extra=True,
    ),
    "sudo": Wrapper("ugpCrthTUDR", "nkbEHPSA", ("--non-interactive",), ("--user", "--group")),
    "doas": Wrapper("uC", "n"),
    "pkexec": Wrapper("", "", (), ("--user",)),
    "runuser": Wrapper("ug", "", (), ("--user",), script="c", shell=True),
    "su": Wrapper("sgGw", "lmpP", ("--login",), ("--shell",), before=9, script="c", shell=True),
    "watch": Wrapper("nq", "bcdegtxpw", (), ("--interval",), joined=True),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
    "chroot": Wrapper(long_valued=("--userspec", "--groups"), before=1, foreign="in another root folder"),
    "unshare": Wrapper("", "muinpUCrTf", foreign="in other namespaces"),
    "nsenter": Wrapper("tSGrw", "amuinpUCTFZe", foreign="in other namespaces"),
    "ssh": Wrapper("BbcDEeFIiJLlmOopQRSWw", "46AaCfGgKkMNnqsTtVvXxYy", before=1, joined=True),
    "flock": Wrapper("wE", "xesuno", ("--nonblock", "--exclusive", "--shared"), ("--timeout",), 1, script="c"),
    "script": Wrapper("EtTIOBoml", "aefq", ("--quiet", "--append"), before=9, script="c", shell=True),
    "strace": Wrapper("abeEIopPsSuUO", "cCdfFhiknqrtTvVwxyYzZ"),
    "ltrace": Wrapper("aeFlnopsuwxX", "bcCfhiLrStTV"),
    "taskset": Wrapper("", "ac", before=1),
    "chrt": Wrapper("TPD", "bfiord", before=1),
    "prlimit": Wrapper("", "", (), ()),
    "numactl": Wrapper("NmCp", "l"),
    "fakeroot": Wrapper(),
    "unbuffer": Wrapper("", "p"),
    "chronic": Wrapper("", "ve"),
    "caffeinate": Wrapper("tw", "dimsu"),
    "xvfb-run": Wrapper("enfspw", "al"),
    "rlwrap": Wrapper(foreign="with what another program types"),
    "entr": Wrapper("", "acdnprz", extra=True),
    "doppler": Wrapper(before=1, foreign="with other variables"),
    "dotenv": Wrapper("f", foreign="with other variables"),
    "direnv": Wrapper(before=2, foreign="with other variables"),
}


def inside(command: Simple, inputs: Words | None) -> Inner:
    """What a command starts. `inputs` are texts it reads as its standard input, where those are known."""
    name, words = command.program.rpartition("/")[2], command.words
    if name not in _STARTING:
        return NOTHING
    if name in SHELLS:
        found = _shell(words, inputs)
        if name in _OTHER_SHELLS and found.scripts:
            return Inner((), found.scripts, (*found.doubts, f"`{name}` reads some lines in its own way"))
        return found
    special = _SPECIAL.get(name)
    if special is not None:
        return special(words)
    if why := _NEVER.get(name):
        return Inner(doubts=(f"`{name}` is never allowed by itself: {why}",))
    row = _WRAPPERS.get(name)
    return NOTHING if row is None else _wrapped(name, row, words)


def _shell(words: Words, inputs: Words | None) -> Inner:
    """A shell: with -c its script, with a file whatever that holds, else what it is fed."""
    at, stdin = 1, False
    while at < len(words) and len(words[at]) > 1 and words[at][0] in "-+":
        word = words[at]
        if word == "--":
            at += 1
            break
        if word.startswith("--"):
            at += 2 if word in ("--rcfile", "--init-file") else 1
            continue
        if "\x00" in word or SPLIT in word:
            return Inner(doubts=(f"the flags of `{readable(words[0])}` are only known when it runs",))
        if "c" in word[1:] and word[0] == "-":
            at += 1
            while at < len(words) and len(words[at]) > 1 and words[at][0] in "-+":
                at += 2 if words[at][-1] in "oO" else 1
            return _script(words[at]) if at < len(words) else Inner(doubts=("a shell is given no script",))
        stdin = stdin or "s" in word[1:]
        at += 2 if word[-1] in "oO" else 1
    if at < len(words) and not stdin:
        if SPLIT in words[at] or UNKNOWN in words[at] or words[at] in ("-", "/dev/stdin", "/dev/fd/0"):
            return Inner(doubts=("a shell runs a script that is only known when it runs",))
        return NOTHING
    if inputs and not any(UNKNOWN in text or SPLIT in text for text in inputs):
        return Inner(scripts=inputs)
    if {"--version", "--help"}.intersection(words):
        return NOTHING
    return Inner(doubts=("a shell takes its commands from its input",))


def _script(text: str) -> Inner:
    if UNKNOWN in text or SPLIT in text:
        return Inner(doubts=("a shell runs a text that is only known when it runs",))
    return Inner(scripts=(text,))


def _wrapped(name: str, row: Wrapper, words: Words) -> Inner:
    at, doubts = 1, [f"`{name}` runs its command {row.foreign}"] if row.foreign else []
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        if word == "--":
            at += 1
            break
        step, script = _flag(row, word)
        if script is not None:
            found = _script(script or (words[at + 1] if at + 1 < len(words) else ""))
            return Inner(found.commands, found.scripts, (*doubts, *found.doubts))
        if not step:
            return Inner(doubts=(*doubts, f"`{name} {readable(word)}` may run something else"))
        at += step
    if row.script:  # its flag may come later
        for index in range(at, len(words)):
            step, script = _flag(row, words[index]) if words[index].startswith("-") else (1, None)
            if script is not None:
                found = _script(script or (words[index + 1] if index + 1 < len(words) else ""))
                return Inner(found.commands, found.scripts, (*doubts, *found.doubts))
    rest = words[at + row.before :]
    if SPLIT in "".join(words[at : at + row.before]):
        doubts.append(f"where the command of `{name}` begins is only known when it runs")
    if not rest:
        return Inner(doubts=(*doubts, *((f"`{name}` starts a shell",) if row.shell else ())))
    if row.joined:
        found = _script(" ".join(rest))
        return Inner(found.commands, found.scripts, (*doubts, *found.doubts))
    if row.extra:
        rest = (*_replaced(words[1:at], rest), SPLIT)
    return Inner((Simple(rest),), doubts=tuple(doubts))


def _replaced(flags: Words, rest: Words) -> Words:
    """The command of `xargs -I % …`, in which every % becomes what is read."""
    for at, word in enumerate(flags):
        if word.startswith(("-I", "-i", "--replace", "-J")):
            value = word.partition("=")[2] if word.startswith("--") else word[2:]
            value = value or (flags[at + 1] if word == "-I" and at + 1 < len(flags) else "{}")
            rest = tuple(each.replace(value, UNKNOWN) for each in rest)
    return tuple(each.replace("{}", UNKNOWN).replace("/_", UNKNOWN) for each in rest)


def _flag(row: Wrapper, word: str) -> tuple[int, str | None]:
    """How many words a flag takes, 0 where it is unknown; and the script, where it is one ("" if the next word is)."""
    if UNKNOWN in word or SPLIT in word:
        return (0, None)
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        if name == "--command" and row.script:
            return (0, value) if equals else (0, "")
        if name in row.long:
            return (1, None)
        return ((1 if equals else 2), None) if name in row.long_valued else (0, None)
    if row.numbers and re.fullmatch(r"-\d+", word):
        return (1, None)
    for at, letter in enumerate(word[1:], 2):
        if letter == row.script:
            return (0, word[at:])
        if letter in row.valued:
            return (1 if word[at:] else 2, None)
        if letter not in row.flags:
            return (0, None)
    return (1, None)


def _env(words: Words) -> Inner:
    at, names, assigned = 1, [], []
    while at < len(words):
        word = words[at]
        if word in ("-i", "-", "-0", "-v", "--ignore-environment", "--null", "--debug", "-iv", "-vi"):
            at += 1
        elif word in ("-u", "--unset", "-C", "--chdir"):
            at += 2
        elif word.startswith(("--unset=", "--chdir=", "-u")) and UNKNOWN not in word and SPLIT not in word:
            at += 1
        elif word.startswith("-"):
            doubt = f"`env {readable(word)}` is not read with certainty"
            return Inner(_split_string(words[at:]), doubts=(doubt,))
        elif found := _ASSIGNMENT.match(word):
            names.append(found[1])
            assigned.append(word)
            at += 1
        else:
            return Inner((Simple(words[at:], tuple(names), tuple(assigned)),))
    return NOTHING


def _split_string(words: Words) -> tuple[Simple, ...]:
    """The command in `env -S 'rm x'`, as far as it can be seen: only deny rules look at it."""
    text = re.sub(r"^(?:-[a-zA-Z]*S|--split-string=?)", "", words[0]) or " ".join(words[1:2])
    try:
        found = tuple(split_words(text))
    except ValueError:
        return ()
    while found and _ASSIGNMENT.match(found[0]):
        found = found[1:]
    return (Simple((*found, *words[1:])),) if found else ()


def _find(words: Words) -> Inner:
    commands, doubts, at = [], [], 1
    while at < len(words):
        if words[at] not in ("-exec", "-execdir", "-ok", "-okdir"):
            at += 1
            continue
        end = next((end for end in range(at + 1, len(words)) if words[end] in (";", "+")), len(words))
        given = tuple(UNKNOWN if word == "{}" else word.replace("{}", UNKNOWN) for word in words[at + 1 : end])
        if given:
            commands.append(Simple(given))
        if end == len(words):
            doubts.append("where the command of `find -exec` ends is not certain")
        at = end + 1
    return Inner(tuple(commands), doubts=tuple(doubts))


def _eval(words: Words) -> Inner:
    rest = words[2:] if words[1:2] == ("--",) else words[1:]
    return _script(" ".join(rest)) if rest else NOTHING


def _command(words: Words) -> Inner:
    """`command -v` only looks."""
    if len(words) > 1 and re.fullmatch(r"-p?[vV]", words[1]):
        return NOTHING
    return _wrapped("command", _WRAPPERS["command"], words)


def _ssh(words: Words) -> Inner:
    """What stands before the host are flags; what follows is a script for a shell elsewhere."""
    at = 1
    row = _WRAPPERS["ssh"]
    while at < len(words) and words[at].startswith("-"):
        step, _ = _flag(row, words[at])
        if not step:
            return Inner(doubts=(f"`ssh {readable(words[at])}` may run something else",))
        at += step
    rest = words[at + 1 :]
    if rest and rest[0].startswith("-"):
        return Inner(doubts=("flags of `ssh` after its host are not read",))
    return _script(" ".join(rest)) if rest else Inner(doubts=("`ssh` starts a shell elsewhere",))


def _busybox(words: Words) -> Inner:
    return Inner((Simple(words[1:]),)) if words[1:] and not words[1].startswith("-") else NOTHING


_SPECIAL: Mapping[str, Callable[[Words], Inner]] = {
    "env": _env,
    "find": _find,
    "eval": _eval,
    "command": _command,
    "ssh": _ssh,
    "busybox": _busybox,
    "toybox": _busybox,
    "builtin": lambda words: Inner((Simple(words[1:]),)) if words[1:] else NOTHING,
}
_STARTING = SHELLS.union(_SPECIAL, _NEVER, _WRAPPERS)
