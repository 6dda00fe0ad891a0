"""PBS's programs for the stand-in: each asks its socket, a list as Python writes it, and gets a line back."""

from __future__ import annotations

# `_socket` is what `socket` is made of: each task starts such a program, which takes a third of the time with it.
_HEAD = """#!{python} -IS
import _socket, os, sys
job, words = os.environ.get("PBS_JOBID"), sys.argv[1:]
def ask(*what):
    mom = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    mom.connect({address!r})
    mom.sendall(ascii([job, *what]).encode() + b"\\n")
    return os.fdopen(mom.detach())
def fail(status, text):
    sys.stderr.write(sys.argv[0] + ": " + text + "\\n")
    sys.exit(status)
"""
# One task on a host, which is looked up in PBS_NODEFILE: so not from a task on the first host, which has none.
_TMRSH = """
while words and words[0].startswith("-"):
    del words[: 2 if words[0] == "-l" else 1]
if len(words) < 2:
    fail(255, "usage")
if not job or "PBS_ENVIRONMENT" not in os.environ:
    fail(255, "not executing under PBS")
if "PBS_NODEFILE" not in os.environ:
    fail(255, "cannot find PBS_NODEFILE")
lines = open(os.environ["PBS_NODEFILE"]).read().split()
if words[0] not in lines:
    fail(255, "host is not a node in job")
sys.exit(int(ask("spawn", lines.index(words[0]), words[1:]).readline() or "255"))
"""
# A task for each line of the node file, which it needs not. It tells of failures and always ends with 0.
_PBSDSH = """
sys.modules["gettext"] = None  # getopt does without, and its import takes as long as Python's start
import getopt
try:
    options, words = getopt.getopt(words, "c:n:o")
except getopt.GetoptError as wrong:
    fail(1, str(wrong))
options = dict(options)
if not words:
    fail(1, "usage")
if not job or "PBS_ENVIRONMENT" not in os.environ:
    fail(1, "not executing under PBS")
lines = int(ask("lines").readline())
first = int(options.get("-n", 0))
count = 1 if "-n" in options else int(options.get("-c", lines))
asked = []
for number in range(first, first + count):
    asked.append(ask("spawn", number % lines, words))
for number, file in enumerate(asked):
    status = 0 if "-o" in options else int(file.readline() or "0")
    if status:
        print("pbsdsh: task 0x%08X exit status %d" % (number, status), flush=True)
"""
_QSUB = """
print(ask("qsub", os.path.abspath(words[-1]), os.getcwd()).readline().strip())
"""
PROGRAMS = {"pbs_tmrsh": _HEAD + _TMRSH, "pbsdsh": _HEAD + _PBSDSH, "qsub": _HEAD + _QSUB}
