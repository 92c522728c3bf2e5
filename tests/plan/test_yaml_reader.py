from __future__ import annotations

import json
import time

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ablation.plan.yaml_reader import MAX_BYTES, read_yaml, resolve_scalar


def faults(text: str | bytes) -> list[tuple[int, int, str]]:
    data = text.encode() if isinstance(text, str) else text
    return [(fault.line, fault.column, fault.text) for fault in read_yaml(data).faults]


def value(text: str | bytes):
    data = text.encode() if isinstance(text, str) else text
    document = read_yaml(data)
    assert document.faults == []
    return document.value


# Values from the tables in section 10.3.2 of the YAML 1.2.2 specification, and the forms that readers of 1.1 disagree on.
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-5", 1e-5),
        ("1.0e-5", 1e-5),
        ("1E-5", 1e-5),
        ("1.0e5", 100000.0),
        ("2e-5", 2e-5),
        ("1e-05", 1e-5),
        (".5", 0.5),
        ("+12e03", 12000.0),
        ("-2E+05", -200000.0),
        ("5.", 5.0),
        ("12", 12),
        ("-19", -19),
        ("+7", 7),
        ("0o14", 12),
        ("0xC", 12),
        ("010", 10),
        ("true", True),
        ("FALSE", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("y", "y"),
        ("nULL", "nULL"),
        ("1_000", "1_000"),
        ("12:30", "12:30"),
        ("2026-10-01", "2026-10-01"),
        ("0b1", "0b1"),
        ("1e", "1e"),
        (".", "."),
        ("-", "-"),
        ("0x", "0x"),
        ("१२", "१२"),
    ],
)
def test_scalars_follow_yaml_1_2(text, expected):
    result = resolve_scalar(text)
    assert (type(result), result) == (type(expected), expected)


@pytest.mark.parametrize("text", [".inf", "-.INF", "+.Inf", ".nan", ".NaN", "1e400", "1e-400", "9" * 50])
def test_numbers_that_cannot_be_kept_are_refused(text):
    with pytest.raises(ValueError):
        resolve_scalar(text)
    assert len(faults(f"a: {text}")) == 1


def test_case_h01_all_forms_are_numbers_and_json_reads_back():
    read = value("a: 1e-5\nb: 1.0e-5\nc: 1E-5\nd: 1.0e5\n")
    assert read == {"a": 1e-5, "b": 1e-5, "c": 1e-5, "d": 1e5}
    frozen = json.dumps(read)
    assert "1e-05" in frozen
    assert value(frozen) == read


def test_quotes_make_text():
    assert value("a: '2e-5'\nb: \"null\"\nc: |\n  1\n") == {"a": "2e-5", "b": "null", "c": "1\n"}


def test_case_h02_duplicate_keys_are_refused_with_both_lines():
    assert faults("seed: 7\nx: 1\nseed: 9\n") == [(3, 1, "key `seed` appears twice: here and in line 1")]
    assert faults("arms:\n  A: {w: 1}\n  A: {w: 2}\n") == [(3, 3, "key `A` appears twice: here and in line 2")]
    assert any("appears twice: here and in line 1" in text for _, _, text in faults("1: a\n1.0: b\n"))
    assert any("appears twice: here and in line 1" in text for _, _, text in faults("seed: 7\n'seed': 9\n"))
    assert value("on: 1\n'true': 2\n") == {"on": 1, "true": 2}
    assert [text for _, _, text in faults("on: 1\ntrue: 2\n")] == ["key `true` is not text; put quotes around it"]


def test_joiners_of_scripts_and_emoji_are_text():
    document = read_yaml("a: \u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f469\u200d\U0001f52c\n".encode())
    assert document.faults == [] and "\u200d" in document.value["a"]


