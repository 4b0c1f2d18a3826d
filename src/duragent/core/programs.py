"""Programs whose flags or arguments run other programs, load code or write files: a star in a rule does not mean them.

One row per program. `risky` gives the words of a command that an allow rule must write out in full. Nothing here
allows anything; a program without a row is what its owner allowed. Many programs take any beginning of a long flag,
so every beginning counts. Adding a program: a row in `_ROWS`, and its attempts in tests/core/test_bypasses.py.
"""

import posixpath
import re
from collections.abc import Callable, Mapping

from msgspec import Struct

Words = tuple[str, ...]
_MARKS = re.compile("[\x00\x01]")
NOWHERE = "\x01standard input"
"""Stands for code that no word of the command shows: no rule can write it out."""
_FOLDERS = frozenset((".git", ".duragent", ".ssh", ".gnupg", ".vscode", ".idea", ".husky", ".githooks"))
_FILES = re.compile(
    r"duragent\.ya?ml|agent\.ya?ml|policy.*\.ya?ml|agent\.acl|.*\.agent|.*\.agent\.md|skill\.md|\.envrc|\.env"
    r"|\.gitconfig|\.gitmodules|\.gitattributes|\.npmrc|\.yarnrc.*|\.pypirc|\.netrc|\.inputrc|\.vimrc|\.exrc"
    r"|\.(?:bash|zsh|k?sh|csh|tcsh)(?:rc|_profile|_login|_logout|env)|\.z(?:profile|login|logout)|\.profile"
)


def protected(path: str) -> bool:
    """Whether a path names what decides about what runs: rules, agents, hooks, start files."""
    parts = [part.lower() for part in path.split("/")]
    return bool(_FOLDERS.intersection(parts)) or _FILES.fullmatch(parts[-1]) is not None


class Row(Struct, frozen=True):
    """What to look for among the arguments of a program."""

    short: str = ""  # letters of flags, alone or among others: `-o`, `-xo`, `-oFILE`; their value is written out too
    long: Words = ()  # `--output`, also as `--out` and `--output=FILE`; their value is written out too
    loose: str = ""  # letters of flags whose value a star may cover
    loose_long: Words = ()
    words: Words = ()  # whole words, or the beginning of one where it ends with `=` or `*`
    more: Callable[[Words], Words] | None = None  # what no list can say
    ends: bool = True  # `--` ends the flags
    first: bool = False  # its first argument that is no flag decides what it does


def risky(words: Words) -> Words:
    """The words that a rule must write out; a word nobody can know counts where it could become one of them."""
    row = _row(words[0]) if words else None
    if row is None:
        return ()
    found: list[str] = []
    for at, word in enumerate(words[1:], 1):
        if row.ends and word == "--":
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


def _row(program: str) -> Row | None:
    name = program.rpartition("/")[2]
    row = _ROWS.get(name)
    if row is None and name[-1:].isdigit():
        row = _ROWS.get(re.sub(r"-?[0-9.]+$", "", name))
    return row


def _kind(row: Row, word: str) -> str | None:
    if "\x01" in word or ("\x00" in word and word[0] in "-\x00"):
        return "unknown"
    if word.startswith("--"):
        name = word.partition("=")[0]
        if _begins(name, row.long):
            return "valued"
        if _begins(name, row.loose_long):
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


def _begins(name: str, flags: Words) -> bool:
    """Whether one of the long flags may be meant."""
    if len(name) > 2:
        for flag in flags:
            if flag.startswith(name):
                return True
    return False


def _operands(words: Words) -> list[str]:
    return [word for word in words[1:] if not word.startswith("-")]


