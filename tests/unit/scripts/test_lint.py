"""The traps of job scripts: found on their lines, and nowhere else."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from mingle_hooks.files import toml
from mingle_hooks.scripts.job import LARGEST_BYTES
from mingle_hooks.scripts.lint import lint_script as lint

HERE = Path(__file__).resolve()
SCRIPTS = [*sorted(HERE.parent.glob("golden/*.sh")), *sorted(HERE.parents[3].glob("examples/*/*.sh"))]
HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n"


DATA = HERE.parents[2] / "data" / "lint"
FORMS = [form for path in sorted(DATA.glob("*.toml")) for form in toml(path.read_bytes())["form"]]
# Kind of trap -> scripts that have it in the line with the mark, or in the first one behind HEAD, which begins them.
TRAPS = {
    "fixed-port": [
        "srun torchrun \\\n  --nnodes=2 \\\n§  --rdzv_endpoint=$H:29400 \\\n  x.py", 'export MASTER_PORT="$((29500))"',
        "srun bash -c '\n§  export MASTER_PORT=29500\n  python x.py\n'", "MASTER_PORT=${MASTER_PORT:-29500}",
        "cat >x.sh <<EOF\n§export MASTER_PORT=29500\nEOF\nsrun bash x.sh",
        "H=$(x)\n§srun torchrun --rdzv-endpoint=$H x.py", "sbatch --wrap='srun torchrun --master_port=23456 x.py'",
        "pdsh -w $L 'cd $PWD && torchrun --master_port=23456 --master_addr=$H x.py'",
        'P=6379\nip_head="$h:$P"\nsrun x\n§RAY_ADDRESS=$h:6379', "§: ${MASTER_PORT:=29500}\nsrun run.sh $MASTER_PORT",
    ],
    "hostname-i": ["A=$(hostname --ip-address)"],
    "localhost-fallback": ["A=$(x) || export MASTER_ADDR=127.0.0.1"],
    "tasks": [
        '#SBATCH -N2 -n8\nnode() {\n  torchrun x.py\n}\n§srun bash -c "$(declare -f node); node"',
        "#SBATCH --nodes=2\n§srun -N 2 -n 16 accelerate launch x.py", "srun -n 16 mingle exec torchrun x.py",
        "#SBATCH -N2-4\n§srun --ntasks-per-node=8 torchrun x.py",
    ],
    "first-node-only": [
        "A=$(srun -N1 -n1 hostname)\n§torchrun x.py", 'eval "$(mingle env || echo exit 1)"\n§torchrun x.py',
        "srun -n2 true\n§python -m torch.distributed.run \\\n  x.py", "#SBATCH -n8 --ntasks-per-node=4\n§torchrun x.py",
        "#PBS -l select=2\n§mingle exec torchrun x.py", "srun nvidia-smi\n§OMP_NUM_THREADS=4 torchrun x.py",
        'eval "$(mingle env)"\n§python x.py', '§CMD="torchrun x.py"\neval $CMD', "mingle exec python x.py",
    ],
    "batch-rank": [
        "#PBS -l nodes=2:ppn=8\n§pbsdsh torchrun --node_rank $PBS_NODENUM x.py", "export RANK=${SLURM_PROCID}",
        'srun bash -c "torchrun --node_rank $SLURM_PROCID x.py"', "srun --export=ALL,NODE_RANK=$SLURM_NODEID run.sh",
    ],
    "gloo-exclusion": ["export TP_SOCKET_IFNAME='^lo'"],
    "interface": ["GLOO_SOCKET_IFNAME=ib0 srun x", "srun env NCCL_SOCKET_IFNAME=eth0 x"],
    "step-tasks": [
        "srun --ntasks-per-node=4 python x.py", "srun hostname; srun --ntasks-per-node=4 python x.py",
        "#SBATCH -N2 -n8\n§srun --ntasks-per-node=1 torchrun x.py",
    ],
    "no-rendezvous": ["srun accelerate launch --num_machines 2 x.py"],
    "each-alone": ["srun torchrun --nnodes=1 x.py"],
    "node-count": ["#SBATCH -N1\n§srun -N2 x"],
    "own-name": ["srun torchrun --master_addr=$(uname -n) x.py", 'export MASTER_ADDR="`hostname -s`"'],
    "each-itself": [
        "srun bash -c $'it\\'s'; MASTER_ADDR=localhost", "srun torchrun --rdzv_endpoint localhost x.py",
        "MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}", "echo it's\n§MASTER_ADDR=localhost",
        "srun bash -c 'MASTER_ADDR=$(hostname) torchrun x.py'",
    ],
    "random-port": [
        f"srun bash -c '{draw} torchrun x.py'" for draw in ("MASTER_PORT=$RANDOM", "MASTER_PORT=$(shuf -i 1-9 -n 1)")
    ],
    "loop": [
        "for h in a b; do\n§srun -w $h -N1 -n1 run.sh &\ndone",
        "f() { ssh $1 torchrun x.py & }\n§for h in a b; do f $h; done",
        "MASTER_ADDR=$(x)\nfor h in a b; do\n§srun -N1 -n1 python x.py &\ndone",
        *[f"for h in a b; do\n§{step} run.sh &\ndone" for step in ("srun -w$h -n1", "srun -r $h", "pbsdsh -n$h")],
    ],
}  # fmt: skip


@pytest.mark.parametrize(("kind", "script"), [(kind, script) for kind, found in TRAPS.items() for script in found])
def test_a_trap_is_found_on_its_line(kind: str, script: str) -> None:
    """Each kind of trap is named on its line, with what happens and what to write instead."""
    has_head = script.lstrip("§").startswith("#")
    marked = script if has_head else HEAD + ("" if "§" in script else "§") + script
    line = marked.partition("§")[0].count("\n") + 1
    found = {its.kind: its for its in lint(marked.replace("§", ""))}
    assert found[kind].line == line
    assert found[kind].mistake
    assert found[kind].remedy


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form["name"])
def test_forms_of_public_scripts_have_their_traps(form: dict[str, Any]) -> None:
    """Each form is a script of somebody's, made small; whoever wrote it down judged it before this linter was seen."""
    found = [f"{its.kind} {its.line}" for its in lint(form["script"], form.get("nodes"))]
    assert sorted(found) == sorted(trap for trap in form["traps"] if not trap.startswith("other"))


