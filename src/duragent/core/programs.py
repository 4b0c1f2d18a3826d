"""Programs whose flags or arguments run other programs, load code or write files: a star in a rule does not mean them.

One row per program. `risky` gives the words of a command that an allow rule must write out in full; `converses` says
whether a program takes commands from what it is fed. Nothing here allows anything; a program without a row is what its
owner allowed. Many programs take any beginning of a long flag, so every beginning counts. Adding a program: a row in
`_ROWS`, and its attempts in tests/core/test_bypasses.py.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from duragent.core import git, packagers, scripting
from duragent.core.flags import MARKS, Words, assigns, begins, everything, guards, lands, operands, unclear, writes
from duragent.core.flags import NOWHERE as NOWHERE
from duragent.core.flags import of_repository as of_repository
from duragent.core.flags import protected as protected

_CONVERSING = frozenset(
    (
        *(
            "vi",
            "vim",
            "nvim",
            "view",
            "vimdiff",
            "ex",
            "ed",
            "red",
            "nano",
            "pico",
            "emacs",
            "emacsclient",
            "mg",
            "joe",
        ),
        *("jed", "micro", "less", "more", "most", "man", "info", "sftp", "ftp", "lftp", "psql", "mysql", "mariadb"),
        *("sqlite3", "mongo", "mongosh", "redis-cli", "gdb", "lldb", "telnet", "dc", "irb", "crontab", "at", "batch"),
        *(
            "mail",
            "mailx",
            "mutt",
            "gnuplot",
            "octave",
            "R",
            "ghci",
            "ipython",
            "erl",
            "iex",
            "guile",
            "sbcl",
            "maxima",
        ),
        *("gp", "debugfs", "nslookup", "m4", "jshell", "swipl", "scala", "clojure", "groovysh", "screen"),
    )
)


_DEBUGGED = frozenset(("pytest", "py.test", "python", "pypy", "coverage", "tox", "uv", "poetry"))
_INTERPRETERS = frozenset(("python", "pypy", "perl", "ruby", "node", "php", "lua", "deno", "awk", "gawk", "mawk"))
_DEBUGS = re.compile(r"--(?:pdb|trace)")
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash", "mksh", "rbash"))
_FED_MAKE = re.compile(r" (?:-[A-Za-z]*f|--(?:file|makefile)=?) ?(?:-|/dev/|/proc/|[\x00\x01])")


class Row(Struct, frozen=True):
    """What to look for among the arguments of a program."""

    short: str = ""  # letters of flags, alone or among others: `-o`, `-xo`, `-oFILE`; their value is written out too
    long: Words = ()  # `--output`, also as `--out` and `--output=FILE`; their value is written out too
    loose: str = ""  # letters of flags whose value a star may cover
    loose_long: Words = ()
    words: Words = ()  # whole words, or the beginning of one where it ends with `=` or `*`
    more: Callable[[Words], Words] | None = None  # what no list can say
    first: bool = False  # its first argument that is no flag decides what it does
    whole: bool = False  # `more` says everything


def risky(words: Words) -> Words:
    """The words that a rule must write out; a word nobody can know counts where it could become one of them."""
    row = _row(words[0]) if words else None
    if row is None:
        return ()
    if row.whole and row.more is not None:
        return row.more(words)
    found: list[str] = []
    bare = not (row.short or row.long or row.loose or row.words)
    for at, word in enumerate(words[1:], 1):  # also after `--`, which may be the value of a flag
        if word == "--" and at == 1 and bare:
            break
        if (kind := _kind(row, word)) is not None:
            found.append(word)
            if kind == "valued" and "=" not in word and at + 1 < len(words):
                found.append(words[at + 1])
    if row.more is not None:
        found += row.more(words)
    if row.first:
        found += [word for word in words[1:] if not word.startswith("-")][:1]
    return tuple(found)


def ends_flags(program: str) -> bool:
    """Whether `--` surely ends the flags of a program: it does not where words with one dash are an expression."""
    row = _row(program)
    return row is not None and row.more not in (_tests, _openssl) and not any(each[0] == "-" for each in row.words)


def _row(program: str) -> Row | None:
    name = program.rpartition("/")[2]
    row = _ROWS.get(name)
    if row is None and name[-1:].isdigit():
        row = _ROWS.get(_unversioned(name))
    return row


def _kind(row: Row, word: str) -> str | None:
    if unclear(word):
        return "unknown"
    if word.startswith("--"):
        name = word.partition("=")[0]
        if name not in row.loose_long and begins(name, row.long):
            return "valued"
        if begins(name, row.loose_long):
            return "loose"
    elif len(word) > 1 and word.startswith("-"):
        letters = set(word[1:])
        if letters.intersection(row.short):
            return "valued"
        if letters.intersection(row.loose):
            return "loose"
    for each in row.words:
        if word == each or (each[-1] in "=*" and word.startswith(each.rstrip("*"))):
            return "loose"
    return None


def converses(words: Words) -> bool:
    """Whether a program takes commands from its standard input, and may run others for them."""
    name = words[0].rpartition("/")[2] if words else ""
    if name == "git":
        return git.opens_editor(words)
    return name in _CONVERSING or (any(map(_DEBUGS.match, words)) and _unversioned(name) in _DEBUGGED)


def _unversioned(program: str) -> str:
    return re.sub(r"-?[0-9.]+$", "", program.rpartition("/")[2])


def interprets(words: Words) -> bool:
    """Whether a program may take what it is fed for a program. A shell without a word is looked into elsewhere."""
    name = _unversioned(words[0]) if words else ""
    return name in _INTERPRETERS or (name in _SHELLS and len(words) > 1)


def renames(words: Words) -> bool:
    """Whether a program is told in a roundabout way what to run."""
    name = words[0].rpartition("/")[2] if words else ""
    if name == "git":
        return git.renames(words)
    told = "".join(f" {word}" for word in words[1:])
    return name in ("make", "gmake") and _FED_MAKE.search(told) is not None


def _tar(words: Words) -> Words:
    """The old way to write flags has no dash. An archive with a colon in its name is on another machine."""
    first = words[1] if len(words) > 1 else ""
    old = (first,) if first and first[0] != "-" and set(first) & set("IFTg") else ()
    return (*old, *(word for word in words[1:] if ":" in word and (word[:2] != "--" or word[:3] == "--f")))


def _python(words: Words) -> Words:
    """A module is a program too."""
    for at, word in enumerate(words[1:], 1):
        found = re.fullmatch(r"-[A-Za-ln-z]*m(.*)", word, re.DOTALL)
        if found is not None:
            rest = (found[1], *words[at + 1 :]) if found[1] else words[at + 1 :]
            return (*_standard_input(words), *risky(rest))
    return _standard_input(words)


def _date(words: Words) -> Words:
    """Whatever is no format sets the clock, unless it is the value of a flag that only looks."""
    found, at = list[str](), 1
    while at < len(words):
        word = words[at]
        at += 1
        if word[:1] == "+" or word[:2] == "-I":
            continue
        if re.fullmatch(r"-[uR]*[dr]", word) or begins(word, ("--date", "--reference")):
            at += 1
        elif word[:2] != "--" and not re.match(r"-[uR]*(?:[dr]|$)", word):
            found.append(word)
    return tuple(found)


def _addresses(letters: str, long: Words, words: Words) -> Words:
    """Every address after the first: a rule's star is about one. These flags take the next word."""
    found = []
    for at, word in enumerate(words[1:], 1):
        name = words[at - 1]
        if name[:2] == "--":
            value = name in long
        else:
            ends = next((end for end, letter in enumerate(name) if end and letter in letters), -1)
            value = at > 1 and name[:1] == "-" and ends == len(name) - 1
        if word[:1] != "-" and ("://" in word or not value):
            found.append(word)
    return (*found[1:], *(word for word in words[1:] if "%output" in word))


