"""`mingle lint --diff`: what is left out, what is put in, and when a script stays as it is."""

import subprocess
from typing import Any

import pytest

from mingle_hooks.scripts.lint import lint_script
from mingle_hooks.scripts.rewrite import fix_script
from unit.scripts.test_lint import FORMS, HEAD

R = "--rdzv-backend=c10d --rdzv-endpoint=$H:29500"
A = "export MASTER_ADDR=$(scontrol show hostnames $SLURM_NODELIST | head -1)\nexport MASTER_PORT=29500\n"
TRAINS = "srun torchrun --nnodes=$NUM_NODES$N --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT x.py"
W = "export WORLD_SIZE=$((SLURM_NNODES * 8))\n"
D, EXEC = "srun deepspeed x.py", "srun mingle exec deepspeed x.py"


def loop(before: str = "", after: str = "x.py", over: str = "a b") -> str:
    """Return a loop that starts torchrun on each host."""
    return f'for h in {over}; do\nssh $h "{before}torchrun {after}" &\ndone'


@pytest.mark.parametrize(
    ("script", "fixed"),
    [
        ("torchrun --standalone \\\n  x.py \\\n  --lr 1", "srun mingle exec torchrun \\\n  x.py \\\n  --lr 1"),
        *[(f"{asked}\ntorchrun x.py", f'{asked}\nsrun --cpus-per-task="$SLURM_CPUS_PER_TASK" mingle exec torchrun x.py')
          for asked in ("#SBATCH --cpus-per-task=32", "#SBATCH -c 32")],
        ("#SBATCH -c 32\nsrun -v torchrun --nnodes=1 x.py", "#SBATCH -c 32\nsrun -v mingle exec torchrun x.py"),
        (f"H=$(uname -n) # c\nsrun torchrun \\\n --nnodes 2 \\\n {R} \\\n x.py", "srun mingle exec torchrun \\\n x.py"),
        (f"H=`hostname`\necho $H\nA='torchrun {R}'\nsrun $A x.py", "A='mingle exec torchrun'\nsrun $A x.py"),
        *[(f"{export}A='-v {R}'\n{between}\nsrun torchrun ${letter} x.py",
           f"{export}A='-v'\n{between}\nsrun mingle exec torchrun ${letter} x.py")  # which only the launcher gets
          for export, between, letter in (("", "srun ./a.sh; echo $A", "A"), ("export ", 'export B="$A -w"', "B"))],
        (f'A=(\n  {R}\n  -v # c\n)\nsrun torchrun "${{A[@]}}" x.py',
         'A=(\n  -v # c\n)\nsrun mingle exec torchrun "${A[@]}" x.py'),
        ("export MASTER_PORT=1 B=2\nMASTER_ADDR=a\nsrun python x.py",
         "export B=2\nsrun mingle exec --scope task python x.py"),
        ("srun bash -c 'torchrun --master_addr $A --master_port 1 x.py'", "srun bash -c 'mingle exec torchrun x.py'"),
        (f"export NCCL_SOCKET_IFNAME=eth0\n{D}", "srun mingle exec --for nccl deepspeed x.py"),
        ("i=0\nfor h in a b; do\n  ssh $h torchrun --node_rank $i x.py &\n  i=$((i+1))\ndone\nwait\nls",
         "mingle run torchrun x.py\nls"),
        ("srun accelerate launch --machine_rank $SLURM_PROCID --main_process_ip $A x.py",
         "srun mingle exec accelerate launch x.py"),
        (f"export A=1; export MASTER_PORT=1; B=2\n{D}", f"export A=1; B=2\n{EXEC}"),
        (f"if a; then\n  b\nfi\r\n{D}\r\n", f"if a; then\n  b\nfi\r\n{EXEC}\r\n"),
        *[(f"{before}{A}{TRAINS}{after}", f"{before}{left}srun mingle exec torchrun x.py{after}")
          for before, left, after in (  # lines that stay beside a launcher
            ("python prep.py\n", "", "\nRC=$?\n[ $RC -eq 0 ] && python -m notify\n"),
            ("export NUM_NODES=$SLURM_NNODES\n", "", ""), ("source env.sh\n", "", ""),
            ("", "", "\nsrun -N1 -n1 hostname\nsrun bash -c 'rm -rf /tmp/x; mkdir /tmp/x'\npython eval.py"),
            ("N=$(hostname)\n", "", "\n{ cat; } <<E\n$N\nE"))],
        *[(f"N=$SLURM_NNODES\n{A}{TRAINS}\n{after}", f"{left}srun mingle exec torchrun x.py\n{after}")
          for left, texts in (
            ("N=$SLURM_NNODES\n", (
                "(( N > 1 )) && ls", "[[ N -gt 1 ]] && ls", 'let "M=N*2"', "ls ${a:N:1} $[N]", "V=N\nls ${!V}", "ls N",
                "N=N+1", "read N", "ls a=N", "declare -i M=N", "trap 'ls N' 0", "ls [N]")),
            ("", ("ls -N", "echo N", "test N==a", "# N $N", "echo [N]")))
          for after in texts],
        ("rsync a b &\n" + loop() + "\nwait", "rsync a b &\nmingle run torchrun x.py\nwait"),
        (loop() + "\nwait; ls", "mingle run torchrun x.py\nls"),
        # A word that is no option's value is the training script, whose options follow.
        *[(f"srun torchrun {given} --nnodes=2 x --rdzv-id=3", f"srun mingle exec torchrun {given} x --rdzv-id=3")
          for given in ("--tee 3", "--tee=3", "--use-env")],
        ("srun torchrun --nnodes=2 `# a` \\\n  --tee=3 `# b` x.py",
         "srun mingle exec torchrun \\\n  --tee=3 `# b` x.py"),
        (f"mpirun -np 2 -N 1 torchrun --nnodes=2 {R} x.py", "mpirun -np 2 -N 1 mingle exec torchrun x.py"),
        ("srun torchrun --nnod 2 --rdzv_b=c10d --rdzv-end=$H:29500 --max_r 3 --stand x.py",
         "srun mingle exec --for torchrun-elastic torchrun --max_r 3 x.py"),
        ("#SBATCH --cpus-per-t=4\ntorchrun x.py",
         '#SBATCH --cpus-per-t=4\nsrun --cpus-per-task="$SLURM_CPUS_PER_TASK" mingle exec torchrun x.py'),
        ("srun torchrun --nnodes=2 -v --standalone -w x.py", "srun mingle exec torchrun -v -w x.py"),
        ("torchrun --nnodes=2 \\\n\t --standalone \\\n# c\n x.py", "srun mingle exec torchrun \\\n# c\n x.py"),
        ("srun nice apptainer exec --nv x.sif torchrun --nnodes=1 x.py",
         "srun nice mingle exec apptainer exec --nv x.sif torchrun x.py"),
        (f"export NCCL_SOCKET_IFNAME=^lo\nexport GLOO_SOCKET_IFNAME=^lo\n{D}",
         "export NCCL_SOCKET_IFNAME=^lo\nsrun mingle exec --for gloo deepspeed x.py"),
        ("for h in a b; do ssh $h torchrun x.py; done &\nwait", "mingle run torchrun x.py\n"),
        # A static rendezvous starts no workers again.
        (f"srun torchrun --max_restarts=3 {R} x.py",
         "srun mingle exec --for torchrun-elastic torchrun --max_restarts=3 x.py"),
        (f"export NCCL_SOCKET_IFNAME=eth0\nsrun torchrun --max-restarts $N --nnodes=2:2 {R} x.py",
         "srun mingle exec --for torchrun-elastic,nccl torchrun --max-restarts $N x.py"),
        (loop(after=f"--max-restarts=1 {R} x.py"), "mingle run --for torchrun-elastic torchrun --max-restarts=1 x.py"),
        (f"srun torchrun --max-restarts=0 {R} x.py", "srun mingle exec torchrun --max-restarts=0 x.py"),
        ("srun torchrun --max-restarts=3 --node-rank=$SLURM_NODEID x.py",
         "srun mingle exec torchrun --max-restarts=3 x.py"),
        (f"python prep.py\n{loop(after='--nnodes=2:2 x.py', over='$L')}", "python prep.py\nmingle run torchrun x.py"),
        ("for h in a b; do srun -N1 -n1 -w $h --overlap torchrun x.py & done", "mingle run torchrun x.py"),
        *[(f"{before}{loop(f'cd {to} && ')}", f"{before}mingle run torchrun x.py")
          for before, to in (("cd /v\ncd /w\n", "/w"), ("", "$SLURM_SUBMIT_DIR"), ("", "$PWD"))],
        (f"{A}export MASTER_ADDR B\nexport MASTER_ADDR\n{D}", f"export B\n{EXEC}"),
        (f"{A}export MASTER_ADDR MASTER_PORT\ndeclare -gx MASTER_PORT\n{D}", EXEC),
        (f"MASTER_PORT=1 ls\nsource a\n{D}", f"ls\nsource a\n{EXEC}"),
        (f"source a\nMASTER_PORT=1 A=2\n{D}", f"source a\nA=2\n{EXEC}"),
        (f"f() {{ MASTER_PORT=1; ls; }}\nf\n{D}", f"f() {{ ls; }}\nf\n{EXEC}"),
        (f"srun -v sh -c 'MASTER_PORT=1; {D[5:]}'", f"srun -v sh -c '{EXEC[5:]}'"),
        (f"{A}echo $MASTER_ADDR $HOSTNAME $N\nN=$SLURM_NNODES\n{D}", EXEC),
        *[(f"{A}{D}\n{after}", f"{EXEC}\n{after}")  # which do not use addresses
          for after in ("bash -c ls", "bash", "srun sh -c 'hostname; /bin/ls'", "ssh $h hostname", ": $(srun ./a)",
                        "srun -w $h -N 1 hostname", ". ~/.bashrc; source activate x; . /etc/profile.d/a",
                        "./a", "env; export -p")],
        *[(f"{A}{W}{between}\n{D}", f"{left}{between}\n{EXEC}")
          for left, texts in (  # an exported rank stays where a program before the launcher may read it
            (W, ("python shard.py", "./shard", "exec ./shard", "f() { shard; }\nf")),
            ("", ("cd x", "[[ -d x ]] || mkdir x", "module load a", "for i in a; do echo $i; done", "f() { ls; }\nf")))
          for between in texts],
    ],
)  # fmt: skip
def test_mingle_takes_the_place_of_addresses_ports_and_ranks(script: str, fixed: str) -> None:
    """And nothing else changes; the new script has no trap, and is not changed again."""
    found = fix_script(HEAD + script)
    assert (found.text, found.unsure) == (HEAD + fixed, ())
    assert fix_script(found.text) == found


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (f"if a; then\nMASTER_PORT=1\nfi\n{D}", "line 5: this line stands in a condition"),
        (f"a || MASTER_ADDR=b\n{D}", "line 4: this line is joined"),
        (f"MASTER_PORT=1 && a\n{D}", "line 4: this line is joined"),
        *[(f"a {joined}\n\n# b\n  MASTER_PORT=1\n{D}", "line 7: this line is joined") for joined in ("&&", "||", "|")],
        ("srun --container-image=x deepspeed x.py", "line 4: mingle has to be installed in the container"),
        ("srun apptainer exec -e x.sif torchrun --nnodes=1 x.py", "line 4: mingle has to be installed"),
        ("srun apptainer exec x.sif deepspeed x.py", "line 4: mingle has to be installed in the container"),
        ("srun docker exec c torchrun --nnodes=1 x.py", "line 4: mingle has to be installed in the container"),
        *[(f"srun torchrun --nnodes={count} {R} x.py", "line 4: it may go on with fewer nodes")
          for count in ("1:2", "$MIN:${MAX}")],
        (loop(after="--nnodes=1:2 x.py"), "line 5: it may go on with fewer nodes"),
        ("#SBATCH -c 4\nC='torchrun -v'\n$C x.py", "line 5: srun needs --cpus-per-task before it"),
        ("srun -n16 deepspeed x.py", "line 4: deepspeed needs one task on each node, and 16 start on 2"),
        ("srun -N $((N-1)) deepspeed x.py", "line 4: it may start on some of the job's nodes only"),
        (f"if a; then {D}; fi", "line 4: it starts in a condition"),
        ("if a; then C='torchrun --master_port=1'; fi\nsrun $C x.py", "line 4: it starts in a condition"),
        ("ray start --head --port=6379\nsrun ray start --address=$H:6379", "line 4: ray start needs its own lines"),
        ("srun run.sh $HOSTNAME", "it starts no launcher that mingle knows"),
        ("srun torchrun $EXTRA --nnodes=1 x.py", "line 4: $EXTRA may hold options of torchrun"),
        ("srun torchrun --nnodes=1 $EXTRA x.py", "line 4: $EXTRA may hold options of torchrun"),
        *[(f"{remote} torchrun --nnodes=1 x.py", f"line 4: {remote[:4]}") for remote in ("pdsh -w a", "clush -w a")],
        ("parallel -S a,b torchrun --nnodes=1 {} ::: a", "line 4: parallel starts it, which does not pass on"),
        ("MASTER_PORT=1\npython x.py", "line 5: python may be meant to run once"),
        (f"MASTER_PORT=1\nsrun python prep.py\n{D}", "line 5: python may not train"),
        (f"{D}\nsrun torchrun --nnodes=1 eval.py", "line 5: it may be meant to train alone"),
        ("accelerate launch --deepspeed_hostfile h --main_process_port=1 x.py", "line 4: it reaches the other nodes"),
        ("srun bash -c 'torchrun --nnodes=1 --master_port=1 x.py --seed $SLURM_PROCID'", "line 4: it may be meant"),
        (f"torchrun --nnodes=2 a.py\ntorchrun --nnodes=2 b.py\n{D}", "line 4: it may be meant to train alone"),
        ("f() { torchrun --nnodes=1 x.py; }\ng() { f; }\nsrun sh -c g", "line 4: how it is started on the nodes"),
        ("ssh h torchrun --master_port=1 x.py", "line 4: it starts on one host, and not in a loop over all"),
        # What a loop does beside starting the launcher.
        ("for h in a b; do\nssh $h torchrun --node_rank 0 --log $h x.py &\ndone",
         "line 5: the command uses $h of the loop"),
        ("for ((i=0;i<2;i++)); do ssh $i torchrun --log $i x.py & done", "line 4: the command uses $i of the loop"),
        ("for h in a b; do\ncp x $h\nssh $h torchrun x.py &\ndone", "line 5: the loop does more than"),
        (loop() + "\ntorchrun --node_rank 0 x.py\nwait", "line 5: another launcher starts beside"),
        (f"MASTER_ADDR=a\npython prep.py\n{loop()}".replace("torchrun", "python"), "line 7: another launcher starts"),
        (loop(over="${n[@]:1}"), "line 5: the loop leaves out the first node"),
        ("for ((i=1;i<3;i++)); do ssh $i torchrun x.py & done", "line 4: the loop leaves out the first node"),
        (f"N=3\n{loop(after='--nnodes=$N x.py')}", "line 6: its number of nodes is not the job's"),
        (loop(after="--standalone x.py"), "line 5: each node trains alone"),
        (loop("cd /scratch && "), "line 5: it starts in another directory"),
        *[(before + loop(f"cd {to} && ") + after, f"line {line}: it starts in another directory")
          for before, to, after, line in
          (("(cd /w)\n", "/w", "", 6), ("", "/w", "\ncd /w", 5), ("cd w\n", "w", "", 6))],
        (loop("OMP_NUM_THREADS=8 "), "line 5: the loop sets OMP_NUM_THREADS"),
        (loop("export OMP_NUM_THREADS=8; "), "line 5: more than the launcher runs on each host"),
        (loop().replace("ssh", "export SEED=$h\nssh"), "line 6: the loop sets SEED"),
        (loop("nsys profile -o out "), "line 5: nsys stands before it"),
        (loop(after="x.py >& $h.txt"), "line 5: its output goes to a file"),
        (loop().replace("ssh $h", "srun -N1 -w $h --chdir=/x").replace('"', ""),
         "line 5: the loop gives --chdir=/x to srun"),
        (loop().replace("ssh $h", "mpirun -n 1 --host $h -x A").replace('"', ""),
         "line 5: the loop gives --host -x to mpirun"),
        ("mpirun -np 16 torchrun --nnodes=1 x.py", "line 4: torchrun needs one task on each node, and 16 start on 2"),
        (loop() + "\n./monitor\nwait", "line 7: this line runs beside the loop"),
        ("for h in a b; do ssh $h torchrun x.py; done & ls", "line 4: this line runs beside the loop"),
        (loop().replace("&", "& p+=($!)") + '\nwait "${p[@]}"', "line 5: $p of the loop is used after it"),
        # What else uses the addresses.
        *[(f"{A}{D}\n{after}", f"line 7: this line {uses} MASTER_ADDR") for after, uses in (
            *[(f"{saves} > x", "may use") for saves in ("/bin/env", "export -p", "declare -x", "set")],
            ("envsubst < x > y", "may use"), ("bash -x a.sh", "may use"), ("./a.sh", "may use"), ("srun", "may use"),
            ("source ./env.sh", "may use"), ("srun sh -c 'hostname; ./a'", "may use"), ("ssh h hostname", "may use"),
            ("python - <<E\nimport os; os.environ['MASTER_ADDR']\nE", "uses"), ("[[ -v MASTER_ADDR ]] || a", "uses"),
            ('printf -v EP "%s" "$MASTER_ADDR"', "uses"), ("f() { ls; echo $MASTER_ADDR; }\nf > x", "uses"),
            ("echo $MASTER_ADDR > x", "uses"), ("echo $(a $MASTER_ADDR)", "uses"), ("echo $MASTER_ADDR $FOO", "uses"))],
        # What else uses a value that changes.
        *[(f"{before}A='-v {R}'\nsrun torchrun $A x.py\n{after}", f"line {line}: this line {uses} {name}, whose value")
          for before, after, line, uses, name in (
            ("", "srun ./other $A", 6, "uses", "A"), ("", "echo torchrun $A > x", 6, "uses", "A"),
            ("", "echo $A | tee x", 6, "uses", "A"), ("", "B=$(./parse $A)", 6, "uses", "A"),
            ("", "srun sh -c './a $A'", 6, "uses", "A"), ("", 'B="-w $A"\n./a $B', 7, "uses", "B"),
            ("", "cat > x <<E\n$A\nE", 6, "uses", "A"), ("", "srun sh -c './a $A; torchrun $A x.py'", 6, "uses", "A"),
            ("export ", "srun ./a.sh", 6, "may use", "A"), ("", "export B=$A\nsrun ./a.sh", 7, "may use", "B"))],
        (f"export NCCL_SOCKET_IFNAME=eth0\nsrun ./nccl_test\n{D}", "line 5: this line may use NCCL_"),
        (f"export NCCL_SOCKET_IFNAME=eth0\nexport NCCL_SOCKET_IFNAME=^lo\nls $NCCL_SOCKET_IFNAME\n{D}",
         "line 6: this line uses NCCL_SOCKET_IFNAME, which differs between nodes"),
        (f"HEAD_PORT=6379\nsrun x $HEAD_PORT\n{D}", "line 4: this port is the same in all your jobs"),
        (f"f() {{ source a; }}\nMASTER_PORT=1\nf\n{D}", "line 4: this line may use MASTER_PORT"),
        (f"f() {{ MASTER_PORT=1; }}\nf\n{D}", "line 4: nothing would be left of this function"),
        ("srun env MASTER_PORT=1 A=2 deepspeed x.py", "line 4: how srun gets MASTER_PORT is not clear"),
        (f"#SBATCH hetjob\n#SBATCH -N4\n{D}", "line 6: in a heterogeneous job"),
        (f"{D} 'a", "a quote or a parenthesis has no end"), (f"{D}\n#{'x' * (1 << 15)}", "it is longer than"),
        (f"cat > x.sh <<E\n#SBATCH -N2\n{D}\nE", "it writes another job script"),
    ],
)  # fmt: skip
def test_a_script_of_which_that_is_not_certain_stays_as_it_is(script: str, reason: str) -> None:
    """And the line that makes it uncertain is named."""
    found = fix_script(HEAD + script)
    assert found.text == HEAD + script
    assert found.unsure[0].startswith(reason)