_GIT_VALUED = ("-C", "--git-dir", "--work-tree", "--namespace", "-c", "--config-env", "--exec-path", "--super-prefix")
_GIT_RUNS = {
    "submodule": ("foreach", "update", "add"),
    "bisect": ("run", "visualize", "view"),
    "hook": ("run",),
    "bundle": ("create",),
    "worktree": ("add",),
    "rebase": ("-x", "--exec", "-i", "--interactive"),
    "grep": ("-O", "--open-files-in-pager"),
    "archive": ("-o", "--output", "--exec", "--remote"),
    "format-patch": ("-o", "--output-directory"),
    "stash": ("branch",),
    "notes": ("edit",),
    "remote": ("add", "set-url"),
}
_GIT_WHOLE = frozenset(
    (
        *("config", "difftool", "mergetool", "filter-branch", "daemon", "instaweb", "web--browse", "p4", "svn"),
        *(
            "shell",
            "credential",
            "for-each-repo",
            "http-backend",
            "upload-pack",
            "receive-pack",
            "send-pack",
            "fetch-pack",
        ),
        *("fast-import", "update-server-info", "gui", "citool", "gitk", "cvsserver", "imap-send", "send-email", "help"),
        *("maintenance", "multi-pack-index", "sparse-checkout", "credential-store", "credential-cache", "fetch-pack"),
    )
)
_GIT_FLAGS: Words = ("--upload-pack", "--receive-pack", "--exec", "--output", "--template", "--config", "--ext-diff")
_GIT_FLAGS += ("--textconv", "--separate-git-dir", "--open-files-in-pager", "--trailer-command", "--reference")


def _git(words: Words) -> Words:
    """Before the subcommand every flag counts; after it those that run, load or write."""
    at, found = 1, []
    while at < len(words) and words[at].startswith("-"):
        if words[at] not in ("--no-pager", "--version", "-v", "--no-optional-locks", "--bare", "-P", "--help"):
            found.append(words[at])
        if words[at] in _GIT_VALUED and at + 1 < len(words):
            at += 1
            found.append(words[at])
        at += 1
    if at >= len(words):
        return tuple(found)
    command, rest = words[at], words[at + 1 :]
    if _MARKS.search(command) or command in _GIT_WHOLE or "-" in command[:1]:
        found += [command, *rest]
    runs = _GIT_RUNS.get(command, ())
    options = rest[: rest.index("--")] if "--" in rest else rest
    found += [word for word in options if _git_runs(word, runs)]
    if command in ("fetch", "clone", "ls-remote", "pull", "push"):
        found += [word for word in rest if "::" in word or (command == "clone" and re.match(r"-[a-z]*[uc]", word))]
    return tuple(found)


def _git_runs(word: str, runs: Words) -> bool:
    if word in runs or word.startswith("\x00") or "\x01" in word:
        return True
    if word.startswith("--"):
        name = word.partition("=")[0]
        return _begins(name, _GIT_FLAGS) or _begins(name, runs)
    return word.startswith("-") and any(len(each) == 2 and each[0] == "-" and each[1] in word for each in runs)


_SED = r"(?:(?:\d+|\$|/(?:[^/\\\n]|\\.)*/)(?:,(?:\d+|\$|\+\d+|/(?:[^/\\\n]|\\.)*/))?)?!?"
_SED += r"(?:[pdq=]|s(?:/(?:[^/\\\n]|\\.)*/(?:[^/\\\n]|\\.)*/|\|(?:[^|\\\n]|\\.)*\|(?:[^|\\\n]|\\.)*\|"
_SED += r"|#(?:[^#\\\n]|\\.)*#(?:[^#\\\n]|\\.)*#|,(?:[^,\\\n]|\\.)*,(?:[^,\\\n]|\\.)*,)[gpI0-9]*)"
_SAFE_SED = re.compile(rf"\s*{_SED}(?:\s*;\s*{_SED})*\s*")
_UNSAFE_AWK = re.compile(r"system|[|>@<\x00\x01]|getline|extension|ENVIRON|close|fflush|load")


def _sed(words: Words) -> Words:
    scripts = _scripts(words, ("-e", "--expression"))
    return tuple(script for script in scripts if not _SAFE_SED.fullmatch(script))


def _awk(words: Words) -> Words:
    return tuple(script for script in _scripts(words, ("-e", "--source"), "vF") if _UNSAFE_AWK.search(script))


