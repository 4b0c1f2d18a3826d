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
_SHELL_LONG = (
    "--norc",
    "--noprofile",
    "--posix",
    "--version",
    "--help",
    "--verbose",
    "--login",
    "--rcfile",
    "--init-file",
)
_SHELL_OPTIONS = ("pipefail", "errexit", "nounset", "noglob", "noclobber", "xtrace", "verbose", "noexec")
_SHELL_LETTERS = frozenset("abefhmnptuvxBCETcsilr")
RESERVED = frozenset(
    (
        *("if", "then", "elif", "else", "fi", "do", "done", "case", "esac", "while", "until", "for", "in", "function"),
        *("select", "{", "}", "!", "[[", "]]", "((", "))"),
    )
)


class Inner(Struct, frozen=True):
    """What a command starts. `shell` reads the scripts: `bash`, perhaps another (`sh`), or the one of now ("")."""

    commands: tuple[Simple, ...] = ()
    scripts: Words = ()
    doubts: Words = ()
    shell: str = ""


NOTHING = Inner()


class Wrapper(Struct, frozen=True):
    """How a wrapper is told its command. `script` reads the rest as text for a shell."""

    valued: str = ""  # letters of flags with a value
    flags: str = ""  # letters of flags without one
    long: Words = ()  # long flags without a value
    long_valued: Words = ()
    maybe: str = ""  # letters of flags whose value, if they have one, stands in the same word
    long_maybe: Words = ()  # the same, after a `=`
    before: int = 0  # arguments before the command
    script: str = ""  # the letter of a flag whose value is a script
    joined: bool = False  # the command is put together to a script again
    numbers: bool = False  # `-5` is a flag
    extra: bool = False  # more arguments are added by what it reads
    foreign: str = ""  # why the command inside means something else than here
    shell: bool = False  # told no command, it starts a shell


_TIMEOUT = Wrapper(
    "ks", "vfp", ("--foreground", "--preserve-status", "--verbose"), ("--kill-after", "--signal"), before=1
)
_WRAPPERS: Mapping[str, Wrapper] = {
    "nohup": Wrapper(),
    "timeout": _TIMEOUT,
    "gtimeout": _TIMEOUT,
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
        ("--null", "--no-run-if-empty", "--verbose", "--interactive", "--exit", "--open-tty", "--show-limits"),
        ("--arg-file", "--delimiter", "--max-args", "--max-procs", "--max-chars", "--process-slot-var"),
        maybe="eil",
        long_maybe=("--eof", "--replace", "--max-lines"),
        extra=True,
    ),
    "sudo": Wrapper("ugpCrtTU", "nkbEHPSA", ("--non-interactive",), ("--user", "--group")),
    "doas": Wrapper("u", "n"),
    "pkexec": Wrapper("", "", (), ("--user",)),
    "runuser": Wrapper("ug", "", (), ("--user",), script="c", shell=True, foreign="as somebody else"),
    "su": Wrapper("gGw", "lmpP", ("--login",), (), before=9, script="c", shell=True),
    "watch": Wrapper("nq", "bcdegtxpw", (), ("--interval",), joined=True),
    "busybox": Wrapper(),
    "toybox": Wrapper(),
    "chroot": Wrapper(long_valued=("--userspec", "--groups"), before=1, foreign="in another root folder"),
    "unshare": Wrapper("", "muinpUCrTf", foreign="in other namespaces"),
    "nsenter": Wrapper("tSGrw", "amuinpUCTFZe", foreign="in other namespaces"),
    "ssh": Wrapper("BbcDEeFIiJLlmOopQRSWw", "46AaCfGgKkMNnqsTtVvXxYy", before=1, joined=True),
    "flock": Wrapper("wE", "xesuno", ("--nonblock", "--exclusive", "--shared"), ("--timeout",), before=1, script="c"),
    "script": Wrapper("EtTIOBoml", "aefq", ("--quiet", "--append"), before=9, script="c", shell=True),
    "strace": Wrapper("abeIopPsSuUO", "cCdfFhiknqrtTvVwxyYzZ"),
    "ltrace": Wrapper("aelnopsuwxX", "bcCfhiLrStTV"),
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
            return Inner((), found.scripts, (*found.doubts, f"`{name}` reads some lines in its own way"), "sh")
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
    name = words[0].rpartition("/")[2]
    at, told, fed, why = _shell_flags(words)
    if why:
        return Inner(doubts=(why,))
    if told:
        return _script(words[at], name) if at < len(words) else Inner(doubts=("a shell is given no script",))
    if at < len(words) and not fed:
        if SPLIT in words[at] or UNKNOWN in words[at] or words[at] in ("-", "/dev/stdin", "/dev/fd/0"):
            return Inner(doubts=("a shell runs a script that is only known when it runs",))
        return NOTHING
    if inputs and not any(UNKNOWN in text or SPLIT in text for text in inputs):
        return Inner(scripts=inputs, shell=_reader(name))
    if {"--version", "--help"}.intersection(words):
        return NOTHING
    return Inner(doubts=("a shell takes its commands from its input",))