@pytest.mark.parametrize(
    ("over", "times"),
    [
        ("h in {0..2}", 3), ("h in {1..5..2}", 3), ("h in {1..6..2}", 3), ("h in {1..7..3}", 3), ("h in {1..2..0}", 2),
        ("h in {3..1}", 3), ("h in {5..1..2}", 3), ("h in {5..1..-2}", 3), ("h in {1..5..-2}", 3), ("h in {1..-1}", 3),
        ("h in $(seq 5 -2 1)", 3), ("h in $(seq 5 -2 0)", 3), ("((h=0;h<6;h+=2))", 3),
        ("h in $(seq 3)", 3), ("h in `seq 2 4`", 3), ("h in $(seq 1 3 7)", 3), ("h in $(seq 0 3 7)", 3),
        ("h in a b c", 3), ("((h=0;h<3;h++))", 3), ("((h=1;h<=3;h++))", 3), ("((h = 2; h < 5; h++))", 3),
    ],
)  # fmt: skip
def test_a_loop_runs_as_often_as_the_job_has_nodes(over: str, times: int) -> None:
    """Or it stays as it is."""
    fits, differs = (fix_script(HEAD + loop().replace("h in a b", over), nodes) for nodes in (times, times + 1))
    assert fits.unsure == ()
    assert differs.unsure[0] == "line 5: the loop runs another number of times than the job has nodes"


