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


_COMMON = frozenset(("json", "long", "l", "all", "a", "quiet", "q", "silent", "s", "verbose", "v", "vv", "help", "h"))
_COMMON |= {"version", "V", "no-color", "offline", "dry-run", "n", "no-progress", "no-audit", "no-fund"}
_NODE = Keeper(
    frozenset(("ls", "list", "ll", "la", "view", "info", "show", "outdated", "root", "bin", "why", "explain", "ping")),
    _COMMON | {"depth", "global", "g", "parseable", "p", "prod", "production", "dev", "omit", "include"},
    frozenset(("depth", "omit", "include")),
)
_PYTHON = Keeper(
    frozenset(("list", "show", "freeze", "check", "--version", "tree")),
    _COMMON | {"outdated", "o", "local", "user", "format", "not-required", "f", "upgrade", "U", "no-deps", "exclude"},
    frozenset(("format", "exclude")),
)
_RUST = Keeper(
    frozenset(("tree", "version", "search", "pkgid", "locate-project", "help", "info")),
    _COMMON | {"release", "r", "lib", "bins", "tests", "examples", "benches", "all-targets", "all-features", "features"}
    | {"no-default-features", "package", "p", "workspace", "locked", "frozen", "depth", "i", "invert", "e", "edges"}
    | {"color", "test", "bin", "example", "bench", "j", "jobs", "no-run", "no-fail-fast", "doc", "check", "exclude"},
    frozenset(("package", "p", "features", "depth", "color", "test", "bin", "example", "bench", "j", "jobs"))
    | {"exclude", "e", "edges", "i", "invert"},
)  # fmt: skip
_GO = Keeper(
    frozenset(("version", "list", "doc", "help", "env")),
    frozenset(("v", "run", "count", "race", "cover", "short", "bench", "benchmem", "timeout", "failfast", "json", "m"))
    | {"tags", "parallel", "p", "cpu", "skip", "x", "n", "a", "all", "short", "src", "cmd", "f", "e", "deps"},
    frozenset(("run", "count", "bench", "timeout", "tags", "parallel", "p", "cpu", "skip", "f")),
)
_RUBY = Keeper(frozenset(("list", "search", "which", "contents", "dependency", "info", "outdated", "show")), _COMMON)
_PHP = Keeper(frozenset(("show", "info", "outdated", "licenses", "validate", "why", "about", "depends")), _COMMON)
_BUILD = Keeper(frozenset(("--version", "help")), _COMMON | {"stacktrace", "o", "B", "e", "X", "U"}, every=True)
_OTHER = Keeper(frozenset(("version", "help", "list")), frozenset(("help", "h", "version", "V")))
KEEPERS: Mapping[str, Keeper] = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun", "cnpm", "corepack", "lerna", "nx", "turbo", "rush"), _NODE),
    **dict.fromkeys(("pip", "pipx", "uv", "poetry", "pipenv", "conda", "mamba", "pdm", "rye", "hatch"), _PYTHON),
    **dict.fromkeys(("mvn", "gradle", "gradlew", "mvnw", "ant", "rake", "sbt", "lein", "bazel", "scons"), _BUILD),
    **dict.fromkeys(("gem", "bundle", "bundler"), _RUBY),
    **dict.fromkeys(("mix", "rebar3", "stack", "cabal", "dotnet", "swift", "flutter", "dart", "invoke", "nox"), _OTHER),
    **dict.fromkeys(("brew", "apt", "apt-get", "dnf", "yum", "apk", "pacman", "snap", "nix", "guix", "asdf"), _OTHER),
    **dict.fromkeys(("mise", "pyenv", "rbenv", "nvm", "volta", "rustup", "docker-compose"), _OTHER),
    "cargo": _RUST,
    "go": _GO,
    "composer": _PHP,
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
