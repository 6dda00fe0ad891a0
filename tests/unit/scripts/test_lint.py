"""The classic mistakes of multi-node scripts, and scripts as logical lines."""

import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from mingle_hooks.scripts.job import LARGEST_BYTES
from mingle_hooks.scripts.lint import lint_script as lint, split_lines

HERE = Path(__file__).resolve()
SCRIPTS = [*sorted(HERE.parent.glob("golden/*.sh")), *sorted(HERE.parents[3].glob("examples/*/*.sh"))]
FREE_PORT = """PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')"""
HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"


# Mistake -> scripts that have it in the line with the mark, or in the first one behind HEAD, which begins them.
MISTAKES = {
    "fixed MASTER_PORT": [
        "srun torchrun \\\n  --nnodes=2 \\\n§  --rdzv_endpoint=$H:29400 \\\n  x.py", 'export MASTER_PORT="$((29500))"',
        "srun bash -c '\n§  export MASTER_PORT=29500\n  torchrun x.py\n'", "MASTER_PORT=${MASTER_PORT:-29500}",
        "cat >x.sh <<EOF\n§MASTER_PORT=29500\nEOF\nsrun bash x.sh", "srun torchrun \\\n§  --master_port 29500 x.py",
        "srun torchrun --rdzv-endpoint=$H:29400 x.py", "export MASTER_PORT=29500",
    ],
    "hostname -i": ["\n§MASTER_ADDR=$(hostname -i)", "A=$(hostname -I | cut -d' ' -f1)", "A=$(hostname --ip-address)"],
    "world of its own": [
        "A=$(scontrol show hostnames | head -1 || echo localhost)", "A=$(x) || export MASTER_ADDR=127.0.0.1",
    ],
    "more than one task": [
        '§#SBATCH -N2 -n8\nnode() {\n  torchrun x.py\n}\nsrun bash -c "$(declare -f node); node"',
        "#SBATCH -N 2\n§#SBATCH --ntasks-per-node=8\nsrun torchrun x.py", "srun -n 16 mingle exec torchrun x.py",
        "#SBATCH --nodes=2\n§srun -N 2 -n 16 accelerate launch x.py", "srun hostname\n§srun --ntasks=16 torchrun x.py",
        "#SBATCH -N 2\n§#SBATCH --ntasks=16\nsrun torchrun x.py", "§#SBATCH --ntasks=8 -N 2\nsrun torchrun x.py",
        "#SBATCH -N2-4\n§srun --ntasks-per-node=8 torchrun x.py",
    ],
    "without srun": [
        "#PBS -l select=1:ncpus=4+1:ncpus=8\n§torchrun x.py", "A=$(srun -N1 -n1 hostname)\n§torchrun x.py",
        "#PBS -l select=2:ncpus=4\n§torchrun x.py", "torchrun x.py",
    ],
    "first node's": [
        "#PBS -l nodes=2:ppn=8\n§pbsdsh torchrun --node_rank $PBS_NODENUM x.py", "export NODE_RANK=$SLURM_NODEID",
        'srun bash -c "torchrun --node_rank $SLURM_PROCID x.py"', 'srun torchrun --node_rank "$SLURM_NODEID" x.py',
        "export RANK=${SLURM_PROCID}",
    ],
    "exclusion": ["export GLOO_SOCKET_IFNAME=^lo,docker0", "export TP_SOCKET_IFNAME='^lo'"],
    "which starts the 2 of #SBATCH": ["srun --ntasks-per-node=8 torchrun x.py"],
    "--ntasks-per-node=4 of srun": ["srun --ntasks-per-node=4 python x.py"],
    "which starts the 8 of #SBATCH": ["#SBATCH -N 2 -n 8\n§srun --ntasks-per-node=1 torchrun x.py"],
    "launcher without srun": [
        "srun -n2 true\n§python3 -m torch.distributed.run \\\n  x.py", "#PBS -l select=2\n§mingle exec torchrun x.py",
        'eval "$(mingle env || echo exit 1)"\n§torchrun x.py', "srun -N2 hostname\n§exec mingle exec torchrun x.py",
        "srun nvidia-smi\n§OMP_NUM_THREADS=4 torchrun x.py", "#SBATCH -n 8 --ntasks-per-node 4\n§torchrun x.py",
        "mingle exec torchrun x.py", "mingle exec python x.py",
    ],
    "mingle env without srun": ['eval "$(mingle env)"\npython x.py'],
    "own name as MASTER_ADDR": [
        "srun accelerate launch --main_process_ip $HOSTNAME x.py", "srun bash -c $'it\\'s'; MASTER_ADDR=localhost",
        "srun torchrun --master_addr=$(uname -n) x.py", "srun torchrun --rdzv_endpoint localhost x.py",
        "MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}", 'export MASTER_ADDR="`hostname -s`"', "MASTER_ADDR=localhost",
        "echo it's\n§MASTER_ADDR=localhost", "export MASTER_ADDR=$(hostname)", "MASTER_ADDR=$HOSTNAME",
    ],
    "random MASTER_PORT": [
        "PORT=$(comm -23 <(seq 1 9) <(ss -tan) | shuf | head -n 1)", "export MASTER_PORT=$(shuf -i 20000-30000 -n 1)",
        "export MASTER_PORT=$((RANDOM % 1000 + 20000))", "srun torchrun --master_port $RANDOM x.py", FREE_PORT,
        "MASTER_PORT=$((20000 + RANDOM % 1000))", "MASTER_PORT=$RANDOM",
    ],
    "trains alone": ["srun torchrun --standalone x.py"],
    "within double quotes": [
        'srun bash -lc "\n§  eval \\"$(mingle env)\\"\n  torchrun x.py"', 'srun sh -c "`mingle env`; torchrun x.py"',
        'srun bash -c "eval \\"$(mingle env)\\"; torchrun x.py"', 'srun bash -c "eval $(mingle env); python x.py"',
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("mistake", "script"), [(name, script) for name, found in MISTAKES.items() for script in found]
)
def test_a_mistake_is_found_on_its_line(mistake: str, script: str) -> None:
    """Each classic mistake is named with its line and what to write instead."""
    has_head = script.lstrip("§").startswith("#")
    marked = script if has_head else HEAD + ("" if "§" in script else "§") + script
    line = marked.partition("§")[0].count("\n") + 1
    (found,) = lint(marked.replace("§", ""))
    assert (found.line, mistake in found.mistake, bool(found.remedy)) == (line, True, True)


def test_mistakes_are_in_the_order_of_their_lines() -> None:
    """Whatever found them."""
    lines = ["A=$(hostname -i)", "export MASTER_PORT=29500", "export GLOO_SOCKET_IFNAME=^lo", "torchrun x.py"]
    found = [its.line for its in lint(HEAD + "\n".join(lines * 4))]
    assert found == sorted(found)
    assert len(found) == 16


@pytest.mark.parametrize(
    "directive",
    ["#SBATCH -N 1-2", "#SBATCH --nodes=1-2", "#PBS -l select=1:ncpus=4+ncpus=8", "#PBS -l select=ncpus=4+ncpus=4"],
)
def test_the_nodes_that_a_job_may_have_count(directive: str) -> None:
    """The larger of a range, and each chunk of PBS, of which one without a number is one."""
    assert ["without srun" in its.mistake for its in lint(f"{directive}\ntorchrun x.py")] == [True]


@pytest.mark.parametrize(
    "line",
    [
        "srun bash -c 'torchrun --node_rank $SLURM_NODEID x.py'", "srun --ntasks-per-node=1 torchrun x.py",
        "export NCCL_SOCKET_IFNAME=^lo", "# MASTER_PORT=29500", 'srun torchrun --master_port "$MASTER_PORT" x.py',
        "export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))", "echo ready # MASTER_PORT=29500",
        "srun -N2 -n2 torchrun x.py", 'v=$(mingle env) || exit; eval "$v"; srun torchrun x.py',
        'eval "$(mingle env --id $JOB || echo exit 1)"; srun torchrun x.py',
        "srun bash -c 'eval \"$(mingle env)\"; torchrun x.py'",
        'srun bash -c "eval \\"\\$(mingle env)\\"; torchrun x.py"',
        'srun bash -c "$(declare -f node); node"\nnode() {\n  torchrun x.py\n}',
        "node() {\n  torchrun x.py\n}\nexport -f node\nsrun bash -c node",
        "cat >x.sh <<'EOF'\ntorchrun x.py\nEOF\nsrun bash x.sh", 'LAUNCHER="torchrun --nnodes=2"\nsrun $LAUNCHER x.py',
        'if [ -n "$SLURM_PROCID" ]; then\ntorchrun x.py\nexit\nfi\nsrun bash "$0"', "srun mingle exec torchrun x.py",
        "srun \\\n  mingle exec \\\n  torchrun x.py", "srun --ntasks=2 --ntasks-per-node=1 torchrun x.py",
        "MASTER_ADDR=$(scontrol show hostnames | head -1)",
        "seed=$RANDOM; export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))", "echo $((1 << 4)); srun torchrun x.py",
        'eval "$(mingle env --no-wait)"; echo $MASTER_ADDR',
        'srun bash -c "torchrun --node_rank \\$SLURM_NODEID x.py"',
    ],
)  # fmt: skip
def test_what_is_right_is_left_alone(line: str) -> None:
    """Lines that only look like a mistake are none."""
    assert lint(HEAD + line) == []


# What a pattern, or a reader of quotes, begins with: each might look again at all that follows.
WORDS = (
    *("x", "--rdzv_endpoint=", "--rdzv_endpoint a", "||", "|| echo ", "hostname -", "hostname  ", "MASTER_PORT=${"),
    *("MASTER_ADDR=$(hostname ", "MASTER_ADDR=${a:-", "PORT=", "PORT=$(", "torchrun --s", "torchrun ", "mingle env "),
    *("$(", "$((", "((", "(", ")", "'", "$'", "$'\\'", '"', '\\"', "`", "\\", "\\\n", ' -c "', '"$(mingle ', "$('"),
    *("eval", "srun ", "srun -n ", "srun -x y ", "srun torchrun ", "#", " #", "a #", "<<", "<<A ", "<<A\n", "\n", " "),
    *(
        "torchrun\n", "srun torchrun\n", "srun\n", "mingle exec\n", "mingle env\n", "f() {\n", "}\n", "A=b ", "env ",
        "a/",
    ),
    *("#SBATCH -n1\n", "#SBATCH -n1\nsrun torchrun\n", "MASTER_PORT=1\n", "MASTER_PORT=1 ", "'\n", '"\n', "1+"),
)  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("head", [HEAD, HEAD + "srun hostname\n", HEAD + '"'], ids=["", "srun", "quote"])
def test_the_work_grows_as_the_script_does(head: str, word: str) -> None:
    """A script made of what mistakes begin with is read in some calls for each character, and twice of it in twice."""
    count = (1 << 10) // len(word)
    calls = [calls_of(head + word * times) for times in (count, 2 * count)]
    assert calls[1] <= 2.2 * calls[0]
    assert calls[1] <= 100 * 2 * (1 << 10)


def calls_of(text: str) -> int:
    """Return how many functions are called and left to look through a script."""
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        found = lint(text)
    finally:
        sys.setprofile(None)
    assert len(found) <= len(text)
    return calls


@pytest.mark.parametrize("word", WORDS)
def test_a_large_script_is_read_to_its_end(word: str) -> None:
    """A pattern that looks again at the rest of the text, for each two words of it, would not come to the end."""
    lint(HEAD + word * (LARGEST_BYTES // 32 // len(word)))


def test_each_finding_in_one_long_line_has_its_own_number() -> None:
    """Without a count from the beginning for each: that took twelve seconds for a script of the largest size."""
    step = "srun -n 9 torchrun\n"
    count = LARGEST_BYTES // len(step) - 10
    assert [found.line for found in lint(f"{HEAD}A='{step * count}'")] == [*range(4, count + 4)]


def test_one_node_needs_no_srun() -> None:
    """A launcher in the batch script of one node is right."""
    assert lint("#SBATCH --nodes=1\ntorchrun x.py") == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_golden_scripts_and_examples_have_none_of_them(path: Path) -> None:
    """Nothing is found in the scripts that the project shows."""
    assert lint(path.read_text()) == []


GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.sh"))
PIECES = [
    "'", '"', "\\", "\n", "$(", ")", "((", "`", "#", " ", "<<A", "A", "$'", "f() {\n", "}\n", "#SBATCH -N2\n", "é",
]  # fmt: skip


@pytest.mark.parametrize(
    ("script", "texts"),
    [
        ("a \\\n b\nc", [(1, "a \n b\n"), (3, "c")]), ("a 'b\nc' d\ne", [(1, "a 'b\nc' d\n"), (3, "e")]),
        ('a "$(b "c\nd")"\ne', [(1, 'a "$(b "c\nd")"\n'), (3, "e")]), ("a # 'b\nc", [(1, "a \n"), (2, "c")]),
        ("a $# ${#b} c#d\n", [(1, "a $# ${#b} c#d\n")]), ("a $'it\\'s' # b\nc", [(1, "a $'it\\'s' \n"), (2, "c")]),
        ("a $'it\\'s' # 'b\nc", [(1, "a $'it\\'s' \n"), (2, "c")]),
        ("echo $((1 << 4))\nA\n", [(1, "echo $((1 << 4))\n"), (2, "A\n")]),
        ("cat <<<'A'\nA\n", [(1, "cat <<<'A'\n"), (2, "A\n")]),
        ("cat <<'A' <<B\nit's\nA\n\"\nB\nc", [(1, "cat <<'A' <<B\n"), (2, "it's"), (4, '"'), (6, "c")]),
        ("echo it's\nb 'c\n", [(1, "echo it's\nb 'c\n")]), ("echo it's\nb\n", [(1, "echo it's\n"), (2, "b\n")]),
    ],
)  # fmt: skip
def test_quotes_and_backslashes_join(script: str, texts: list[tuple[int, str]]) -> None:
    """Each logical line has the number of its first, and where quotes do not come out even each is for itself."""
    assert [(line.number, line.text) for line in split_lines(script)[1]] == texts


def test_what_single_quotes_keep_is_blank() -> None:
    """Double quotes keep nothing, and single ones within them are text."""
    (line,) = split_lines("""srun sh -c 'a $B' "c '$D'" """)[1]
    assert line.here.split() == ["srun", "sh", "-c", '"c', "'$D'\""]
    assert len(line.here) == len(line.text)


def test_only_what_stands_in_the_text_for_another_shell_is_expanded_early() -> None:
    assert [line.early for line in split_lines('bash -c "$(mingle a)"\n$(mingle b)\n')[1]] == [(9,), ()]


def test_what_others_start_is_marked() -> None:
    """The bodies of functions and here-documents are not run where they stand."""
    script = "a() { b; }\nc\nfunction d {\n  e\n  if f; then { g; }\n  fi\n}\nh\ncat <<A\ni\nA\nj() (\n  k\n)\nl\n"
    inside = {line.text.strip(): line.is_inside for line in split_lines(script)[1]}
    assert [text for text, is_inside in inside.items() if not is_inside] == ["c", "h", "cat <<A", "l"]


def test_directives_begin_their_line() -> None:
    """In the script, or in one that it submits as a here-document."""
    directives, _ = split_lines("#SBATCH -N2\n #SBATCH -N3\nsbatch <<A\n#SBATCH -n4\nA\necho '\n#SBATCH -n5'\n")
    assert [(line.number, line.text) for line in directives] == [(1, "#SBATCH -N2"), (4, "#SBATCH -n4")]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_script_comes_out_even(path: Path) -> None:
    """No quote is left open: the last line is one, with the command."""
    text = path.read_text()
    lines = split_lines(text)[1]
    last = [line for line in lines if line.text.startswith("exec mingle run ")]
    assert [line.is_inside for line in last] == [False]
    assert last[0].text.split()[-3:] == ["train.py", "--lr", "1e-3"]


@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join))
def test_any_text_is_read(text: str) -> None:
    """Whatever stands in a file, each line has a number within it, and what is blanked keeps its place."""
    directives, lines = split_lines(text)
    for line in (*directives, *lines):
        assert 1 <= line.number <= text.count("\n") + 1
        assert len(line.here) == len(line.text)
        assert all(line.text.startswith(("$(", "`"), at) for at in line.early)