def test_the_page_says_how_often_each_trap_was_seen() -> None:
    """docs/lint.md has each kind once, with the number of forms that have it."""
    page = (HERE.parents[3] / "docs" / "lint.md").read_text()
    shown = {kind: int(number) for kind, number in re.findall(r"^\| `([\w-]+)` \| (\d+) \|", page, re.MULTILINE)}
    kinds = [{trap.split()[0] for trap in form["traps"]} - {"other:"} for form in FORMS]
    assert shown == {kind: sum(kind in its for its in kinds) for kind in TRAPS}
    assert f"in {len(FORMS)} public scripts, of which {sum(map(bool, kinds))} have one" in page


FREE = "leaving it out: {} finds a free one".format


@pytest.mark.parametrize(
    ("script", "told"),
    [
        *[(f"{HEAD}srun torchrun {option} x.py",
           [f"4 each-alone leaving out {what}: `srun mingle exec torchrun …`"])
          for option, what in (("--standalone", "--standalone"), ("--nnodes 1", "the number of nodes"))],
        ("#PBS -l select=2\npython x.py", ["2 first-node-only `mingle run --scope task python …`"]),
        *[(f"{HEAD}#SBATCH {asked}\ntorchrun x.py", [f"5 first-node-only `{srun} mingle exec torchrun …`"])
          for srun, texts in (
            ('srun --cpus-per-task="$SLURM_CPUS_PER_TASK"', ("--cpus-per-task=32", "--mem=1 -c4", "-c 4")),
            ("srun", ("-p a # -c 4", "--comment=-c4", "-C4")))
          for asked in texts],
        # Which launcher a port is for.
        (f"{HEAD}export MASTER_PORT=1\npython prep.py\nsrun python x.py",
         [f"4 fixed-port {FREE('`srun mingle exec --scope task python …`')}"]),
        (f"{HEAD}export MASTER_PORT=1\npython prep.py\nsrun horovodrun x.py",
         [f"4 fixed-port {FREE('`mingle exec`')}"]),
        ("#SBATCH -N1\nexport MASTER_PORT=1\ntorchrun --rdzv-endpoint=$H:$MASTER_PORT x.py",
         [f"2 fixed-port {FREE('`torchrun --standalone`')}"]),
        ("#SBATCH -N1\nexport MASTER_PORT=1\npython x.py", [f"2 fixed-port {FREE('`mingle exec`')}"]),
        (f"{HEAD}export MASTER_PORT=1\nsrun python x.py\nsrun accelerate launch --hostfile x.py",
         [f"4 fixed-port {FREE('`srun mingle exec accelerate launch …`')}",
          "6 no-rendezvous `srun mingle exec accelerate launch …`"]),
        # Which ports are for the rendezvous, and where they are written.
        ("A_PORT=1\nSERVE_PORT=1\nexport HEAD_IP=a:80 RDZV_ADDR=http://a:80\nsrun x $SERVE_PORT $A_PORT",
         [f"{line} fixed-port {FREE('`mingle exec`')}" for line in (1, 3)]),
        ("#SBATCH -N2\nray start --head --port=1\nsrun ray start --address=$H:2",
         [f"2 fixed-port {FREE('`mingle exec`')}"]),
        ("#SBATCH -N2\nsrun ray start --address=$H:1", [f"2 fixed-port {FREE('`mingle exec`')}"]),
        *[(f"{HEAD}E=$H:{port}\nP=5\nsrun torchrun --rdzv-endpoint=$E x.py",
           [f"{line} fixed-port {FREE('`srun mingle exec torchrun …`')}"]) for port, line in (("$P", 5), (5, 4))],
        (f"{HEAD}srun torchrun --rdzv-backend=c10d --master-addr=$H --master-port=$P x.py",
         ["4 no-rendezvous `srun mingle exec torchrun …`"]),
        # A port that is computed from it before something starts.
        *[(f"{HEAD}MASTER_PORT=2{between}\n{after}\nsrun torchrun --master_addr=$A --master_port=$MASTER_PORT x.py",
           [f"4 fixed-port {FREE('`srun mingle exec torchrun …`')}"] if is_fixed else [])
          for is_fixed, between, after in (
            (False, "", "MASTER_PORT=$((MASTER_PORT + J))"), (False, "\nMASTER_PORT=3", "A=$(srun a)\nMASTER_PORT=$J"),
            (False, "", "export MASTER_PORT=$J\nMASTER_PORT=$((MASTER_PORT + 1))"),
            (True, "\nsrun a", "MASTER_PORT=$J"), (True, "", "MASTER_PORT=$((MASTER_PORT + 1))"),
            (True, "", "if a; then MASTER_PORT=$J; fi"), (True, "", "a || MASTER_PORT=$J"),
            (True, "", "f() { MASTER_PORT=$J; }"), (True, "", "MASTER_PORT=$J a"))],
        # Addresses and ranks.
        (f"{HEAD}srun x $HOSTNAME\nsrun --a=b -w $HOSTNAME",
         ["4 own-name? leaving it out: `mingle exec` finds rank 0"]),
        (f"{HEAD}A=${{B:-localhost}}\nB=1\nMASTER_ADDR=${{A:-localhost}}\nHOST=a\nMASTER_ADDR=$HOST",
         ["6 localhost-fallback || exit"]),
        (f"{HEAD}A=$(hostname -i)\nA=$(b || echo localhost)\nc || echo 127.0.0.1\nsrun deepspeed -H $(hostname -I)",
         ["4 hostname-i? leaving it out: `srun mingle exec deepspeed …` finds the address",
          "5 localhost-fallback || exit",
          "6 localhost-fallback || exit",
          "7 hostname-i? leaving it out: `srun mingle exec deepspeed …` finds the address"]),
        ("#SBATCH -N2\nexport RANK=$SLURM_PROCID\nsrun --export=ALL,RANK=$SLURM_NODEID deepspeed --no_ssh x.py",
         [f"{line} batch-rank `srun mingle exec deepspeed …`, or single quotes: srun bash -c '…'" for line in (2, 3)]),
        (f"{HEAD}NCCL_SOCKET_IFNAME=ib0\nGLOO_SOCKET_IFNAME=^lo\nsrun horovodrun --network-interface eth0 x.py",
         ["6 interface? `srun mingle exec horovodrun …`"]),
        # Numbers of nodes and tasks.
        ("#SBATCH -N1\nsrun -N3 a\nsrun a", ["2 node-count #SBATCH --nodes=3"]),
        ("#SBATCH -N2 -n 8\nsrun --ntasks-per-node=2 a",
         ["2 step-tasks --ntasks=4 beside it, and no fewer in #SBATCH"]),
        # Loops.
        (f"{HEAD}for i in a b; do\nsrun -N1 -n1 -w $i torchrun --nnodes=2 --rdzv-endpoint=$A:$P x.py &\ndone",
         ["5 loop `mingle run torchrun …` in place of the loop"]),
        ("for h in a b; do\nssh $h a.sh &\nssh $h x\nsrun y &\nssh $h ray start --address=a &\ndone\nssh h a.sh &",
         ["2 loop? `mingle run COMMAND` in place of the loop"]),
    ],
)  # fmt: skip
def test_all_traps_of_a_script_with_their_remedies(script: str, told: list[str]) -> None:
    """By line, with a ? where it is only likely."""
    found = [f"{its.line} {its.kind}{'' if its.certainty == 'sure' else '?'} {its.remedy}" for its in lint(script)]
    assert found == told