def _scripts(words: Words, flags: Words, valued: str = "l") -> list[str]:
    """The texts that a program takes as code: after a flag, else its first argument. A word that may be one counts."""
    found, given, at = list[str](), False, 1
    while at < len(words):
        word = words[at]
        if word in flags or (word[:1] == "-" != word[1:2] and word[-1:] == flags[0][1]):
            found += words[at + 1 : at + 2]
            given, at = True, at + 2
        elif word.startswith("-") and word != "-":
            if word[:2] == flags[0] or word.partition("=")[0] == flags[1]:
                found.append(word)
                given = True
            at += 2 if len(word) == 2 and word[1] in valued else 1
        elif not given:
            found.append(word)
            given, at = True, at + 1
        else:
            at += 1
    return found


def _tar(words: Words) -> Words:
    """The old way to write flags has no dash."""
    first = words[1] if len(words) > 1 else ""
    return (first,) if first and first[0] != "-" and set(first) & set("IF") else ()


def _assigns(words: Words) -> Words:
    return tuple(word for word in words[1:] if re.match(r"-?-?[\w.-]+[:+?!]*=", word))


def _writes(words: Words) -> Words:
    """What is written, where that could be anywhere or matters."""
    return tuple(
        word
        for word in _operands(words)
        if _MARKS.search(word)
        or protected(posixpath.normpath(word))
        or (word[:1] in "/~" and word != "/dev/null")
        or ".." in word.split("/")
    )


def _guards(words: Words) -> Words:
    """Words that name what decides about what runs, also as the value of a flag."""
    return tuple(word for word in words[1:] if any(protected(posixpath.normpath(each)) for each in _paths(word)))


def _paths(word: str) -> Words:
    return (word, word.partition("=")[2], word[2:]) if word.startswith("-") else (word,)


def _standard_input(words: Words) -> Words:
    """An interpreter that is told no file takes its program from its input."""
    told = [word for word in words[1:] if not word.startswith("-")]
    asks = {"--version", "-V", "-v", "--help", "-h"}.intersection(words)
    return () if told or asks else (NOWHERE,)


def _subscripts(words: Words) -> Words:
    """Names of variables may hold a subscript, and a subscript may run a program. Some names decide what runs."""
    return tuple(word for word in words[1:] if "[" in word or _MARKS.search(word) or re.search(r"[A-Z]", word))


def _tests(words: Words) -> Words:
    """`test -v NAME` looks into NAME. A test of which nobody knows the operator may be that one."""
    said = words[2:] if words[1:2] == ("!",) else words[1:]
    if not any(map(_MARKS.search, said)):
        return tuple(said) if {"-v", "-R"}.intersection(said) else ()
    unary = len(said) == 2 and re.fullmatch(r"-[a-zA-QS-Zbcdefghknprstuwxz]", said[0]) and said[0] != "-v"
    binary = len(said) == 3 and re.fullmatch(r"==?|!=|-(?:eq|ne|lt|le|gt|ge|nt|ot|ef)", said[1])
    return () if (unary or binary) and not any("\x01" in word for word in said) else tuple(said)


def _everything(words: Words) -> Words:
    return tuple(words[1:])


def _dd(words: Words) -> Words:
    return tuple(word for word in words[1:] if _MARKS.search(word) or word.startswith("of="))


def _openssl(words: Words) -> Words:
    return tuple(word for word in words[1:] if word.lstrip("-") in ("engine", "provider", "out", "config", "writerand"))


