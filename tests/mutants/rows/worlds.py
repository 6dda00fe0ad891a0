"""What a run shows of itself, and to whom."""

from mutants.defect import Defect

W, T = "mingle_hooks/supervise/worlds", "tests/supervise/worlds"
ASKING, REGISTRY, PICTURE = f"{T}/test_asking.py", f"{T}/test_registry.py", f"{T}/test_picture.py"
COMMANDS, REAL = f"{T}/test_world_commands.py", f"{T}/test_real_runs.py"
ROWS = (
    Defect(
        "a question to one run serves for another",
        f"{W}/words.py",
        'mac(b"questions", run_id.encode())',
        'mac(b"questions")',
        f"{ASKING}::test_what_is_said_to_one_run_is_of_no_use_for_another_nor_for_a_world",
    ),
    Defect(
        "the state of a run may be any text",
        f"{W}/words.py",
        'one_of(body, "state", STATES)',
        'body["state"]',
        f"{ASKING}::test_an_answer_is_read_strictly",
    ),
    Defect(
        "strangers are as many as they like",
        f"{W}/door.py",
        "if len(self._callers) > MOST_CALLERS:",
        "if False:",
        f"{ASKING}::test_many_strangers_keep_nobody_out",
    ),
    Defect(
        "a stranger stays as long as it likes",
        f"{W}/door.py",
        "since <= now - CALLER_S]:",
        "False]:",
        f"{ASKING}::test_a_stranger_who_says_nothing_goes",
    ),
    Defect(
        "who waits for the end is hung up on",
        f"{W}/world.py",
        "door.keep(link)",
        "pass",
        f"{ASKING}::test_who_waits_for_the_end_is_not_crowded_out",
    ),
    Defect(
        "a run is shown after its end",
        f"{W}/world.py",
        "in_time(lambda: registry.remove(path, run), _END_S)",
        "pass",
        f"{REGISTRY}::test_a_run_is_written_down_for_its_user_alone_and_no_key_is",
    ),
    Defect(
        "whatever others write is a run",
        f"{W}/registry.py",
        "refused_mode=_OTHERS, owners=(os.getuid(),)",
        "refused_mode=0, owners=None",
        f"{REGISTRY}::test_what_no_runner_writes_is_left_out_with_a_note",
    ),
    Defect(
        "a directory that others may write holds runs",
        f"{W}/registry.py",
        "or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):",
        "or found.st_mode & stat.S_ISVTX:",
        f"{REGISTRY}::test_a_directory_that_others_can_write_is_refused",
    ),
    Defect(
        "a full home keeps half an entry",
        f"{W}/registry.py",
        "os.unlink(draft)",
        "pass",
        f"{REGISTRY}::test_a_full_home_leaves_nothing_half",
    ),
    Defect(
        "a run of another machine is taken for ended",
        f"{W}/process.py",
        "return process.machine == here() and ",
        "return ",
        f"{REGISTRY}::test_what_a_killed_runner_left_is_removed_where_that_is_certain",
    ),
    Defect(
        "another process of a runner's pid is the runner",
        f"{W}/process.py",
        "_start(process.pid) != process.start",
        "_start(process.pid) is None",
        f"{REGISTRY}::test_a_pid_that_another_process_has_by_now_is_no_runner",
    ),
    Defect(
        "a run that has just ended is unreachable",
        f"{W}/finding.py",
        "return not registry.is_there(self.path, entry.run)",
        "return False",
        f"{REGISTRY}::test_a_run_that_ends_while_it_is_asked_is_not_shown",
    ),
    Defect(
        "the first of several runs is meant",
        f"{W}/finding.py",
        "if len(found) == 1:",
        "if found:",
        f"{REGISTRY}::test_a_run_is_named_by_either_id_or_a_beginning_that_no_other_has",
    ),
    Defect(
        "kill says a run has ended that does not answer",
        "mingle_hooks/cli/kill.py",
        "elif known.is_gone(entry):",
        "elif not ending.is_heard:",
        f"{COMMANDS}::test_a_run_that_does_not_answer_is_told_and_neither_shown_as_well_nor_taken_for_ended",
    ),
    Defect(
        "the end at once is only for Ctrl-C",
        "mingle_hooks/supervise/runner/attempts.py",
        "if not self._stopping.is_hurried:",
        "if self._stopping.asked.number == INT:",
        f"{PICTURE}::test_the_end_at_once_comes_whoever_has_asked_for_the_end_before",
    ),
    Defect(
        "a run that forms is said to run",
        "mingle_hooks/supervise/runner/picture.py",
        'return "running" if machine.has_formed() else "forming"',
        'return "running"',
        f"{PICTURE}::test_each_phase_has_its_name_and_each_node_its_state",
    ),
    Defect(
        "the key that everybody knows may ask",
        "mingle_hooks/keys.py",
        "pinned = _pinned(settings, environ)",
        "pinned = Key(PUBLIC, '') if settings.insecure else _pinned(settings, environ)",
        "tests/test_keys.py::test_who_asks_has_all_keys_of_the_user_and_what_was_given_stands_alone",
    ),
)