def _standard_input(words: Words) -> Words:
    """An interpreter that is told no file takes its program from its input."""
    told = [word for word in words[1:] if not word.startswith("-")]
    asks = {"--version", "-V", "-v", "--help", "-h"}.intersection(words)
    return () if told or asks else (NOWHERE,)


def _subscripts(words: Words) -> Words:
    """Names of variables may hold a subscript, and a subscript may run a program. Some names decide what runs."""
    return tuple(word for word in words[1:] if "[" in word or MARKS.search(word) or re.search(r"[A-Z]", word))


def _tests(words: Words) -> Words:
    """`test -v NAME` looks into NAME. A test of which nobody knows the operator may be that one."""
    said = words[2:] if words[1:2] == ("!",) else words[1:]
    if not any(map(MARKS.search, said)):
        return tuple(said) if {"-v", "-R"}.intersection(said) else ()
    unary = len(said) == 2 and re.fullmatch(r"-[a-zA-QS-Zbcdefghknprstuwxz]", said[0]) and said[0] != "-v"
    binary = len(said) == 3 and re.fullmatch(r"==?|!=|-(?:eq|ne|lt|le|gt|ge|nt|ot|ef)", said[1])
    return () if (unary or binary) and not any("\x01" in word for word in said) else tuple(said)


