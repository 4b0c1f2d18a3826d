"""Package managers and build tools: all they are there for is to run what a project or a stranger says.

A star after such a program covers only the few subcommands that look; every other is written out in the rule, since
these programs take abbreviations, misspellings and names of scripts for subcommands. So do flags that are not known
to be harmless, with one dash or two. Adding one: a row in `KEEPERS`.
"""

from collections.abc import Mapping

from msgspec import Struct

from duragent.core.flags import Words, unclear


class Keeper(Struct, frozen=True):
    """`calm` are the subcommands that run nothing, `flags` those that change nothing about what runs."""

    calm: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()  # flags whose value is the next word
    every: bool = False  # each of its arguments is a subcommand


_COMMON = frozenset(("json", "long", "all", "quiet", "q", "silent", "verbose", "v", "vv", "help", "h", "version", "V"))
_COMMON |= {"no-color", "offline", "dry-run", "no-progress", "no-audit", "no-fund"}
_NODE_FLAGS = _COMMON | {
    "depth",
    "global",
    "g",
    "parseable",
    "prod",
    "production",
    "dev",
    "omit",
    "include",
    "s",
    "a",
    "l",
}
_NODE_VALUED = frozenset(("depth", "omit", "include"))
_NPM = Keeper(
    frozenset(("ls", "list", "ll", "la", "view", "info", "show", "outdated", "root", "why", "explain", "ping")),
    _NODE_FLAGS,
    _NODE_VALUED,
)
_PNPM = Keeper(frozenset(("ls", "list", "ll", "la", "outdated", "root", "why")), _NODE_FLAGS, _NODE_VALUED)
_YARN = Keeper(frozenset(("info", "why")), _NODE_FLAGS, _NODE_VALUED)  # whatever it does not know is a script to it
_PYTHON = Keeper(
    frozenset(("list", "show", "freeze", "check", "tree")),
    _COMMON | {"outdated", "local", "user", "format", "not-required", "upgrade", "U", "no-deps", "exclude"},
    frozenset(("format", "exclude")),
)
_CARGO = Keeper(
    frozenset(("tree", "version", "search", "pkgid", "locate-project", "help", "info")),
    _COMMON.union(
        ("release", "r", "lib", "bins", "tests", "examples", "benches", "all-targets", "all-features", "features"),
        ("no-default-features", "package", "p", "workspace", "locked", "frozen", "depth", "i", "invert", "e", "edges"),
        ("color", "test", "bin", "example", "bench", "j", "jobs", "no-run", "no-fail-fast", "doc", "check", "exclude"),
    ),
    frozenset(("package", "p", "features", "depth", "color", "test", "bin", "example", "bench", "j", "jobs", "exclude"))
    | {"e", "edges", "i", "invert"},
)
_GO = Keeper(
    frozenset(("version", "list", "doc", "help", "env")),
    frozenset(("v", "run", "count", "race", "cover", "short", "bench", "benchmem", "timeout", "failfast", "json", "m"))
    | {"tags", "parallel", "p", "cpu", "skip", "x", "n", "a", "all", "src", "cmd", "f", "e", "deps"},
    frozenset(("run", "count", "bench", "timeout", "tags", "parallel", "p", "cpu", "skip", "f")),
)
_GEM = Keeper(frozenset(("list", "search", "which", "contents", "dependency", "info", "outdated")), _COMMON)
_COMPOSER = Keeper(frozenset(("show", "info", "outdated", "licenses", "validate", "why", "about", "depends")), _COMMON)
_SYSTEM = Keeper(
    frozenset(("list", "search", "show", "info", "version", "help")), frozenset(("installed", "upgradable"))
)
_TARGETS = Keeper(flags=_COMMON | {"stacktrace", "B"}, every=True)
_ANY = Keeper(flags=_COMMON)
KEEPERS: Mapping[str, Keeper] = {
    **{"npm": _NPM, "pnpm": _PNPM, "yarn": _YARN, "cargo": _CARGO, "go": _GO, "gem": _GEM, "composer": _COMPOSER},
    **dict.fromkeys(("pip", "pipx", "uv", "poetry", "conda", "mamba"), _PYTHON),
    **dict.fromkeys(("brew", "apt", "apt-get", "dnf", "yum", "apk", "snap", "asdf"), _SYSTEM),
    **dict.fromkeys(("mvn", "mvnw", "gradle", "gradlew", "ant", "rake", "sbt", "lein", "bazel", "scons"), _TARGETS),
    **dict.fromkeys(("bun", "cnpm", "corepack", "lerna", "nx", "turbo", "rush", "pipenv", "pdm", "rye", "hatch"), _ANY),
    **dict.fromkeys(
        ("bundle", "bundler", "mix", "rebar3", "stack", "cabal", "dotnet", "swift", "flutter", "dart"), _ANY
    ),
    **dict.fromkeys(
        ("invoke", "nox", "pacman", "nix", "guix", "mise", "pyenv", "rbenv", "nvm", "volta", "rustup"), _ANY
    ),
    "docker-compose": _ANY,
}


def risky(keeper: Keeper, words: Words) -> Words:
    """The words that a rule must write out."""
    found, command, at, every = list[str](), "", 1, keeper.every
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            break
        if word[:1] != "-" or word in keeper.calm:
            if (not command or every or unclear(word)) and word not in keeper.calm:
                found.append(word)
            command = command or ("" if word[:1] == "+" else word)
            continue
        name, equals, _ = word.lstrip("-").partition("=")
        known, valued = name in keeper.flags and not unclear(word), name in keeper.valued and not equals
        if not known or (valued and not command):
            found.append(word)
            every = every or not command  # which word is the subcommand depends on it
        if valued and command:
            at += 1
        elif not known and not equals and command and words[at : at + 1] and words[at][:1] != "-":
            found.append(words[at])
    asks = {"version", "help", "V", "h"}
    return tuple(found) if command or all(each.lstrip("-") in asks for each in words[1:]) else tuple(words[1:])