def _shell_flags(words: Words) -> tuple[int, bool, bool, str]:
    """Where the flags of a shell end, whether they tell it a script or to read its input, and what is in doubt."""
    at, told, fed = 1, False, False
    while at < len(words) and words[at] and words[at][0] in "-+\x00\x01":
        word, letters = words[at], frozenset(words[at][1:])
        if word == "--":
            return at + 1, told, fed, ""
        if UNKNOWN in word or SPLIT in word:
            if word[0] in "-+" or told:
                return at, told, fed, f"the flags of `{readable(words[0])}` are only known when it runs"
            break
        doubt = f"`{readable(words[0])} {word}` may read its script in another way"
        if word.startswith("--"):
            at += 2 if word in ("--rcfile", "--init-file") else 1
            if word not in _SHELL_LONG:
                return at, told, fed, doubt
        elif letters & {"o", "O"}:
            known = word[-1] == "o" and letters <= _SHELL_LETTERS | {"o"} and not letters & {"c", "s"}
            if not known or "".join(words[at + 1 : at + 2]) not in _SHELL_OPTIONS:
                return at, told, fed, doubt
            at += 2
        elif not letters <= _SHELL_LETTERS or not letters or (word[0] == "+" and letters & {"c", "s"}):
            return at, told, fed, doubt
        else:
            told, fed = told or "c" in letters, fed or "s" in letters
            at += 1
    return at, told, fed, ""


def _reader(name: str) -> str:
    """Which shell reads a script: where it is not bash for certain, what only bash knows is a doubt."""
    return "bash" if name in ("bash", "rbash") else "sh"


def _script(text: str, name: str = "sh") -> Inner:
    if UNKNOWN in text or SPLIT in text:
        return Inner(doubts=("a shell runs a text that is only known when it runs",))
    return Inner(scripts=(text,), shell=_reader(name))


def _wrapped(name: str, row: Wrapper, words: Words) -> Inner:
    at, doubts = 1, [f"`{name}` runs its command {row.foreign}"] if row.foreign else []
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        if word == "--":
            at += 1
            break
        step, script = _flag(row, word)
        if script is not None:
            return _told(script or "".join(words[at + 1 : at + 2]), doubts)
        if not step:
            return Inner(doubts=(*doubts, f"`{name} {readable(word)}` may run something else"))
        at += step
    if row.script and (later := _later(name, row, words, at, doubts)) is not None:
        return later
    rest = words[at + row.before :]
    if SPLIT in "".join(words[at : at + row.before]):
        doubts.append(f"where the command of `{name}` begins is only known when it runs")
    if not rest:
        return Inner(doubts=(*doubts, *((f"`{name}` starts a shell",) if row.shell else ())))
    if row.joined:
        return _told(" ".join(rest), doubts)
    if row.extra:
        rest = (*_replaced(words[1:at], rest), SPLIT)
    return Inner((Simple(rest),), doubts=tuple(doubts))


def _told(script: str, doubts: list[str]) -> Inner:
    found = _script(script)
    return Inner((), found.scripts, (*doubts, *found.doubts), found.shell)


def _later(name: str, row: Wrapper, words: Words, at: int, doubts: list[str]) -> Inner | None:
    """A script that is told after other arguments: of `su` anywhere, of `flock` right after its file."""
    for index in range(at, len(words) if row.before > 1 else min(at + row.before + 1, len(words))):
        if not words[index].startswith("-") or words[index] in ("-", "--"):
            continue
        step, script = _flag(row, words[index])
        if script is not None:
            return _told(script or "".join(words[index + 1 : index + 2]), doubts)
        if not step:
            return Inner(doubts=(*doubts, f"`{name} {readable(words[index])}` may run something else"))
    return None


def _replaced(flags: Words, rest: Words) -> Words:
    """The command of `xargs -I % …`, in which every % becomes what is read."""
    for at, word in enumerate(flags):
        found = re.match(r"-[0prtxo]*([IiJ])(.*)|--replace=?(.*)", word, re.DOTALL)
        if found is not None:
            value = found[2] or found[3] or (flags[at + 1] if found[1] in ("I", "J") and at + 1 < len(flags) else "{}")
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
        if name in row.long_maybe or (name in row.long and not equals):
            return (1, None)
        return ((1 if equals else 2), None) if name in row.long_valued else (0, None)
    if row.numbers and re.fullmatch(r"-\d+", word):
        return (1, None)
    for at, letter in enumerate(word[1:], 2):
        if letter == row.script:
            return (0, word[at:])
        if letter in row.valued:
            return (1 if word[at:] else 2, None)
        if letter in row.maybe:
            return (1, None)
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
        end = next((end for end in range(at + 1, len(words)) if _ends(words, at, end)), len(words))
        if any(words[each] == "+" and re.search("^{}$|[\x00\x01]", words[each - 1]) for each in range(at + 2, end)):
            doubts.append("where the command of `find -exec` ends is only known when it runs")
        given = tuple(UNKNOWN if word == "{}" else word.replace("{}", UNKNOWN) for word in words[at + 1 : end])
        if given:
            commands.append(Simple(given))
        if end == len(words):
            doubts.append("where the command of `find -exec` ends is not certain")
        at = end + 1
    return Inner(tuple(commands), doubts=tuple(doubts))


def _ends(words: Words, start: int, at: int) -> bool:
    """Whether a word ends the command of `-exec`: a plus does only after `{}`, and never for `-ok`."""
    if words[at] == "+":
        return words[at - 1] == "{}" and words[start].startswith("-exec") and at - 1 > start
    return words[at] == ";"


def _eval(words: Words) -> Inner:
    rest = words[2:] if words[1:2] == ("--",) else words[1:]
    return Inner((), (found := _script(" ".join(rest))).scripts, found.doubts) if rest else NOTHING


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
