# A fake of the `pbs` module of pbs_python, to run a hook for execjob_launch or execjob_end anywhere.
#
# Run as `python -c PROGRAM HOOK EVENT...`: prints for each event how the hook ended, what it logged, added and took
# away, as a line of JSON. For every Python that PBS may bring, from 2.7 on. `spoil` is code that goes first.
import json, sys, types
code = compile(open(sys.argv[1]).read(), sys.argv[1], "exec")
class Thing(object):
    pass
class Env(dict):  # PBS_ENV behaves like a dictionary of strings
    pass
def accept(text=""):
    ended.append("accept")
    raise SystemExit(0)
def reject(text=""):
    ended.append("reject")
    raise SystemExit(1)
for path in sys.argv[2:]:
    given = json.load(open(path))
    log, ended = [], []
    event, job = Thing(), Thing()
    for name, value in given["job"].items():
        setattr(job, name, value)
    event.job, event.env, event.type = job, Env(given["env"]), given.get("type", "execjob_launch")
    event.accept, event.reject = accept, reject
    pbs = types.ModuleType("pbs")
    pbs.event = lambda: event
    pbs.EXECJOB_LAUNCH, pbs.EXECJOB_END = "execjob_launch", "execjob_end"
    pbs.logjobmsg = lambda job_id, text: log.append(text)
    exec(given.get("spoil", ""))
    sys.modules["pbs"] = pbs
    try:
        exec(code, {"__name__": "__main__"})
    except SystemExit:
        pass
    added = dict((name, value) for name, value in event.env.items() if given["env"].get(name) != value)
    gone = sorted(set(given["env"]) - set(event.env.keys()))
    print(json.dumps({"ended": ended, "log": log, "added": added, "gone": gone}))