_PACKAGES: Words = (
    "run",
    "exec",
    "x",
    "dlx",
    "explore",
    "run-script",
    "start",
    "restart",
    "stop",
    "init",
    "create",
    "config",
)
_PACKAGES += ("set", "install", "i", "add", "ci", "update", "upgrade", "link", "rebuild", "publish", "edit", "tool")
_GUARD = Row(more=_guards)
_NAMES = Row(more=_subscripts)
_EDITOR = Row(short="csSuWiw", long=("--cmd", "--servername"), words=("+*",), more=_guards)
_WHOLE = Row(more=_everything)
_SHELL = Row(long=("--rcfile", "--init-file"), loose="ilsO", words=("+*",), ends=False)
_AWK = Row(short="fiElo", long=("--file", "--include", "--exec", "--load", "--dump-variables"), more=_awk)
_AWK_TOO = Row(short="fiElo", long=(*_AWK.long, "--profile", "--pretty-print", "--debug"), more=_awk)
_PAGER = Row(short="koOP", long=("--lesskey", "--log-file", "--lesskey-src"), words=("+*",))
_SSH_LONG = ("--rsh", "--rsync-path", "--config", "--temp-dir", "--backup-dir", "--partial-dir", "--log-file")
_COMPILER = Row(short="Bw", words=("-wrapper", "-fplugin*", "-specs*", "--specs*", "@*", "-Xlinker", "-Wl*"))
_ARCHIVER = Row(short="IF", long=("--to-command", "--checkpoint-action", "--use-compress-program", "--info-script",
                                  "--new-volume-script", "--rsh-command", "--rmt-command"),
                loose="PC", loose_long=("--absolute-names", "--directory", "--checkpoint"), more=_tar)  # fmt: skip