def _second(words: Words) -> Words:
    """What stands after the file that is read is a file that is written."""
    return tuple(operands(words)[1:])


def _dd(words: Words) -> Words:
    return tuple(word for word in words[1:] if MARKS.search(word) or word.startswith("of="))


def _openssl(words: Words) -> Words:
    return tuple(word for word in words[1:] if word.lstrip("-") in ("engine", "provider", "out", "config", "writerand"))


_GUARD = Row(more=guards)
_NAMES = Row(more=_subscripts)
_EDITOR = Row(short="csSuWiw", long=("--cmd", "--servername"), words=("+*",), more=guards)
_WHOLE = Row(more=everything, whole=True)
_SHELL = Row(long=("--rcfile", "--init-file"), loose_long=("--login",), loose="ils", words=("+*",))
_AWK = Row(more=scripting.awk)
_SED = Row(more=scripting.sed)
_OUTPUT = Row(
    short="o", long=("--output", "--output-file", "--outfile", "--out"), words=("-output*", "-out*"), more=guards
)
_PAGER = Row(short="koOP", long=("--lesskey", "--log-file", "--lesskey-src"), words=("+*",))
_SSH_LONG = ("--rsh", "--rsync-path", "--config", "--temp-dir", "--backup-dir", "--partial-dir", "--log-file")
_COMPILER = Row(short="Bw", words=("-wrapper", "-fplugin*", "-specs*", "--specs*", "@*", "-Xlinker", "-Wl*"))
_ARCHIVER = Row(short="IFTg", long=("--to-command", "--files-from", "--checkpoint-action", "--use-compress-program",
                                  "--info-script", "--new-volume-script", "--rsh-command", "--rmt-command",
                                  "--index-file", "--volno-file", "--listed-incremental"),
                loose="PC", loose_long=("--absolute-names", "--directory", "--checkpoint"), more=_tar)  # fmt: skip
_PYTEST = Row(short="pcoW", long=("--rootdir", "--confcutdir", "--basetemp", "--junitxml", "--junit-xml", "--pdbcls",
                                  "--override-ini", "--log-file", "--report-log", "--pastebin"),
              loose_long=("--pdb", "--trace", "--debug"))  # fmt: skip
