"""Values of keys never reach a text, whole or in pieces."""

import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duragent.secrets import MAX_HELD, Secrets, Stream

KEY = "sk-live-4f9a/c2+e7=zQ"


def knowing(**environ: str) -> Secrets:
    return Secrets(environ)


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_API_KEY", "GITHUB_TOKEN", "CLIENT_SECRET", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "X_CREDENTIALS"),
        *("PGPASSWORD", "TOKEN", "openai_api_key", "SENTRY_DSN", "SSH_PASSPHRASE", "MYSQL_PWD", "NPM_AUTH", "APIKEY"),
    ],
)
def test_a_variable_whose_name_says_that_it_is_secret_is_hidden(name: str) -> None:
    assert knowing(**{name: KEY}).redact(f"<{KEY}>") == f"<[{name}]>"


@pytest.mark.parametrize("name", ["HOME", "EDITOR", "PWD", "SSH_ASKPASS", "MONKEY", "STRIPE_PUBLISHABLE_KEY", "KEYMAP"])
def test_a_variable_with_an_ordinary_name_is_left_alone(name: str) -> None:
    assert knowing(**{name: KEY}).redact(KEY) == KEY


def test_named_variables_and_given_values_are_hidden_too() -> None:
    secrets = Secrets({"ODD": "odd-value-1", "OTHER": "other-value"}, ["ODD"], {"gateway.telegram": "12:AAbbCCdd"})
    assert secrets.redact("odd-value-1 other-value 12:AAbbCCdd") == "[ODD] other-value [gateway.telegram]"


@pytest.mark.parametrize(
    "value", ["", "short", "1234567", "password", "CHANGEME", "xxxxxxxxxxxx", "  localhost\n", "abababababab"]
)
def test_values_that_are_short_or_common_do_not_make_holes_in_ordinary_texts(value: str) -> None:
    assert knowing(A_TOKEN=value).redact(f"a {value} b") == f"a {value} b"


def test_a_path_of_credentials_is_no_secret_and_other_credentials_are() -> None:
    secrets = knowing(GOOGLE_APPLICATION_CREDENTIALS="/home/me/key.json", MY_CREDENTIALS="hunter2:hunter3")
    assert secrets.redact("/home/me/key.json hunter2:hunter3") == "/home/me/key.json [MY_CREDENTIALS]"


def test_the_password_in_an_address_is_hidden_and_the_address_is_not() -> None:
    secrets = knowing(DATABASE_URL="postgres://me:s3cr%2Fet-word@db/x", BROKEN_URL="http://[::1")
    assert secrets.redact("postgres://me:s3cr%2Fet-word@db/x, s3cr/et-word") == (
        "postgres://me:[DATABASE_URL]@db/x, [DATABASE_URL]"
    )


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        (quote(KEY, safe=""), "[A_KEY]"),
        (quote(KEY, safe="").replace("%2F", "%2f").replace("%2B", "%2b").replace("%3D", "%3d"), "[A_KEY]"),
        (json.dumps({"k": f'{KEY}"\\'}), '{"k": "[A_KEY]\\"\\\\"}'),
        (KEY.replace("/", "\\/"), "[A_KEY]"),
        (base64.b64encode(KEY.encode()).decode(), "[A_KEY]"),
        (base64.urlsafe_b64encode(KEY.encode()).decode(), "[A_KEY]"),
    ],
)
def test_a_value_is_found_in_the_forms_in_which_it_travels(form: str, shown: str) -> None:
    assert knowing(A_KEY=KEY).redact(form) == shown


@pytest.mark.parametrize("user", ["", "a", "me", "you"])
@pytest.mark.parametrize("after", ["", "x", "yz"])
def test_a_value_is_found_in_the_header_of_basic_authentication(user: str, after: str) -> None:
    header = base64.b64encode(f"{user}:{KEY}{after}".encode()).decode()
    shown = knowing(A_KEY=KEY).redact(header)
    assert "[A_KEY]" in shown
    assert len(shown.replace("[A_KEY]", "")) <= (len(f"{user}:{after}") + 2) * 8 / 6 + 4  # no more of it than a byte