def test_several_jobs_of_one_file_are_read_apart() -> None:
    """A script that submits another has one node here, and what sbatch gets there."""
    script = "#SBATCH -N1\ntorchrun x.py\nsbatch --nodes=2 <<EOF\n#!/bin/sh\ntorchrun x.py\nEOF\n"
    assert [(its.kind, its.line) for its in lint(script)] == [("first-node-only", 5)]


@pytest.mark.parametrize(
    ("script", "nodes"),
    [
        ("torchrun --nnodes=$NNODES x.py", None), ("torchrun x.py", 2), ("#SBATCH -N 1-2\ntorchrun x.py", None),
        ("for i in $SLURM_JOB_NODELIST; do :; done\ntorchrun x.py", None),
        ("#PBS -l ncpus=96,ngpus=4\nN=$(wc -l < $PBS_NODEFILE)\ntorchrun x.py", None),
        ("#PBS -l select=ncpus=4+ncpus=4\ntorchrun x.py", None),
    ],
)  # fmt: skip
def test_the_script_or_the_command_line_shows_several_nodes(script: str, nodes: int | None) -> None:
    """The larger of a range counts, and each chunk of PBS; without a directive, what only several nodes need."""
    assert [its.kind for its in lint(f"#SBATCH -J x\n{script}", nodes)] == ["first-node-only"]


