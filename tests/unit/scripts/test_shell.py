"""The reader of shell scripts: commands, words with their positions, and what they stand in."""

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from mingle_hooks.scripts.shell import read, unquote, whole


@pytest.mark.parametrize(
    ("script", "expected", "ends"),
    [
        ("a \\\n b --c=1\\\n   d # 'e\nf $# ${#g} h#i $'it\\'s' # 'j",
         ["[a \\\n b --c=1\\\n   d]\n", "\n[f $# ${#g} h#i $'it\\'s']"], []),
        ("case $a in b) c;; (d) e;; esac; echo $((1 << 4)) $((2 * (3))) | A",
         ["case [case $a in b])", "case )[c];;", "case ;;[d])", "case )[e];;",
          ";[echo $((1 << 4)) $((2 * (3)))]|", "|[A]"],
         ["case $a in b) c;; (d) e;; esac"]),
        ("case a in\n# b\n(c) (d);;&\n\n(e|f)\n(g)\n(h);; esac; (i)",
         ["case [case a in]\n", "case \n[c])", "case/subshell )[d])", "case ;;&[e]|", "case |[f])",
          "case/subshell )[g])", "case/subshell )[h])", "subshell ;[i])"],
         ["case a in\n# b\n(c) (d);;&\n\n(e|f)\n(g)\n(h);; esac", "(d)", "(g)", "(h)", "(i)"]),
        ("a ||\n\n# b\nc &&\nd\n\ne", ["[a]||", "||[c]&&", "&&[d]\n", "\n[e]"], []),
        ("A=1 B+=2 d e=f | g |& h && i || j & k; l",
         ["[A=1 B+=2 d e=f]|", "|[g]|&", "|&[h]&&", "&&[i]||", "||[j]&", "&[k];", ";[l]"], []),
        ("a >b 2>>c &>d >&e >|f 2>&1 3>&- <g <>h {i}>j k\nl",
         ["[a >b 2>>c &>d >&e >|f 2>&1 3>&- <g <>h {i}>j k]\n > b > c > d > e > f > h > j", "\n[l]"], []),
        ("case a in b|c) d;; e) f;& g) h;;& esac; i",
         ["case [case a in b]|", "case |[c])", "case )[d];;", "case ;;[e])", "case )[f];&", "case ;&[g])",
          "case )[h];;&", ";[i]"], ["case a in b|c) d;; e) f;& g) h;;& esac"]),
        ("f() { a; }; g ()\n( b ); function h { c; }; function i () { d; }; f",
         ["function:f [a];", "function:g ;[b])", "function:h ;[c];", "function:i ;[d];", ";[f]"],
         ["{ a; }", "( b )", "{ c; }", "{ d; }"]),
        ("for x in a; do c; done >d; while e; do f; done; until g; do h; done; select i in j; do k; done",
         ["loop [for x in a];", "loop ;[c];", ";[>d]; > d", "loop ;[e];", "loop ;[f];",
          "loop ;[g];", "loop ;[h];", "loop ;[select i in j];", "loop ;[k];"],
         ["for x in a; do c; done", "while e; do f; done", "until g; do h; done", "select i in j; do k; done"]),
        ("if a; then b; elif c; then d; else { e; }; fi; ! f; done; } g",
         ["if [a];", "if ;[b];", "if ;[c];", "if ;[d];", "if/group ;[e];", ";[f];", ";[g]"],
         ["if a; then b; elif c; then d; else { e; }; fi", "{ e; }"]),
        ("(a; (b)) > c; $(d; e) `f; g`",
         ["subshell [a];", "subshell/subshell ;[b])", ")[> c]; > c", ";[$(d; e) `f; g`]", "substitution [d];",
          "substitution ;[e])", "substitution [f];", "substitution ;[g]"], ["(a; (b))", "(b)"]),
        ("cat <<A <<-'B' > c; d\n$e \\$f\nA\n\tg\n\tB\nh <<<i",
         ["[cat <<A <<-'B' > c]; > c < '$e $f\\n' < '\\tg\\n'", ";[d]\n", "\n[h <<<i]"], []),
        ("[[ a && b ]] && ((c = (1 + 2))) || for ((i=0; i<2; i++)); do d; done",
         ["[[[ a && b ]]]&&", "&&[((c = (1 + 2)))]||", "loop ||[for ((i=0; i<2; i++))];", "loop ;[d];"],
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
        outputs = "".join(f" > {output.text}" for output in its.outputs)
        texts = "".join(f" < {body.text!r}" for body in its.here_documents)
        around = f"{its.before}[{script[its.start : its.end]}]{its.after}"
        told.append(f"{frames} {around}{outputs}{texts}".removeprefix(" "))
    assert told == expected
    assert found.is_whole
    assert [script[start:end] for start, end in sorted(found.ends.items())] == ends


def test_text_in_double_quotes_is_expanded_by_the_shell_around_it() -> None:
    """What it leaves for the inner shell is not expanded, and each character is where the file has it."""
    script = """bash -c "a \\$b $c 'd' \\"e\\"" f"""
    text = unquote(read(whole(script)).commands[0].words[2])
    assert text.text == """a $b $c 'd' "e\""""
    assert [text.text[text.at.index(at) :][:2] for at in text.early] == ["$c"]
    inner = read(text).commands[0].words
    assert [word.text for word in inner] == ["a", "$b", "$c", "'d'", '"e"']
    assert [script[word.start : word.end] for word in inner] == ["a", "\\$b", "$c", "'d'", '\\"e\\"']


@pytest.mark.parametrize("script", ["a 'b\nc", 'a "$(b\nc', "a `b", "a $((1", "cat <<E\nb", "a ${b", "A=(b", "$(" * 99])
def test_a_quote_without_an_end_is_text(script: str) -> None:
    """The script is not whole, and its words are read all the same."""
    found = read(whole(script + "\nlast word"))
    assert not found.is_whole
    assert [word.text for word in found.commands[-1].words] == ["last", "word"]


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