def test_case_h02_merge_keys_are_refused_as_a_whole():
    found = faults("base: &b {seed: 1}\nrun:\n  <<: *b\n  seed: 2\n")
    assert [(line, column) for line, column, _ in found] == [(1, 7), (3, 3), (3, 7)]
    assert "merge keys are not read" in found[1][2]


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("out: {{ run }}\n", 1, 7, "a key must be text"),
        ("a:\n\tb: 1\n", 2, 1, "a tab; indent with spaces"),
        ("a: 1\n---\nb: 2\n", 2, 1, "a second document"),
        ("", 1, 1, "the file is empty"),
        ("# nothing\n", 1, 1, "the file is empty"),
        ("---\n...\n", 1, 1, "the file is empty"),
        ("- 1\n", 1, 1, "a plan is a mapping"),
        ("just text\n", 1, 1, "a plan is a mapping"),
        ("a: &x [1]\n", 1, 4, "anchor `&x`"),
        ("a: [1]\nb: *x\n", 2, 4, "alias `*x`"),
        ("a: !!python/object:os.system x\n", 1, 4, "tags are not read"),
        ("a: ! x\n", 1, 4, "tags are not read"),
        ("a: [1, 2\nb: 3\n", 2, 2, "not valid YAML"),
        ("a: b: c\n", 1, 5, "not valid YAML"),
        ("a: @x\n", 1, 4, "put quotes around"),
        ("? [a, b]\n: 1\n", 1, 3, "a key must be text"),
        ("1: a\n", 1, 1, "put quotes around it"),
        ("~: a\n", 1, 1, "put quotes around it"),
        ('a: "\\ud83d"\n', 1, 4, "control character U+D83D"),
        ('a: "\\0"\n', 1, 4, "control character U+0000"),
        ('a: "\\UFFFFFFFF"\n', 1, 1, "not valid YAML"),
        ("a: x\u2028y\n", 1, 5, "U+2028"),
        ("a: \x07\n", 1, 4, "U+0007"),
        ("a: yes \u202eon\n", 1, 8, "character U+202E is invisible"),
        ("# limit: 20 \u2066 # limit: 2\na: 1\n", 1, 13, "character U+2066 is invisible"),
        ("a: p0\u200b1\n", 1, 6, "character U+200B is invisible"),
        ("a: x\U000e0041\n", 1, 5, "character U+E0041 is invisible"),
        ('a: "x\\u202e"\n', 1, 4, "invisible character U+202E"),
        ("a: TODO\n", 1, 4, "placeholder `TODO`"),
        ("a: TODO fill in the rate\n", 1, 4, "placeholder `TODO fill in the rate`"),
        ("TODO: 1\n", 1, 1, "placeholder `TODO`"),
    ],
)
def test_case_h04_one_clear_fault(text, line, column, says):
    found = faults(text)
    assert found, text
    assert found[0][:2] == (line, column)
    assert says in found[0][2]


def test_text_that_only_contains_the_placeholder_word_is_text():
    assert value("a: no TODO left\nb: TODOS\n") == {"a": "no TODO left", "b": "TODOS"}


def test_encodings():
    assert value(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n") == {"a": 1, "b": 2}
    assert "UTF-16" in faults("a: 1".encode("utf-16"))[0][2]
    assert faults(b"a: 1\nbc: \xff\n") == [(2, 5, "byte 0xff is not UTF-8; save the file as UTF-8")]
    assert value("名: 思考\n") == {"名": "思考"}


def test_crlf_keeps_lines_and_columns():
    assert faults(b"a: 1\r\nb: TODO\r\n")[0][:2] == (2, 4)


def test_places_of_values_and_keys():
    document = read_yaml(b"a:\n  b: [10, {c: 11}]\n")
    assert document.values[("a", "b")] == (2, 6)
    assert document.values[("a", "b", 1, "c")] == (2, 15)
    assert document.keys[("a", "b", 1, "c")] == (2, 12)


def test_all_faults_at_once_in_the_order_of_the_file():
    found = faults("a: .nan\nb: !x 1\na: 2\nc: *d\n1: 2\n")
    assert [line for line, _, _ in found] == [1, 2, 3, 4, 5]


def test_bombs_are_refused_fast():
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(20)
    )
    for text in (
        bomb[:1024],
        "[" * 1024,
        "a: " + "{a: " * 250,
        "? " * 512,
        "- " * 512,
        "[a," * 341,
        "a: " + "!x " * 300,
        "&a " * 300,
    ):
        assert len(text) <= 1024
        start = time.perf_counter()
        assert faults(text)
        assert time.perf_counter() - start < 0.2


def test_size_limit():
    assert "at most 1,000,000" in faults(b"#" * (MAX_BYTES + 1))[0][2]


def test_many_faults_end():
    assert len(faults("".join(f"a{n}: .nan\n" for n in range(1000)))) == 100


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
)
_JSON = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=6), _JSON, min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_json_reads_back_to_the_same_values_or_is_refused(tree):
    document = read_yaml(json.dumps(tree, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    if not document.faults:
        assert json.dumps(document.value) == json.dumps(tree)


@given(st.text(alphabet="ab:-[]{},&*!|>'\"#%@`? \n\t0.e~<=", max_size=40))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused_and_agrees_with_pyyaml_on_structure(text):
    document = read_yaml(text.encode())
    if document.faults:
        return
    nodes = yaml.compose(text, Loader=yaml.SafeLoader)

    def shape(node):
        if isinstance(node, yaml.MappingNode):
            return {key.value: shape(item) for key, item in node.value}
        if isinstance(node, yaml.SequenceNode):
            return [shape(item) for item in node.value]
        return None

    def ours(tree):
        if isinstance(tree, dict):
            return {key: ours(item) for key, item in tree.items()}
        return [ours(item) for item in tree] if isinstance(tree, list) else None

    assert ours(document.value) == shape(nodes)


@given(st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_read_or_refused(data):
    document = read_yaml(data)
    assert document.faults or isinstance(document.value, dict)
