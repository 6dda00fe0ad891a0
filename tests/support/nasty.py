"""Values that a shell, a template or a scheduler could take for something else, and a program that tells them."""

# fmt: off
NASTY = (
    "a b", "it's", 'say "hi"', "'\"'", "$HOME", "$(touch pwned)", "`touch pwned`", "a;touch pwned", "a\nb", "\n", "\r",
    "a\tb", "-x", "--", "é ü 漢字", "\\", "\\n", "a\\", "!x", "*", "~", "#c", "{a,b}", "=", "a=b", "$'x'", "\x1b[0m",
    "\x02", "\u200b", "b\udcffyte", "|", "&", "<", ">", "(", ")", "%j", "NODE", "{{ x }}", "{% raw %}", "{# c #}",
)
# For what stands in a script's body.
NASTIER = (
    *NASTY, " a", "a ", "a  b", "${HOME}", "a\rb", "-", "--bind=x", "a\\nb", "a #c", "\u2028", "a:b", "%", "@",
    "+", "x" * 4000, "{## c ##}",
)
# fmt: on
# A program that tells its words, the variable NASTY and its directory.
TELL = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('NASTY'), os.getcwd()]))"