@pytest.mark.parametrize(
    "line",
    [
        "srun bash -c 'torchrun --node_rank $SLURM_NODEID --rdzv-endpoint=$H:$P x.py'",
        "srun torchrun --rdzv-backend=static --rdzv-endpoint=$H x.py", "srun torchrun --rdzv-endpoint=$1 x.py",
        "srun torchrun --rdzv-backend mingle --nnodes 2 x.py", "export NCCL_SOCKET_IFNAME=^lo", "# MASTER_PORT=29500",
        'srun torchrun --master_addr $H --master_port "$MASTER_PORT" x.py', "echo ready # MASTER_PORT=29500",
        "srun -N2 -n2 torchrun --rdzv-endpoint=$H:$P x.py", "srun mingle exec torchrun --rdzv-endpoint=$H:$P x.py",
        'v=$(mingle env) || exit; eval "$v"; srun torchrun --rdzv-endpoint=$H:$P x.py',
        'eval "$(mingle env --id $JOB || echo exit 1)"; srun torchrun --rdzv-endpoint=$H:$P x.py',
        'srun bash -c "eval \\"\\$(mingle env)\\"; torchrun --rdzv-endpoint=$H:$P x.py"',
        'srun bash -c "$(declare -f node); node"\nnode() {\n  torchrun --rdzv-endpoint=$H:$P x.py\n}',
        "node() {\n  torchrun --rdzv-endpoint=$H:$P x.py\n}\nexport -f node\nsrun bash -c node",
        "cat >x.sh <<'EOF'\ntorchrun --rdzv-endpoint=$H:$P x.py\nEOF\nsrun bash x.sh",
        'if [ -n "$SLURM_PROCID" ]; then\ntorchrun --rdzv-endpoint=$H:$P x.py\nexit\nfi\nsrun bash "$0"',
        "srun --ntasks=2 --ntasks-per-node=1 torchrun --rdzv-endpoint=$H:$P x.py",
        "seed=$RANDOM; export MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000))",
        "echo $((1 << 4)); srun torchrun --rdzv-endpoint=$H:$P x.py",
        'srun bash -c "torchrun --node_rank \\$SLURM_NODEID --rdzv-endpoint=$H:$P x.py"',
        "accelerate launch --deepspeed_hostfile hosts x.py",
        "srun torchrun --rdzv-endpoint=$H:0 x.py", "srun torchrun --master_addr=$H --master_port 0 x.py",
        *[f"srun bash -c 'torchrun {alone} x.py --seed $SLURM_PROCID'" for alone in ("--standalone", "--nnodes 1")],
        "mpirun -np 2 -N 1 torchrun --nnodes=2 --rdzv-endpoint=$H:$P x.py", "mpirun -np 1 torchrun x.py",
        "srun accelerate launch --machine_r=0 --main_process_i=$H --main_process_po=$P x.py",
        "for i in 1 2 3; do srun -N1 -n1 python x.py --seed $i & done; wait",
        "for i in 1 2 3; do srun -N1 -n1 torchrun --standalone x.py --seed $i & done; wait",
        *[f"for i in 1 2 3; do srun {step} ./x $i & done; wait" for step in ("-N1 -n1 --exclusive", "-n1", "-n 8")],
    ],
)  # fmt: skip
def test_what_is_right_is_left_alone(line: str) -> None:
    """Lines that only look like a mistake are none, nor is a launcher in the batch script of one node."""
    assert lint(HEAD + line) == []
    assert lint("#SBATCH --nodes=1\ntorchrun x.py") == []