_ROWS: Mapping[str, Row] = {
    "git": Row(more=_git),
    "tar": _ARCHIVER, "bsdtar": _ARCHIVER, "gtar": _ARCHIVER,
    "cpio": Row(short="HGFIO", long=("--rsh-command", "--rmt-command", "--file"), loose="i"),
    "find": Row(words=("-delete", "-fprint*", "-fls", "-files0-from"), ends=False),
    "fd": Row(short="xX", long=("--exec", "--exec-batch")), "fdfind": Row(short="xX", long=("--exec", "--exec-batch")),
    "rg": Row(long=("--pre", "--pre-glob", "--hostname-bin"), loose="z", loose_long=("--search-zip",)),
    "ag": Row(long=("--pager",)), "ack": Row(long=("--pager", "--ackrc")),
    "rsync": Row(short="eMT", long=_SSH_LONG, more=_guards),
    "ssh": Row(short="oFEIJLRDwWS", long=()), "scp": Row(short="oFSiJD"), "sftp": Row(short="oFSbiJD"),
    "sort": Row(short="oT", long=("--compress-program", "--output", "--temporary-directory"), loose=""),
    "uniq": Row(more=lambda words: tuple(_operands(words)[1:])),
    "shuf": Row(short="o", long=("--output", "--random-source")),
    "split": Row(long=("--filter",), more=_guards), "csplit": _GUARD,
    "awk": _AWK, "gawk": _AWK_TOO, "mawk": _AWK, "nawk": _AWK,
    "sed": Row(short="f", long=("--file",), loose="is", loose_long=("--in-place",), more=_sed),
    "gsed": Row(short="f", long=("--file",), loose="is", loose_long=("--in-place",), more=_sed),
    "less": _PAGER, "more": _PAGER, "most": _PAGER, "bat": Row(long=("--pager", "--config-file", "--diff"), loose="m"),
    "man": Row(short="PHXCBMT", long=("--pager", "--html", "--browser", "--config-file", "--preprocessor")),
    "vim": _EDITOR, "vi": _EDITOR, "nvim": _EDITOR, "view": _EDITOR, "ex": _WHOLE, "ed": _WHOLE, "emacs": _WHOLE,
    "nano": Row(short="sCfo", long=("--speller", "--rcfile", "--backupdir", "--operatingdir"), more=_guards),
    "python": Row(short="cm", words=("-",), more=_standard_input), "pypy": Row(short="cm", words=("-",)),
    "node": Row(short="eprC", long=("--eval", "--print", "--require", "--import", "--loader", "--experimental-loader",
                                    "--inspect", "--env-file", "--run"), words=("-",), more=_standard_input),
    "perl": Row(short="eEMmIixdS", words=("-",), more=_standard_input),
    "ruby": Row(short="erIiSxC", words=("-",), more=_standard_input),
    "php": Row(short="rBREdzfSc", words=("-", "--*"), more=_standard_input),
    "lua": Row(short="el", words=("-",), more=_standard_input), "Rscript": Row(short="e", words=("-",)),
    "deno": Row(first=True, loose="A", loose_long=("--allow-all", "--allow-run")), "bun": Row(first=True),
    "tclsh": Row(more=_standard_input), "osascript": _WHOLE, "expect": _WHOLE, "gdb": _WHOLE, "lldb": _WHOLE,
    "sh": _SHELL, "bash": _SHELL, "dash": _SHELL, "zsh": _SHELL, "ksh": _SHELL, "fish": _WHOLE, "csh": _WHOLE,
    "tcsh": _WHOLE, "rbash": _SHELL, "ash": _SHELL, "mksh": _SHELL, "pwsh": _WHOLE,
    "make": Row(short="fCIEW", long=("--file", "--makefile", "--directory", "--eval", "--include-dir"), more=_assigns),
    "gmake": Row(short="fCIEW", long=("--file", "--makefile", "--directory", "--eval"), more=_assigns),
    "cmake": Row(short="EPDC", long=("--build", "--install"), more=_assigns), "ninja": Row(short="fCt"),
    "just": Row(short="fd", long=("--justfile", "--working-directory", "--shell", "--command"), more=_assigns),
    "npm": Row(words=_PACKAGES, loose_long=("--prefix", "--script-shell", "--userconfig", "--node-options")),
    "pnpm": Row(words=_PACKAGES), "yarn": Row(words=_PACKAGES), "npx": Row(first=True, short="c", long=("--call",)),
    "pip": Row(words=_PACKAGES, loose="iefrtc", loose_long=("--index-url", "--extra-index-url", "--find-links",
               "--target", "--editable", "--requirement", "--python", "--prefix", "--root", "--config-settings")),
    "uv": Row(words=(*_PACKAGES, "pip")), "uvx": Row(first=True), "pipx": Row(words=_PACKAGES),
    "poetry": Row(words=_PACKAGES), "pipenv": Row(words=_PACKAGES), "conda": Row(words=_PACKAGES),
    "cargo": Row(words=(*_PACKAGES, "+*"), long=("--config", "--manifest-path", "--target-dir")),
    "go": Row(words=("run", "generate", "install", "get", "tool", "env", "-exec*", "-toolexec*", "-overlay*",
                     "-modfile*", "-ldflags*", "-o")),
    "gem": Row(words=(*_PACKAGES, "build")), "bundle": Row(words=_PACKAGES), "composer": Row(words=_PACKAGES),
    "mvn": Row(words=("exec:*",), more=_assigns), "gradle": Row(short="Ib", long=("--init-script",), more=_assigns),
    "docker": Row(first=True, loose="vHc", loose_long=("--volume", "--mount", "--privileged", "--host", "--config")),
    "podman": Row(first=True, loose="v", loose_long=("--volume", "--mount", "--privileged")),
    "kubectl": Row(first=True), "helm": Row(first=True), "systemctl": Row(first=True), "crontab": _WHOLE,
    "at": _WHOLE, "batch": _WHOLE, "systemd-run": _WHOLE, "dbus-send": _WHOLE, "gh": Row(words=("alias", "extension",
        "api", "codespace", "auth", "config", "secret"), loose_long=("--web",)),
    "zip": Row(short="T", words=("-TT", "--unzip-command*"), long=("--unzip-command", "--test")),
    "unzip": Row(loose="d"), "7z": Row(words=("-o*",)),
    "curl": Row(short="KoOcDTFd", long=("--config", "--output", "--output-dir", "--remote-name", "--cookie-jar",
        "--dump-header", "--upload-file", "--form", "--trace", "--trace-ascii", "--stderr", "--engine", "--libcurl",
        "--data", "--data-binary", "--data-raw", "--data-urlencode", "--remote-name-all", "--etag-save", "--hsts",
        "--alt-svc", "--unix-socket", "--json"), loose="", words=("@*",)),
    "wget": Row(short="OPoaieY", long=("--use-askpass", "--output-document", "--output-file", "--append-output",
        "--execute", "--config", "--input-file", "--directory-prefix", "--post-file", "--body-file", "--save-cookies",
        "--warc-file", "--rejected-log")),
    "aria2c": _WHOLE, "nc": _WHOLE, "ncat": _WHOLE, "netcat": _WHOLE, "socat": _WHOLE, "telnet": _WHOLE,
    "openssl": Row(more=_openssl, ends=False), "gpg": Row(short="o", long=("--output", "--exec-path", "--options",
        "--agent-program", "--dirmngr-program", "--photo-viewer", "--keyserver-options")),
    "tcpdump": Row(short="zwFr"), "tshark": Row(short="wXC"), "nmap": Row(long=("--script", "--datadir"), short="oi"),
    "date": Row(short="sf", long=("--set", "--file")), "file": Row(short="mC", long=("--magic-file", "--compile")),
    "gcc": _COMPILER, "cc": _COMPILER, "g++": _COMPILER, "clang": _COMPILER, "clang++": _COMPILER, "c++": _COMPILER,
    "ld": Row(words=("-plugin*", "--plugin*", "@*", "-T*")), "as": _GUARD, "m4": _WHOLE, "cpp": _COMPILER,
    "tex": _WHOLE, "latex": _WHOLE, "pdflatex": Row(words=("-shell-escape", "--shell-escape", "-enable-write18",
        "--enable-write18"), short="e", more=_guards),
    "tee": Row(more=_writes), "dd": Row(more=_dd), "truncate": Row(more=_writes), "install": Row(more=_guards),
    "cp": Row(more=_guards), "mv": Row(more=_guards), "ln": Row(more=_guards), "rm": Row(more=_guards),
    "touch": _GUARD, "mkdir": _GUARD, "chmod": _GUARD, "chown": _GUARD, "patch": Row(short="odr", more=_guards,
        long=("--output", "--directory", "--reject-file", "--get")),
    "xargs": Row(short="a", long=("--arg-file",), ends=False),
    "env": Row(short="SC", long=("--split-string", "--chdir")),
    "time": Row(short="o", long=("--output",)), "strace": Row(short="oO", long=("--output",)),
    "script": Row(more=_writes), "logrotate": _WHOLE, "mail": _WHOLE, "mutt": _WHOLE, "sendmail": _WHOLE,
    "mysql": Row(short="e", long=("--execute", "--pager", "--tee", "--init-command"), words=("system",)),
    "psql": Row(short="cfovL", long=("--command", "--file", "--output", "--set", "--variable", "--log-file")),
    "sqlite3": _WHOLE, "redis-cli": _WHOLE, "jq": Row(loose="fL", loose_long=("--from-file",)), "yq": Row(short="i"),
    "tmux": _WHOLE, "screen": _WHOLE, "ip": Row(words=("netns", "exec", "-b*", "-batch")), "mount": _WHOLE,
    "pytest": Row(short="pcoW", long=("--rootdir", "--confcutdir", "--basetemp", "--junitxml", "--override-ini")),
    "tox": Row(short="cx"), "ansible": _WHOLE, "ansible-playbook": _WHOLE, "terraform": Row(first=True),
    "ctags": Row(long=("--options", "--langdef"), short="f"), "ghostscript": _WHOLE, "gs": _WHOLE, "convert": _WHOLE,
    "ffmpeg": _GUARD, "diff": Row(long=("--output",)),
    "ld.so": _WHOLE, "ld-linux-x86-64.so.2": _WHOLE, "ld-linux.so.2": _WHOLE, "setarch": _WHOLE, "capsh": _WHOLE,
    "read": _NAMES, "unset": _NAMES, "mapfile": Row(short="C", more=_subscripts), "let": _WHOLE, "getopts": _NAMES,
    "readarray": Row(short="C", more=_subscripts), "declare": Row(loose="nifF", more=_subscripts),
    "typeset": Row(loose="nifF", more=_subscripts), "local": Row(loose="nif", more=_subscripts),
    "readonly": Row(loose="f", more=_subscripts), "export": Row(loose="fn"), "wait": Row(short="p"),
    "printf": Row(short="v"), "test": Row(more=_tests, ends=False), "[": Row(more=_tests, ends=False),
    "set": _WHOLE, "ulimit": _WHOLE, "umask": _WHOLE, "exec": Row(loose="a"),
}  # fmt: skip