_CURL_LETTERS = "AbCeEhHmPQrtuUwXyYz"
_CURL_VALUED: Words = ("--header", "--user-agent", "--max-time", "--connect-timeout", "--retry", "--retry-delay")
_CURL_VALUED += ("--request", "--user", "--referer", "--cookie", "--range", "--cacert", "--write-out", "--max-redirs")
_CURLED = partial(_addresses, _CURL_LETTERS, _CURL_VALUED)
_WRITING: Words = (
    "tree",
    "iconv",
    "pandoc",
    "xsltproc",
    "xmllint",
    "dot",
    "indent",
    "strip",
    "objcopy",
    "ruff",
    "protoc",
    "swig",
)
_WRITING += ("bison", "flex", "yacc", "lex", "gperf", "nm", "ar", "ranlib", "readelf", "tsc")
_TOUCHING: Words = (
    "gzip",
    "gunzip",
    "bzip2",
    "xz",
    "zstd",
    "sponge",
    "shred",
    "mkfifo",
    "rmdir",
    "unlink",
    "pdftotext",
)
_RUNNING: Words = (
    "setpriv",
    "choom",
    "perf",
    "dbus-run-session",
    "ssh-agent",
    "sg",
    "newgrp",
    "start-stop-daemon",
    "hyperfine",
)
_RUNNING += ("linux32", "linux64", "i386", "x86_64", "proot", "firejail", "bwrap", "valgrind", "gdbserver", "rr")
_RUNNING += ("cgexec", "systemd-inhibit", "wine", "faketime", "fakechroot", "eatmydata", "torsocks", "proxychains")
_RUNNING += ("proxychains4", "ccache", "distcc", "prename", "rename", "exiftool", "lftp", "ftp", "mailx", "ipython")
_RUNNING += ("irb", "gnuplot", "octave", "vipe", "parallel", "run-parts", "yt-dlp", "youtube-dl")
_ROWS: Mapping[str, Row] = {
    "git": Row(more=git.risky, whole=True),
    "tar": _ARCHIVER, "bsdtar": _ARCHIVER, "gtar": _ARCHIVER,
    "cpio": Row(short="HGFIO", long=("--rsh-command", "--rmt-command", "--file"), loose="i"),
    "find": Row(words=("-delete", "-fprint*", "-fls", "-files0-from")),
    "fd": Row(short="xX", long=("--exec", "--exec-batch")), "fdfind": Row(short="xX", long=("--exec", "--exec-batch")),
    "rg": Row(long=("--pre", "--pre-glob", "--hostname-bin"), loose="z", loose_long=("--search-zip",)),
    "ag": Row(long=("--pager",)), "ack": Row(long=("--pager", "--ackrc")),
    "rsync": Row(short="eMT", long=_SSH_LONG, more=guards),
    "ssh": Row(short="oFEIJLRDwWS", long=()), "scp": Row(short="oFSiJD"), "sftp": Row(short="oFSbiJD"),
    "sort": Row(short="oT", long=("--compress-program", "--output", "--temporary-directory"), loose=""),
    "shuf": Row(short="o", long=("--output", "--random-source")),
    "split": Row(long=("--filter",), more=guards), "csplit": _GUARD,
    "awk": _AWK, "gawk": _AWK, "mawk": _AWK, "nawk": _AWK, "sed": _SED, "gsed": _SED,
    "less": _PAGER, "more": _PAGER, "most": _PAGER, "bat": Row(long=("--pager", "--config-file", "--diff"), loose="m"),
    "man": Row(short="PHXCBMT", long=("--pager", "--html", "--browser", "--config-file", "--preprocessor")),
    "vim": _EDITOR, "vi": _EDITOR, "nvim": _EDITOR, "view": _EDITOR, "ex": _WHOLE, "ed": _WHOLE, "emacs": _WHOLE,
    "nano": Row(short="sCfo", long=("--speller", "--rcfile", "--backupdir", "--operatingdir"), more=guards),
    "python": Row(short="cm", words=("-",), more=_python), "pypy": Row(short="cm", words=("-",), more=_python),
    "node": Row(short="eprC", long=("--eval", "--print", "--require", "--import", "--loader", "--experimental-loader",
                                    "--inspect", "--env-file", "--run"), words=("-",), more=_standard_input),
    "perl": Row(short="eEMmIixdS", words=("-",), more=_standard_input),
    "ruby": Row(short="erIiSxC", words=("-",), more=_standard_input),
    "php": Row(short="rBREdzfSc", words=("-", "--*"), more=_standard_input),
    "lua": Row(short="el", words=("-",), more=_standard_input), "Rscript": Row(short="e", words=("-",)),
    "deno": Row(first=True, loose="A", loose_long=("--allow-all", "--allow-run")),
    "tclsh": Row(more=_standard_input), "osascript": _WHOLE, "expect": _WHOLE, "gdb": _WHOLE, "lldb": _WHOLE,
    "sh": _SHELL, "bash": _SHELL, "dash": _SHELL, "zsh": _SHELL, "ksh": _SHELL, "fish": _WHOLE, "csh": _WHOLE,
    "tcsh": _WHOLE, "rbash": _SHELL, "ash": _SHELL, "mksh": _SHELL, "pwsh": _WHOLE,
    "make": Row(short="fCIEW", long=("--file", "--makefile", "--directory", "--eval", "--include-dir"), more=assigns),
    "gmake": Row(short="fCIEW", long=("--file", "--makefile", "--directory", "--eval"), more=assigns),
    "cmake": Row(short="EPDC", long=("--build", "--install"), more=assigns), "ninja": Row(short="fCt"),
    "just": Row(short="fd", long=("--justfile", "--working-directory", "--shell", "--command"), more=assigns),
    **{name: Row(more=partial(packagers.risky, keeper), whole=True) for name, keeper in packagers.KEEPERS.items()},
    "npx": Row(first=True, short="c", long=("--call",)), "uvx": Row(first=True), "bunx": Row(first=True),
    "docker": Row(first=True, short="H", long=("--host", "--config", "--context", "--tls", "--tlscacert", "--tlscert",
        "--tlskey", "--tlsverify"), loose="vc", loose_long=("--volume", "--mount", "--privileged")),
    "podman": Row(first=True, loose="v", loose_long=("--volume", "--mount", "--privileged")),
    "kubectl": Row(first=True), "helm": Row(first=True), "systemctl": Row(first=True), "crontab": _WHOLE,
    "at": _WHOLE, "batch": _WHOLE, "systemd-run": _WHOLE, "dbus-send": _WHOLE, "gh": Row(words=("alias", "extension",
        "api", "codespace", "auth", "config", "secret"), loose_long=("--web",)),
    "zip": Row(short="T", words=("-TT", "--unzip-command*"), long=("--unzip-command", "--test")),
    "unzip": Row(loose="d"), "7z": Row(words=("-o*",)),
    "curl": Row(short="KoOcDTFdx:", long=("--config", "--output", "--output-dir", "--remote-name", "--cookie-jar",
        "--dump-header", "--upload-file", "--form", "--trace", "--trace-ascii", "--stderr", "--engine", "--libcurl",
        "--data", "--data-binary", "--data-raw", "--data-urlencode", "--remote-name-all", "--etag-save", "--hsts",
        "--alt-svc", "--unix-socket", "--json", "--url", "--next", "--proxy", "--preproxy", "--connect-to",
        "--resolve"), words=("@*", "--expand-*", "--socks*"), more=_CURLED),
    "wget": Row(short="OPoaieY", long=("--use-askpass", "--output-document", "--output-file", "--append-output",
        "--execute", "--config", "--input-file", "--directory-prefix", "--post-file", "--body-file", "--save-cookies",
        "--warc-file", "--rejected-log"), more=partial(_addresses, "ABDlQRtTUwX", ("--header", "--user-agent",
        "--timeout", "--tries", "--wait", "--level", "--user", "--password"))),
    "aria2c": _WHOLE, "nc": _WHOLE, "ncat": _WHOLE, "netcat": _WHOLE, "socat": _WHOLE, "telnet": _WHOLE,
    "openssl": Row(more=_openssl), "gpg": Row(short="o", long=("--output", "--exec-path", "--options",
        "--agent-program", "--dirmngr-program", "--photo-viewer", "--keyserver-options")),
    "tcpdump": Row(short="zwFr"), "tshark": Row(short="wXC"), "nmap": Row(long=("--script", "--datadir"), short="oi"),
    "date": Row(long=("--set", "--file"), more=_date), "file": Row(short="mC", long=("--magic-file", "--compile")),
    "gcc": _COMPILER, "cc": _COMPILER, "g++": _COMPILER, "clang": _COMPILER, "clang++": _COMPILER, "c++": _COMPILER,
    "ld": Row(words=("-plugin*", "--plugin*", "@*", "-T*")), "as": _GUARD, "m4": _WHOLE, "cpp": _COMPILER,
    "tex": _WHOLE, "latex": _WHOLE, "pdflatex": Row(words=("-shell-escape", "--shell-escape", "-enable-write18",
        "--enable-write18"), short="e", more=guards),
    "tee": Row(more=writes), "dd": Row(more=_dd), "truncate": Row(more=writes), "install": Row(more=lands),
    "cp": Row(more=lands), "mv": Row(more=lands), "ln": Row(more=lands), "rm": Row(more=guards),
    "touch": Row(more=lands), "mkdir": Row(more=lands), "chmod": _GUARD, "chown": _GUARD,
    "patch": Row(short="odr", more=guards, long=("--output", "--directory", "--reject-file", "--get")),
    "xargs": Row(short="a", long=("--arg-file",)),
    "env": Row(short="SC", long=("--split-string", "--chdir")),
    "time": Row(short="o", long=("--output",)), "strace": Row(short="oO", long=("--output",)),
    "script": Row(more=writes), "logrotate": _WHOLE, "mail": _WHOLE, "mutt": _WHOLE, "sendmail": _WHOLE,
    "mysql": Row(short="e", long=("--execute", "--pager", "--tee", "--init-command"), words=("system",)),
    "psql": Row(short="cfovL", long=("--command", "--file", "--output", "--set", "--variable", "--log-file")),
    "sqlite3": _WHOLE, "redis-cli": _WHOLE, "jq": Row(loose="fL", loose_long=("--from-file",)), "yq": Row(short="i"),
    "tmux": _WHOLE, "screen": _WHOLE, "ip": Row(words=("netns", "exec", "-b*", "-batch")), "mount": _WHOLE,
    "pytest": _PYTEST, "py.test": _PYTEST,
    "tox": Row(short="cx"), "ansible": _WHOLE, "ansible-playbook": _WHOLE, "terraform": Row(first=True),
    "ctags": Row(long=("--options", "--langdef"), short="f"), "ghostscript": _WHOLE, "gs": _WHOLE, "convert": _WHOLE,
    "ffmpeg": _GUARD, "diff": Row(long=("--output",)), "dc": Row(short="ef", long=("--expression", "--file")),
    **dict.fromkeys(_WRITING, _OUTPUT), **dict.fromkeys(_TOUCHING, _GUARD), **dict.fromkeys(_RUNNING, _WHOLE),
    "xxd": Row(more=_second, loose="r"), "ptx": Row(more=_second), "uniq": Row(more=_second),
    "ssh-keygen": Row(short="fDMsw"), "ssh-add": Row(short="sTS"), "ltrace": Row(short="oFl", long=("--output",)),
    "coverage": Row(first=True),
    "ld.so": _WHOLE, "ld-linux-x86-64.so.2": _WHOLE, "ld-linux.so.2": _WHOLE, "setarch": _WHOLE, "capsh": _WHOLE,
    "read": _NAMES, "unset": _NAMES, "mapfile": Row(short="C", more=_subscripts), "let": _WHOLE, "getopts": _NAMES,
    "readarray": Row(short="C", more=_subscripts), "declare": Row(loose="nifF", more=_subscripts),
    "typeset": Row(loose="nifF", more=_subscripts), "local": Row(loose="nif", more=_subscripts),
    "readonly": Row(loose="f", more=_subscripts), "export": Row(loose="fn"), "wait": Row(short="p"),
    "printf": Row(short="v"), "test": Row(more=_tests), "[": Row(more=_tests),
    "set": _WHOLE, "ulimit": _WHOLE, "umask": _WHOLE, "exec": Row(loose="a"),
}  # fmt: skip
