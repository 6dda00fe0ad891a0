"""The reader of shell scripts: commands, words with their positions, and what they stand in."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from mingle_hooks.scripts.shell import Command, Text, read, unquote, whole


def commands(script: str) -> list[Command]:
    """Return the commands of a script."""
    return list(read(whole(script)).commands)


def words(command: Command) -> list[str]:
    """Return a command as it is written."""
    return [word.text for word in (*command.assignments, *command.words)]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("a \\\n b\nc", [["a", "b"], ["c"]]), ("a 'b\nc' d\ne", [["a", "'b\nc'", "d"], ["e"]]),
        ("a # 'b\nc", [["a"], ["c"]]), ("a $# ${#b} c#d", [["a", "$#", "${#b}", "c#d"]]),
        ("a $'it\\'s' # 'b\nc", [["a", "$'it\\'s'"], ["c"]]), ("A=1 B=$(c) d", [["A=1", "B=$(c)", "d"], ["c"]]),
        ("a && b || c; d | e &", [["a"], ["b"], ["c"], ["d"], ["e"]]), ("a >b 2>&1 <c d", [["a", "d"]]),
        ("A=(1 # one\n2) b", [["A=(1 # one\n2)", "b"]]),
        ("[[ a == (b|c) && d < e ]] && f", [["[[ a == (b|c) && d < e ]]"], ["f"]]),
        ("for ((i=0; i<2; i++)); do a; done", [["for", "((i=0; i<2; i++))"], ["a"]]),
        ("a --b=1\\\n   c", [["a", "--b=1", "c"]]),
        ("case $a in b) c;; (d) e;; esac; f", [["case", "$a", "in", "b"], ["c"], ["d"], ["e"], ["f"]]),
        ("echo $((1 << 4)) $((2 * (3))); A", [["echo", "$((1 << 4))", "$((2 * (3)))"], ["A"]]),
        ("cat <<<'A'\nA", [["cat"], ["A"]]), ("cat <<'A' <<-B\nit's\nA\n\"\n\tB\nc", [["cat"], ["c"]]),
        ('a "$(b "c\nd")"\ne', [["a", '"$(b "c\nd")"'], ["b", '"c\nd"'], ["e"]]),
        ("a `b 'c'` d", [["a", "`b 'c'`", "d"], ["b", "'c'"]]),
        ("if a; then b; else c; fi", [["a"], ["b"], ["c"]]), ("! a; { b; }; ( c )", [["a"], ["b"], ["c"]]),
        ("diff <(a) <(b c)", [["diff", "<(a)", "<(b c)"], ["a"], ["b", "c"]]),
    ],
)  # fmt: skip
def test_a_script_is_read_as_bash_reads_it(script: str, expected: list[list[str]]) -> None:
    """Quotes, expansions, comments, redirections and structure; commands are in the order in which they begin."""
    assert [words(command) for command in commands(script)] == expected


@pytest.mark.parametrize(
    ("script", "kinds"),
    [
        ("f() { a; }", ["function"]), ("function f {\n a\n}", ["function"]), ("f()\n(\n a\n)", ["function"]),
        ("for i in x; do a; done", ["loop"]), ("while b; do a; done", ["loop"]), ("if b; then a; fi", ["if"]),
        ("case x in y) a;; esac", ["case"]), ("(a)", ["subshell"]), ("{ a; }", ["group"]), ("x=$(a)", ["substitution"]),
        ("for i in x; do if b; then a; fi; done", ["loop", "if"]), ("x=`if b; then a; fi`", ["substitution", "if"]),
    ],
)  # fmt: skip
def test_a_command_knows_what_it_stands_in(script: str, kinds: list[str]) -> None:
    """From the outside in; and what comes after stands in nothing."""
    *_, inner, after = commands(f"{script}\nlast")
    found = next(command for command in commands(script) if command.name == "a")
    assert [frame.kind for frame in found.frames] == kinds
    assert (after.name, after.frames, bool(inner)) == ("last", (), True)


@pytest.mark.parametrize(
    ("script", "expected", "ends"),
    [
        ("A=1 B+=2 d e=f | g |& h && i || j & k; l",
         ["[A=1 B+=2 d e=f]|", "|[g]|&", "|&[h]&&", "&&[i]||", "||[j]&", "&[k];", ";[l]"], []),
        ("a >b 2>>c &>d >&e >|f 2>&1 3>&- <g <>h {i}>j k\nl",
         ["[a >b 2>>c &>d >&e >|f 2>&1 3>&- <g <>h {i}>j k]\n > b c d e f h j", "\n[l]"], []),
        ("case a in b|c) d;; e) f;& g) h;;& esac; i",
         ["case [case a in b]|", "case |[c])", "case )[d];;", "case ;;[e])", "case )[f];&", "case ;&[g])",
          "case )[h];;&", ";[i]"], ["case a in b|c) d;; e) f;& g) h;;& esac"]),
        ("f() { a; }; g () ( b ); function h { c; }; function i () { d; }; f",
         ["function:f [a];", "function:g ;[b])", "function:h ;[c];", "function:i ;[d];", ";[f]"],
         ["{ a; }", "( b )", "{ c; }", "{ d; }"]),
        ("for x in a; do c; done >d; while e; do f; done; until g; do h; done; select i in j; do k; done",
         ["loop:for [for x in a];", "loop:for ;[c];", ";[>d]; > d", "loop:while ;[e];", "loop:while ;[f];",
          "loop:until ;[g];", "loop:until ;[h];", "loop:select ;[select i in j];", "loop:select ;[k];"],
         ["for x in a; do c; done", "while e; do f; done", "until g; do h; done", "select i in j; do k; done"]),
        ("if a; then b; elif c; then d; else { e; }; fi; ! f; done; } g",
         ["if [a];", "if ;[b];", "if ;[c];", "if ;[d];", "if/group ;[e];", ";[f];", ";[g]"],
         ["if a; then b; elif c; then d; else { e; }; fi", "{ e; }"]),
        ("(a; (b)) > c; $(d; e) `f; g`",
         ["subshell [a];", "subshell/subshell ;[b])", ")[> c]; > c", ";[$(d; e) `f; g`]", "substitution [d];",
          "substitution ;[e])", "substitution [f];", "substitution ;[g]"], ["(a; (b))", "(b)"]),
        ("cat <<A <<-'B' > c; d\n$e \\$f\nA\n\tg\n\tB\nh <<<i",
         ["[cat <<A <<-'B' > c]; > c < '$e $f\\n' '\\tg\\n'", ";[d]\n", "\n[h <<<i]"], []),
        ("[[ a && b ]] && ((c = (1 + 2))) || for ((i=0; i<2; i++)); do d; done",
         ["[[[ a && b ]]]&&", "&&[((c = (1 + 2)))]||", "loop:for ||[for ((i=0; i<2; i++))];", "loop:for ;[d];"],
         ["for ((i=0; i<2; i++)); do d; done"]),
        ("A=(b 'c d' # e\n $(f)) g @(h|i)j k=(l) <(m) >(n)",
         ["[A=(b 'c d' # e\n $(f)) g @(h|i)j k=(l) <(m) >(n)]", "substitution [f])", "substitution [m])",
          "substitution [n])"], []),
        ("a \"b $(c) ${d:-\"e\"} `f`\" $((1 + (2))) $'g\\'' \"h\\\"i\" ) j",
         ["[a \"b $(c) ${d:-\"e\"} `f`\" $((1 + (2))) $'g\\'' \"h\\\"i\"])", "substitution [c])", "substitution [f]",
          ")[j]"], []),
    ],
)  # fmt: skip
def test_a_command_has_what_is_around_it(script: str, expected: list[str], ends: list[str]) -> None:
    """`FRAMES BEFORE[COMMAND]AFTER > OUTPUTS < HERE-DOCUMENTS`, and the whole of each loop, function and so on."""
    found = read(whole(script))
    told = []
    for its in found.commands:
        frames = "/".join(f"{frame.kind}:{frame.name}".rstrip(":") for frame in its.frames)
        outputs, texts = (
            f" {sign} {' '.join(of)}" if of else ""
            for sign, of in (
                (">", [out.text for out in its.outputs]),
                ("<", [repr(body.text) for body in its.here_documents]),
            )
        )
        around = f"{its.before}[{script[its.start : its.end]}]{its.after}"
        told.append(f"{frames} {around}{outputs}{texts}".removeprefix(" "))
    assert told == expected
    assert found.is_whole
    assert [script[start:end] for start, end in sorted(found.ends.items())] == ends


def test_a_loop_ends_where_its_done_does() -> None:
    """Its end is known by its beginning."""
    script = "x\nfor i in a b; do c; done | d"
    (loop,) = {frame for command in commands(script) for frame in command.frames}
    assert script[loop.start : read(whole(script)).ends[loop.start]] == "for i in a b; do c; done"


def test_text_in_double_quotes_is_expanded_by_the_shell_around_it() -> None:
    """And what it leaves for the inner shell is not; each character is where the file has it."""
    script = """bash -c "a \\$b $c 'd' \\"e\\"" f"""
    text = unquote(commands(script)[0].words[2])
    assert text.text == """a $b $c 'd' "e\""""
    assert [script[at] for at in text.early] == ["$"]
    assert [text.text[text.at.index(at) :][:2] for at in text.early] == ["$c"]
    assert [word.text for word in read(text).commands[0].words] == ["a", "$b", "$c", "'d'", '"e"']
    assert [script[word.start : word.end] for word in read(text).commands[0].words] == [
        "a",
        "\\$b",
        "$c",
        "'d'",
        '\\"e\\"',
    ]


