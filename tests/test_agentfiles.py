"""Agents on disk: whatever lies there gives a Problem with a place and a hint, never a traceback."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from duragent.agent import DiscoveredTool
from duragent.agentfiles import agent_hash, examine, find, load
from duragent.errors import InvalidAgent, NotFound
from tests.build import HEAD, MANIFEST, SKILL, agent_at, look, only, said, write_tree

AGENTSPEC = "apiVersion: agent/v1\nname: x\n"


# --- manifests that cannot be read -----------------------------------------------------------------------

BROKEN: list[tuple[str, bytes, tuple[int, int], str]] = [
    ("not UTF-8", HEAD.encode() + b"# caf\xe9\n", (5, 6), "agent.yaml is not UTF-8 text (byte 0xe9)"),
    ("Latin-1 after a wide letter", "é ".encode() + b"\xe9", (1, 4), "agent.yaml is not UTF-8 text (byte 0xe9)"),
    ("UTF-16", MANIFEST.encode("utf-16"), (1, 1), "agent.yaml is not UTF-8 text (it looks like UTF-16)"),
    ("cut in the middle of a letter", MANIFEST.encode() + b"\xc3", (7, 1), "agent.yaml is not UTF-8 text (byte 0xc3)"),
    ("NUL", HEAD.encode() + b"ab\x00\n", (5, 3), "agent.yaml holds a NUL character"),
    ("empty", b"", (1, 1), "agent.yaml is empty"),
    ("only space", b" \n\n", (1, 1), "agent.yaml is empty"),
    ("a tab for indentation", f"{HEAD}spec:\n\tmodel: 1\n".encode(), (6, 1), "indented with a tab"),
    ("two documents", f"{MANIFEST}---\na: 1\n".encode(), (7, 1), "a second document begins here"),
    ("duplicate key", f"{MANIFEST}kind: Agent\n".encode(), (7, 1), "the key 'kind' stands here twice"),
    ("unknown tag", f"{HEAD}spec: !!python/object:os.system x\n".encode(), (5, 7), "the tag !!python/object:os.system is not known"),
    ("an alias to nothing", f"{HEAD}spec: *x\n".encode(), (5, 7), "*x refers to nothing"),
    ("an alias to itself", f"{HEAD}spec: &x [*x]\n".encode(), (5, 11), "*x contains itself"),
    ("1,000 deep", f"{HEAD}spec: {'[' * 1000}{']' * 1000}\n".encode(), (5, 206), "is nested deeper than 200 levels"),
    ("100,000 deep", f"{HEAD}spec: {'[' * 100_000}\n".encode(), (5, 206), "is nested deeper than 200 levels"),
    ("10 MB", MANIFEST.encode() + b"#" * (10 << 20), (1, 1), "agent.yaml is too large (10,485,874 bytes; at most 1,048,576)"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "place", "text"), [pytest.param(*case[1:], id=case[0]) for case in BROKEN])
def test_a_broken_manifest_is_an_error_with_a_place_and_a_hint(
    tmp_path: Path, content: bytes, place: tuple[int, int], text: str
) -> None:
    problem = only(look(write_tree(tmp_path, {"agent.yaml": content})))
    assert (problem.level, problem.file) == ("error", str(tmp_path / "agent.yaml"))
    assert ((problem.line, problem.column), problem.text) == (place, text)
    assert problem.hint


def test_an_alias_bomb_is_refused(tmp_path: Path) -> None:
    bomb = "x-0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    bomb += "".join(f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    problem = only(look(write_tree(tmp_path, {"agent.yaml": MANIFEST + bomb})))
    assert (problem.level, problem.text) == ("error", "its aliases expand to more than 20,000 values")
    assert (problem.line, bool(problem.hint)) == (11, True)


@pytest.mark.parametrize(
    ("content", "place", "text"),
    [
        (b"\xef\xbb\xbf" + MANIFEST.encode(), (1, 1), "begins with a byte order mark"),
        (MANIFEST.replace("\n", "\r\n").encode(), (1, 30), "has Windows line ends"),
        (
            MANIFEST.replace("spec:\n  model:", "spec:\n  model:\t").encode(),
            (6, 9),
            "a tab stands where a space belongs",
        ),
    ],
)
def test_an_oddly_saved_manifest_is_read_with_a_warning(
    tmp_path: Path, content: bytes, place: tuple[int, int], text: str
) -> None:
    found = look(write_tree(tmp_path, {"agent.yaml": content}))
    assert said(found, tmp_path) == [("warning", "agent.yaml", *place, text)]
    assert only(found).hint
    assert found.agent is not None
    assert found.agent.name == "helper"


# --- manifests that are no files -------------------------------------------------------------------------


def as_fifo(path: Path) -> None:
    os.mkfifo(path)


def as_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def as_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's path may have only 108 bytes
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


def as_loop(path: Path) -> None:
    path.symlink_to(path.name)


def as_dangling(path: Path) -> None:
    path.symlink_to("gone.yaml")


def as_link_out(path: Path) -> None:
    outside = path.parent.parent / "outside.yaml"
    outside.write_text(MANIFEST)
    path.symlink_to(outside)


SPECIAL: list[tuple[Callable[[Path], None], str]] = [
    (as_fifo, "agent.yaml is not a regular file (a FIFO)"),
    (as_device, "agent.yaml leads out of the agent's folder"),
    (as_socket, "agent.yaml is not a regular file"),
    (as_loop, "agent.yaml leads out of the agent's folder (its links lead in a circle or changed)"),
    (as_dangling, "agent.yaml is not there"),
    (as_link_out, "agent.yaml leads out of the agent's folder"),
]


@pytest.mark.parametrize(("make", "text"), SPECIAL)
@pytest.mark.parametrize("pointed_at", ["agent", "agent/agent.yaml"])
def test_a_manifest_that_is_no_plain_file_is_an_error(
    tmp_path: Path, make: Callable[[Path], None], text: str, pointed_at: str
) -> None:
    folder = tmp_path / "agent"
    folder.mkdir()
    make(folder / "agent.yaml")
    problem = only(look(tmp_path / pointed_at))
    assert (problem.level, problem.file, problem.line, problem.column, problem.text) == (
        "error",
        str(folder / "agent.yaml"),
        1,
        1,
        text,
    )
    assert problem.hint


def test_a_device_that_is_pointed_at_is_not_read() -> None:
    found = look("/dev/zero")
    assert found.agent is None
    assert [(p.level, p.file) for p in found.problems] == [("error", "/dev/zero")]


@pytest.mark.parametrize("pointed_at", ["", "agent.yaml"])
def test_a_folder_that_is_called_like_a_manifest_is_no_agent(tmp_path: Path, pointed_at: str) -> None:
    write_tree(tmp_path, {"agent.yaml/x.txt": "x"})
    problem = only(look(tmp_path / pointed_at))
    assert (problem.level, problem.text) == ("error", "no agent is here")


@pytest.mark.parametrize("files", [{}, {"README.md": "x"}, {".hidden": "x"}])
def test_a_folder_without_an_agent_says_what_an_agent_is(tmp_path: Path, files: dict[str, str]) -> None:
    problem = only(look(write_tree(tmp_path, files)))
    assert (problem.level, problem.file, problem.line, problem.column, problem.text) == (
        "error",
        str(tmp_path),
        1,
        1,
        "no agent is here",
    )
    assert problem.hint.startswith("an agent is agent.yaml with `apiVersion: duragent/v1alpha1`")


def test_nothing_at_all_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is nothing here"):
        examine(tmp_path / "gone")


def test_load_raises_what_examine_lists(tmp_path: Path) -> None:
    write_tree(tmp_path, {"agent.yaml": ""})
    with pytest.raises(InvalidAgent) as caught:
        load(tmp_path)
    assert caught.value.problems == look(tmp_path).problems


# --- which format it is ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "format"),
    [
        ({"agent.yaml": MANIFEST}, "duragent"),
        ({"agent.yml": MANIFEST}, "duragent"),
        ({"agent.yaml": AGENTSPEC}, "agentspec"),
        ({"agent.yaml": "name: x\n"}, "agentspec"),
        ({"x.agent": "name: x\n"}, "agentspec"),
        ({"agent.yaml": MANIFEST, "AGENTS.md": "x"}, "duragent"),
        ({"instructions.md": "Do it.\n", "agent.acl": ""}, "agentdir"),
    ],
)
def test_the_format_is_recognised(tmp_path: Path, files: dict[str, str], format: str) -> None:
    found = look(write_tree(tmp_path, files))
    assert (found.format, found.agent is not None) == (format, True)
    assert found.why


@pytest.mark.parametrize(
    ("files", "candidates"),
    [
        (
            {"agent.yaml": MANIFEST, "agent.acl": ""},
            "duragent (apiVersion duragent/… in agent.yaml); agentdir (agent.acl in the folder)",
        ),
    ],
)
def test_an_agent_that_could_be_two_things_names_the_candidates(
    tmp_path: Path, files: dict[str, str], candidates: str
) -> None:
    problem = only(look(write_tree(tmp_path, files)))
    assert problem.text == f"this could be more than one format: {candidates}"
    assert (problem.line, problem.column, problem.hint) == (1, 1, "point at the file you mean, or remove the other")


def test_two_manifests_in_one_folder_are_both_named(tmp_path: Path) -> None:
    problem = only(look(write_tree(tmp_path, {"agent.yaml": MANIFEST, "agent.yml": AGENTSPEC})))
    assert problem.text == "this folder holds two manifests: agent.yaml (duragent) and agent.yml (agentspec)"
    assert problem.hint == "point at the file you mean, or remove the other"


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ('{"apiVersion": "duragent/v1alpha1", "kind": "Agent", "metadata": {"name": "a"}, "spec": {}}', "duragent"),
        ('{\n  "apiVersion": "agent/v1",\n  "name": "a"\n}', "agentspec"),
        ("{apiVersion: agent/v1, name: a}", "agentspec"),
        ("? apiVersion\n: duragent/v1alpha1\n? kind\n: Agent\n? metadata\n: {name: a}\n? spec\n: {}\n", "duragent"),
        ("# about\n---\nname: a\n", "agentspec"),
    ],
)
def test_the_api_version_decides_however_the_yaml_is_written(tmp_path: Path, text: str, format: str) -> None:
    assert look(write_tree(tmp_path, {"agent.yaml": text})).format == format


@pytest.mark.parametrize("link", ["skills/s/ref", "tools/x/README.md", "tools/x/lib"])
def test_a_file_that_links_out_is_refused_and_never_copied(tmp_path: Path, link: str) -> None:
    skill = "---\nname: s\ndescription: d\n---\nx\n"
    agent = write_tree(
        tmp_path / "agent", {"agent.yaml": MANIFEST, "skills/s/SKILL.md": skill, "tools/x/run": "#!/bin/sh\n"}
    )
    (agent / "tools/x/run").chmod(0o755)
    (tmp_path / "secret").write_text("s3cret")
    (agent / link).symlink_to(tmp_path / "secret")
    found = look(agent)
    assert [(each.level, each.text) for each in found.problems] == [
        ("error", f"{link} leads out of the agent's folder")
    ]


@pytest.mark.parametrize("name", ["policy.yml", "Policy.yaml", "policy.yaml/x"])
def test_a_policy_that_would_not_be_read_is_an_error(tmp_path: Path, name: str) -> None:
    found = look(write_tree(tmp_path, {"agent.yaml": MANIFEST, name: "mode: restrict\n"}))
    assert [each.level for each in found.problems] == ["error"]


def test_long_lists_take_no_time_that_a_person_would_notice(tmp_path: Path) -> None:
    # Sizes at which anything quadratic would take minutes; the bound is on the work, not on the clock.
    many = ", ".join(f"a{n}" for n in range(9_000))
    files = {"p.agent": f"name: p\nskills: [{many}]\n", "c.agent": f"name: c\nbase: p.agent\nskills: [{many}]\n"}
    assert len(agent_at(write_tree(tmp_path, files) / "c.agent").abstract_skills) == 9_000
    commands = "".join(f"  - {{name: c{n}, description: d, body: do}}\n" for n in range(2_500))
    write_tree(tmp_path, {"a_b.agent.md": f"---\ncommands:\n{commands}---\n# T\n\n## System\n\nx\n"})
    assert len(agent_at(tmp_path / "a_b.agent.md").commands) == 2_500


def test_pointing_at_the_file_settles_it(tmp_path: Path) -> None:
    write_tree(tmp_path, {"agent.yaml": MANIFEST, "agent.acl": ""})
    assert look(tmp_path / "agent.yaml").format == "duragent"


def test_an_unknown_version_of_a_known_format_is_an_error_at_the_version(tmp_path: Path) -> None:
    problem = only(look(write_tree(tmp_path, {"agent.yaml": MANIFEST.replace("v1alpha1", "v3")})))
    assert (problem.line, problem.column, problem.text) == (1, 13, "apiVersion 'duragent/v3' is not known")


def test_an_unknown_format_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    problem = only(look(write_tree(tmp_path, {"agent.yaml": "apiVersion: kagent/v1\nsettings: {}\n"})))
    assert problem.text == "agent.yaml is none of the formats duragent, agentspec, agentdir, agentmd, openagentspec"
    assert problem.hint


# --- links and paths that leave the folder ---------------------------------------------------------------

OUTSIDE = {
    "secret.md": "secret\n",
    "skills/notes/SKILL.md": SKILL,
    "tools/t/run.sh": "#!",
    "policy.yaml": "mode: dangerous\n",
}


def beside_a_secret(root: Path, lines: str = "") -> Path:
    write_tree(root / "outside", OUTSIDE)
    return write_tree(root / "agent", {"agent.yaml": MANIFEST + "".join(f"  {line}\n" for line in lines.splitlines())})


@pytest.mark.parametrize(
    "path",
    ["../outside/secret.md", "./x/../../outside/secret.md", "/etc/hostname", "..", "./link.md", "link/secret.md"],
)
@pytest.mark.parametrize("key", ["soul", "system_prompt", "instructions"])
def test_prose_outside_the_folder_is_refused(tmp_path: Path, key: str, path: str) -> None:
    agent = beside_a_secret(tmp_path, f"{key}: {path}")
    (agent / "link.md").symlink_to("../outside/secret.md")
    (agent / "link").symlink_to("../outside")
    problem = only(look(agent))
    assert (problem.level, problem.line, problem.path) == ("error", 7, f"spec.{key}")
    assert problem.text.endswith("leads out of the agent's folder")
    assert problem.hint == "move it into the folder; links and `..` must stay inside"


@pytest.mark.parametrize("name", ["skills", "tools", "policy.yaml", "policy.local.yaml"])
def test_what_lies_beside_the_manifest_may_not_be_a_link_out(tmp_path: Path, name: str) -> None:
    agent = beside_a_secret(tmp_path)
    (agent / name).symlink_to(f"../outside/{name.replace('.local', '')}")
    found = look(agent)
    text = f"{name} leads out of the agent's folder"
    assert said(found, agent) == [("error", name, 1, 1, text)]
    assert (found.agent, bool(only(found).hint)) == (None, True)


def test_a_skill_or_tool_that_is_a_link_out_is_never_read(tmp_path: Path) -> None:
    agent = beside_a_secret(tmp_path)
    (agent / "skills").mkdir()
    (agent / "skills/notes").symlink_to("../../outside/skills/notes")
    (agent / "tools").mkdir()
    (agent / "tools/t").symlink_to("../../outside/tools/t")
    found = look(agent)
    assert said(found, agent) == [
        ("error", "skills/notes", 1, 1, "leads out of the agent's folder; it is not read"),
        ("error", "tools/t", 1, 1, "leads out of the agent's folder; it is not read"),
    ]
    assert found.agent is None


def test_a_link_that_stays_inside_is_followed(tmp_path: Path) -> None:
    agent = write_tree(tmp_path, {"agent.yaml": f"{MANIFEST}  soul: ./SOUL.md\n", "prose/real.md": "I am.\n"})
    (agent / "SOUL.md").symlink_to("prose/real.md")
    assert [part.text for part in agent_at(agent).prompt] == ["I am."]


def test_the_agents_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    write_tree(tmp_path / "real", {"agent.yaml": f"{MANIFEST}  soul: ./S.md\n", "S.md": "I am.\n"})
    (tmp_path / "link").symlink_to("real")
    assert look(tmp_path / "link").problems == ()


def test_folders_that_link_in_a_circle_come_to_an_end(tmp_path: Path) -> None:
    write_tree(tmp_path, {"agent.yaml": MANIFEST, "skills/notes/SKILL.md": SKILL})
    (tmp_path / "skills/notes/again").symlink_to("..")
    found = look(tmp_path)
    assert said(found, tmp_path) == [("error", "skills/notes/again", 1, 1, "leads in a circle; it is not read")]
    assert found.agent is None


def test_a_link_to_itself_is_an_error_where_it_is_named(tmp_path: Path) -> None:
    write_tree(tmp_path, {"agent.yaml": f"{MANIFEST}  soul: ./S.md\n"})
    (tmp_path / "S.md").symlink_to("S.md")
    text = "S.md leads out of the agent's folder (its links lead in a circle or changed)"
    assert said(look(tmp_path), tmp_path) == [("error", "agent.yaml", 7, 9, text)]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: path.mkdir(), "S.md is a folder, not a file"),
        (lambda path: os.mkfifo(path), "S.md is not a regular file (a FIFO)"),
        (
            lambda path: path.write_bytes(b"x" * ((1 << 20) + 1)),
            "S.md is too large (1,048,577 bytes; at most 1,048,576)",
        ),
    ],
)
def test_prose_that_is_no_readable_file_is_an_error(tmp_path: Path, make: Callable[[Path], Any], text: str) -> None:
    write_tree(tmp_path, {"agent.yaml": f"{MANIFEST}  soul: ./S.md\n"})
    make(tmp_path / "S.md")
    assert said(look(tmp_path), tmp_path) == [("error", "agent.yaml", 7, 9, text)]


def test_prose_that_is_not_text_is_an_error_in_that_file(tmp_path: Path) -> None:
    write_tree(tmp_path, {"agent.yaml": f"{MANIFEST}  soul: ./S.md\n", "S.md": b"one\ntwo \xff\n"})
    assert said(look(tmp_path), tmp_path) == [("error", "S.md", 2, 5, "S.md is not UTF-8 text (byte 0xff)")]


# --- files that cannot be opened, or change --------------------------------------------------------------


def forbid(monkeypatch: pytest.MonkeyPatch, name: str, error: OSError) -> None:
    """Opening a file of this name fails; run as root, permissions alone would not do it."""
    really = os.open

    def open_unless(path: Any, *rest: Any, **named: Any) -> int:
        if os.path.basename(os.fspath(path)) == name:
            raise error
        return really(path, *rest, **named)

    monkeypatch.setattr(os, "open", open_unless)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (PermissionError(13, "Permission denied"), "cannot be read (Permission denied)"),
        (FileNotFoundError(2, "No such file"), "is not there"),
        (OSError(5, "Input/output error"), "cannot be read (Input/output error)"),
    ],
)
def test_a_file_that_cannot_be_opened_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, text: str
) -> None:
    write_tree(tmp_path, {"agent.yaml": f"{MANIFEST}  soul: ./S.md\n", "S.md": "x"})
    with monkeypatch.context() as patched:
        forbid(patched, "S.md", error)
        assert said(look(tmp_path), tmp_path) == [("error", "agent.yaml", 7, 9, f"S.md {text}")]
    with monkeypatch.context() as patched:
        forbid(patched, "agent.yaml", error)
        assert said(look(tmp_path), tmp_path) == [("error", "agent.yaml", 1, 1, f"agent.yaml {text}")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything; the test above simulates it")
def test_a_file_without_read_permission_is_an_error(tmp_path: Path) -> None:
    write_tree(tmp_path, {"agent.yaml": MANIFEST})
    (tmp_path / "agent.yaml").chmod(0)
    assert said(look(tmp_path), tmp_path) == [
        ("error", "agent.yaml", 1, 1, "agent.yaml cannot be read (Permission denied)")
    ]


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path, {"agent.yaml": MANIFEST})
    monkeypatch.setattr(os, "read", lambda _handle, _size: b"")
    text = "agent.yaml changed or vanished while it was read"
    assert said(look(tmp_path), tmp_path) == [("error", "agent.yaml", 1, 1, text)]


def test_a_folder_that_vanishes_while_it_is_listed_is_told_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path, {"agent.yaml": MANIFEST, "tools/t/run.sh": "#!", "tools/u/run.sh": "#!"})
    (tmp_path / "tools/u/run.sh").chmod(stat.S_IRWXU)
    really = os.scandir

    def scandir(path: str) -> Any:
        if path.endswith("/t"):
            raise FileNotFoundError(2, "No such file", path)
        return really(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = look(tmp_path)
    text = "cannot be listed (No such file)"
    assert said(found, tmp_path) == [("warning", "tools/t", 1, 1, text)]
    assert found.agent is not None
    assert found.agent.tools == (DiscoveredTool("u", "./tools/u/run.sh"),)


def test_a_folder_whose_name_is_not_utf8_is_told_and_the_others_are_kept(tmp_path: Path) -> None:
    write_tree(tmp_path, {"agent.yaml": MANIFEST, "skills/notes/SKILL.md": SKILL})
    os.mkdir(os.fsencode(tmp_path / "skills") + b"/caf\xe9")
    found = look(tmp_path)
    text = "cannot be listed (No such file or directory)"
    assert said(found, tmp_path) == [("warning", "skills/caf\ufffd", 1, 1, text)]
    assert found.agent is not None
    assert [skill.name for skill in found.agent.skills] == ["notes"]


# --- finding agents --------------------------------------------------------------------------------------


def test_agents_are_found_below_a_workspace_in_order(tmp_path: Path) -> None:
    files = {
        ".duragent/agents/one/agent.yaml": MANIFEST,
        ".duragent/agents/one/nested/agent.yaml": MANIFEST,
        "b/x.agent": AGENTSPEC,
        "b/w_y.agent.md": "# Y\n",
        "a/instructions.md": "Do it.\n",
        ".git/agent.yaml": MANIFEST,
        "node_modules/p/agent.yaml": MANIFEST,
        "c/readme.md": "x",
    }
    write_tree(tmp_path, files)
    (tmp_path / "link").symlink_to("a")
    assert [os.path.relpath(path, tmp_path) for path in find(tmp_path)] == [
        ".duragent/agents/one",
        "a",
        "b/w_y.agent.md",
        "b/x.agent",
    ]


def test_a_folder_that_is_an_agent_is_found_as_itself(tmp_path: Path) -> None:
    write_tree(tmp_path, {"agent.yaml": MANIFEST, "skills/x/agent.yaml": MANIFEST})
    assert list(find(tmp_path)) == [str(tmp_path)]


def test_where_nothing_is_found_the_folder_itself_is_given_so_that_the_reason_can_be(tmp_path: Path) -> None:
    assert list(find(tmp_path)) == [str(tmp_path)]


def test_a_file_is_found_as_itself(tmp_path: Path) -> None:
    assert list(find(tmp_path / "x.agent")) == [str(tmp_path / "x.agent")]


# --- fingerprints ----------------------------------------------------------------------------------------

BELONGS = {
    "agent.yaml": f"{MANIFEST}  soul: ./SOUL.md\n  bootstrap: [{{path: ./b.md}}]\n"
    "  tools: [{type: cli, name: t, command: ./t.sh, readme: ./t.md}]\n",
    "SOUL.md": "I am.\n",
    "b.md": "boot\n",
    "t.sh": "#!/bin/sh\n",
    "t.md": "how\n",
    "policy.yaml": "mode: ask\n",
    "skills/notes/SKILL.md": SKILL,
    "skills/notes/more.txt": "more\n",
    "tools/u/run.sh": "#!/bin/sh\n",
    "tools/u/README.md": "how\n",
}


def test_the_same_content_elsewhere_has_the_same_fingerprint(tmp_path: Path) -> None:
    first = agent_at(write_tree(tmp_path / "one", BELONGS))
    assert agent_hash(agent_at(write_tree(tmp_path / "two/deep", BELONGS))) == agent_hash(first)
    assert agent_hash(first) == first.source.fingerprint
    assert set(BELONGS) <= set(first.source.files)


@pytest.mark.parametrize("name", list(BELONGS))
def test_the_fingerprint_changes_with_every_file_that_belongs(tmp_path: Path, name: str) -> None:
    before = agent_hash(agent_at(write_tree(tmp_path, BELONGS)))
    after = agent_hash(
        agent_at(write_tree(tmp_path, {name: BELONGS[name] + ("# x\n" if name.endswith("yaml") else "x\n")}))
    )
    assert before != after


def test_the_fingerprint_changes_when_a_script_becomes_executable(tmp_path: Path) -> None:
    before = agent_hash(agent_at(write_tree(tmp_path, BELONGS)))
    (tmp_path / "tools/u/run.sh").chmod(stat.S_IRWXU)
    assert agent_hash(agent_at(tmp_path)) != before


def test_the_fingerprint_does_not_change_with_what_does_not_belong(tmp_path: Path) -> None:
    before = agent_hash(agent_at(write_tree(tmp_path, BELONGS)))
    write_tree(tmp_path, {"policy.local.yaml": "mode: ask\n", "notes.txt": "x", "memory/MEMORY.md": "x"})
    assert agent_hash(agent_at(tmp_path)) == before


def test_line_ends_and_byte_order_marks_do_not_change_the_fingerprint(tmp_path: Path) -> None:
    texts = {name: text for name, text in BELONGS.items() if name in ("agent.yaml", "SOUL.md", "policy.yaml", "b.md")}
    before = agent_hash(agent_at(write_tree(tmp_path, BELONGS)))
    write_tree(tmp_path, {name: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode() for name, text in texts.items()})
    assert agent_hash(agent_at(tmp_path)) == before