# What a pattern, or a reader of quotes, begins with: each might look again at all that follows.
WORDS = (
    "x", "--rdzv_endpoint=", "--rdzv_endpoint a", "||", "|| echo ", "hostname -", "hostname  ", "MASTER_PORT=${",
    "MASTER_ADDR=$(hostname ", "MASTER_ADDR=${a:-", "PORT=", "PORT=$(", "torchrun --s", "torchrun ", "mingle env ",
    "$(", "$((", "((", "(", ")", "'", "$'", "$'\\'", '"', '\\"', "`", "\\", "\\\n", ' -c "', '"$(mingle ', "$('",
    "eval", "srun ", "srun -n ", "srun -x y ", "srun torchrun ", "#", " #", "a #", "<<", "<<A ", "<<A\n", "\n", " ",
    "torchrun\n", "srun torchrun\n", "srun\n", "mingle exec\n", "mingle env\n", "f() {\n", "}\n", "A=b ", "env ", "a/",
    "#SBATCH -n1\n", "#SBATCH -n1\nsrun torchrun\n", "MASTER_PORT=1\n", "MASTER_PORT=1 ", "'\n", '"\n', "1+",
)  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("head", [HEAD, HEAD + "srun hostname\n", HEAD + '"'], ids=["", "srun", "quote"])
def test_the_work_grows_as_the_script_does(head: str, word: str) -> None:
    """A script made of what mistakes begin with is read in some calls for each character, and twice of it in twice."""
    count = (1 << 10) // len(word)
    calls = [calls_of(head + word * times) for times in (count, 2 * count)]
    assert calls[1] <= 2.2 * calls[0]
    assert calls[1] <= 300 * 2 * (1 << 10)


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


@pytest.mark.parametrize(("word", "part"), [*((word, 32) for word in WORDS), ("$(", 4), ("((", 4)])
def test_a_large_script_is_read_to_its_end(word: str, part: int) -> None:
    """A reader that looks again at all that came before, or at the rest, does not come to the end in time."""
    lint(HEAD + word * (LARGEST_BYTES // part // len(word)))


def test_each_finding_in_one_long_word_has_its_own_line() -> None:
    """Without a count from the beginning for each."""
    launch = "torchrun x.py\n"
    count = LARGEST_BYTES // 16 // len(launch)
    found = lint(f"{HEAD}srun bash -c '{launch * count}'")
    assert [its.line for its in found] == [*range(4, count + 4)]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_golden_scripts_and_examples_have_none_of_them(path: Path) -> None:
    """Nothing is found in the scripts that the project shows."""
    assert lint(path.read_text()) == []
