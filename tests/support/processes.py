"""Which tests have to run in one process, one after the other, where tests run in several, and which begin first."""

from collections.abc import Iterable
from pathlib import PurePath

# These files of tests/unit use the ports of this machine; those in tests/system have hosts of their own.
ON_THIS_MACHINE = {
    *("net/test_addresses", "rendezvous/test_connection", "rendezvous/test_discovery"),
    *("rendezvous/test_leader", "rendezvous/test_member", "rendezvous/test_multicast"),
    "rendezvous/test_rendezvous",
}
# Tests of one file that share what cannot be there twice, or takes long to make.
TOGETHER = {
    "test_all_end_together": "many hosts",
    "test_lint_forms": "lanes",  # of a Slurm that is started once
    "test_life_on_slurm": "life",  # its Slurm is started once
    "test_installing": "installing",  # its installations take 12 s each
    "test_extending": "copy",  # of the package, with what the page shows
    "test_output": "outputs",  # of forks of a process that has loaded all of mingle
    **dict.fromkeys(("test_completion", "test_help", "test_jobs", "test_man", "test_mistakes"), "forks"),  # as above
    "test_template_command": "forks",
    "test_site": "site",  # it is built once
    "test_structure": "structure",  # it reads every module once
    "test_verify": "simulate",  # each scheduler's hooks are simulated once
}

# Files of tests that wait or compute for ten seconds and more: begun last, they would be waited for alone.
LONG = {
    *("test_alone", "test_begin_again", "test_broken_hooks_on_slurm", "test_eval_in_job_scripts", "test_extending"),
    *("test_following", "test_forms", "test_frameworks", "test_hostile_text", "test_installing", "test_lint_forms"),
    *("test_messages", "test_model", "test_networks", "test_port_hold", "test_power_cuts", "test_run_on_slurm"),
    *("test_sbatch_accepts", "test_chaos", "test_native", "test_simulator", "test_time_limit_on_slurm"),
    *("test_torchrun", "test_usual_jobs"),
}


# What `make quick` leaves out: test hosts and schedulers, and what takes minutes.
SLOW_FIXTURES = {"any_pbs", "fresh_slurm", "hosts", "real_pbs", "real_pbs_session", "slurm", "slurm_session"}
SLOW_FOLDERS = {"frameworks", "on_hosts", "system"}
SLOW_FILES = {
    *("test_benchmarks", "test_model", "test_power_cuts", "test_readme", "test_sbatch_accepts", "test_simulator"),
    "test_structure",
}


def is_slow(nodeid: str, fixtures: Iterable[str]) -> bool:
    """Tell whether `make quick` leaves a test out."""
    path = PurePath(nodeid.partition("::")[0])
    is_outside = path.stem in SLOW_FILES or not SLOW_FOLDERS.isdisjoint(path.parts)
    return is_outside or not SLOW_FIXTURES.isdisjoint(fixtures)


def is_long(nodeid: str) -> bool:
    """Tell whether a test is to be among the first that begin."""
    return PurePath(nodeid.partition("::")[0]).stem in LONG


def process_of(nodeid: str) -> str:
    """Return a name that the tests share which must not run at the same time; for the others, their own."""
    path = PurePath(nodeid.partition("::")[0])
    if "/".join(path.with_suffix("").parts[-2:]) in ON_THIS_MACHINE:
        return "this machine"
    if path.parent.name == "packages":  # they are made once for all of its tests
        return "packages"
    if "[real" in nodeid:  # one OpenPBS is started
        return "real PBS"
    return TOGETHER.get(path.stem, nodeid)