def test_where_a_script_starts_on_several_nodes_must_be_in_it() -> None:
    """Without directives another script may start it, and on one node a free port is enough."""
    (reason,) = fix_script("torchrun --master_port=1 x.py", 2).unsure
    assert reason == "line 1: how it is started on the nodes is not in this script"
    assert "torchrun --standalone" in fix_script("#SBATCH -N1\ntorchrun --master_port=1 x.py").unsure[0]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form["name"])
def test_forms_are_changed_only_where_their_judge_is_sure(form: dict[str, Any]) -> None:
    """What is changed is a script for bash and has no trap; what is not has a reason, or no trap."""
    found = fix_script(form["script"], form.get("nodes"))
    if found.text != form["script"]:
        assert form["sure"]
        assert not lint_script(found.text, form.get("nodes"))
        subprocess.run(["bash", "-n"], input=found.text, text=True, check=True)
    else:
        assert bool(found.unsure) == bool(lint_script(form["script"], form.get("nodes")))


def test_most_forms_that_can_be_changed_are() -> None:
    """Of those of which their judge is sure."""
    sure = [form for form in FORMS if form["sure"] and form["traps"]]
    changed = [form for form in sure if not fix_script(form["script"], form.get("nodes")).unsure]
    assert len(changed) / len(sure) > 0.7