def test_a_here_document_is_the_command_s() -> None:
    """Without a quoted delimiter its shell expands it."""
    plain, quoted = (commands(f"cat > x <<{word}\na $b \\$c\nE\n")[0] for word in ("E", "'E'"))
    assert (plain.here_documents[0].text, quoted.here_documents[0].text) == ("a $b $c\n", "a $b \\$c\n")
    assert (len(plain.here_documents[0].early), quoted.here_documents[0].early) == (1, frozenset())
    assert [word.text for word in plain.outputs] == ["x"]


@pytest.mark.parametrize("script", ["a 'b\nc", 'a "$(b\nc', "a `b", "a $((1", "cat <<E\nb", "a ${b", "A=(b", "$(" * 99])
def test_a_quote_without_an_end_is_text(script: str) -> None:
    """The script is not whole, and its words are read all the same."""
    found = read(whole(script + "\nlast word"))
    assert not found.is_whole
    assert words(found.commands[-1]) == ["last", "word"]


PIECES = [
    "'", '"', "\\", "\n", "$(", ")", "((", "`", "#", " ", "<<A", "A", "$'", "f() {\n", "}\n", "é", "${", "A=(", "[[ ",
    "case a in b) ", "esac", "for i in ", "do ", "done", "; ", "& ", "| ", "> ", "a", "=", "<(", ";;",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_text_is_read(text: str) -> None:
    """Whatever stands in a file, each word is a part of it, and its characters are in order."""
    for command in read(whole(text)).commands:
        for word in (*command.assignments, *command.words):
            assert text[word.start : word.end] == word.text
            plain = unquote(word)
            assert len(plain.at) == len(plain.text) + 1
            assert all(before <= after for before, after in pairwise(plain.at))
        assert 0 <= command.start <= command.end <= len(text)


def test_a_part_of_a_text_is_where_it_was() -> None:
    """Positions are those of the file."""
    part = Text("abc", range(10, 14)).part(1, 3)
    assert (part.text, part.start, part.end) == ("bc", 11, 13)