def test_a_value_with_a_quote_is_found_in_json() -> None:
    value = 'pass"word\\with\nlines-and-ümlaut'
    for ascii_only in (True, False):
        assert knowing(A_SECRET=value).redact(json.dumps([value], ensure_ascii=ascii_only)) == '["[A_SECRET]"]'


def test_each_line_of_a_long_key_is_hidden() -> None:
    lines = ["-----BEGIN KEY-----", "MIIEvQIBADANBgkqhkiG9w0B", "AQEFAASCBKcwggSjAgEAAoIB", "-----END KEY-----"]
    secrets = knowing(SSH_PRIVATE_KEY="\n".join(lines) + "\n")
    assert secrets.redact("\n".join(lines)) == "[SSH_PRIVATE_KEY]"
    assert secrets.redact("  " + "\n  ".join(lines)) == (
        "  -----BEGIN KEY-----\n  [SSH_PRIVATE_KEY]\n  [SSH_PRIVATE_KEY]\n  -----END KEY-----"
    )


def test_the_longer_of_two_values_is_hidden_as_a_whole() -> None:
    secrets = knowing(A_TOKEN="abcdefgh", B_TOKEN="abcdefgh-ijkl")
    assert secrets.redact("abcdefgh-ijkl abcdefgh") == "[B_TOKEN] [A_TOKEN]"


def test_of_values_that_overlap_nothing_is_left_over() -> None:
    secrets = knowing(A_TOKEN="12345-6789", B_TOKEN="6789-abcdef")
    assert secrets.redact("<12345-6789-abcdef>") == "<[A_TOKEN]>"


def test_one_value_with_two_names_has_the_first() -> None:
    assert Secrets({"B_KEY": KEY, "A_KEY": KEY}).redact(KEY) == "[A_KEY]"
    assert Secrets({"A_KEY": KEY}, values={"mine": KEY}).redact(KEY) == "[mine]"


def test_a_value_that_is_no_good_text_is_hidden_like_any_other() -> None:
    assert knowing(A_KEY="half\ud800pair-\udcff").redact("half\ud800pair-\udcff") == "[A_KEY]"


def test_secrets_do_not_print_themselves() -> None:
    assert repr(knowing(A_KEY=KEY)) == str(knowing(A_KEY=KEY)) == "<Secrets: 1 values>"


def test_a_text_without_secrets_is_the_same_object() -> None:
    text = "nothing here " * 1000
    assert knowing(A_KEY=KEY).redact(text) is text


def test_a_stream_holds_back_only_what_may_be_the_beginning_of_a_value() -> None:
    stream = Stream(knowing(A_KEY="sk-12345678"))
    pieces = [stream.feed(each) for each in ("a sk", "-", "1234", "5678 b", " s", "o sk-1")]
    assert [*pieces, stream.end()] == ["a ", "", "", "[A_KEY] b", " ", "so ", "sk-1"]


def test_a_stream_waits_for_the_longer_of_two_values() -> None:
    stream = Stream(knowing(A_TOKEN="abcdefgh", B_TOKEN="abcdefgh-ijkl"))
    assert [stream.feed("abcdefgh"), stream.feed("-ijkl"), stream.feed("abcdefgh!"), stream.end()] == [
        *("", "[B_TOKEN]", "[A_TOKEN]!", "")
    ]


def test_a_stream_of_values_that_overlap_for_ever_is_not_kept_for_ever() -> None:
    stream = Stream(knowing(A_TOKEN="abcabcabc"))
    shown = [stream.feed("abc" * 1000) for _ in range(MAX_HELD // 3000 + 1)]
    assert "".join(shown) == "[A_TOKEN]"


WORDS = st.lists(st.sampled_from(["12345-6789", "6789-abcdef", "abcdef", "1", "-6789", "x y", "🐢", "ef12345", '"']))


@given(st.lists(WORDS.map("".join)))
def test_pieces_are_redacted_as_if_they_were_whole(pieces: list[str]) -> None:
    secrets = knowing(A_TOKEN="12345-6789", B_TOKEN="6789-abcdef", C_TOKEN='abcdef12345"')
    stream = Stream(secrets)
    assert "".join([*map(stream.feed, pieces), stream.end()]) == secrets.redact("".join(pieces))
