"""The wheel's bundles, and what starts supervisors before the runner is loaded."""

from mutants.defect import Defect

MAKER, RUNTIME = "packaging/bundle.py", "mingle_hooks/bundles.py"
SAMPLES = "tests/packages/test_bundle.py::test_a_function_does_what_its_module_does"
SAME = "tests/packages/test_bundle.py::test_a_bundled_module_is_as_its_file_would_have_made_it"
R, START = "mingle_hooks/supervise/runner", "tests/supervise/runner/test_starting.py"
ROWS = (
    Defect("a brace in an f-string is a field", MAKER,
           '.replace("{", "{{").replace("}", "}}")', "", SAMPLES),
    Defect("a conversion in an f-string is lost", MAKER,
           'f"!{chr(part.conversion)}"', '""', SAMPLES),
    Defect("a module's names are the function's own", MAKER,
           "[ast.Global(names)] if names else []", "[]", SAMPLES),
    Defect("fields have no names", MAKER, "        if fields:", "        if False:", SAMPLES),
    Defect("what only type checkers see is loaded", MAKER,
           "return list(node.orelse)", "return [*node.body, *node.orelse]", SAMPLES),
    Defect("a module of a bundle is left out", MAKER,
           "in enumerate(listed(name)):", "in enumerate(listed(name)[1:]):", SAME),
    Defect("a package of a bundle has no folder", RUNTIME,
           "        if is_package:", "        if False:",
           "tests/packages/test_bundle.py::test_a_package_of_a_bundle_has_the_rest_of_its_folder"),
    Defect("a bundle is read twice", RUNTIME,
           'if f"mingle_hooks.bundle_{name}" in sys.modules:', "if False:",
           "tests/packages/test_bundle.py::test_a_package_of_a_bundle_has_the_rest_of_its_folder"),
    Defect("what a starter inherits is what the runner's shell left open", f"{R}/starting.py",
           "        _keep_to_ourselves()", "        pass", f"{START}::test_it_has_nothing_open_but_its_three_streams"),
    Defect("a starter hears the runner's Ctrl-C", f"{R}/starting.py",
           "setsid=True", "setsid=False", f"{START}::test_it_has_a_session_of_its_own"),
    Defect("a starter ignores what Python ignores", f"{R}/starting.py",
           "setsigdef=_PYTHONS", "setsigdef=()", f"{START}::test_no_signal_is_ignored_that_was_not"),
    Defect("a starter that ended before the runner listened is waited for", f"{R}/signals.py",
           "signal.SIGUSR2, signal.SIGCHLD)", "signal.SIGUSR2)",
           f"{START}::test_one_that_has_ended_before_the_runner_was_loaded_is_heard_of"),
    Defect("TERM ends the runner, and COMMAND for want of it", f"{R}/signals.py",
           "signal.SIGTERM, signal.SIGHUP", "signal.SIGHUP",
           f"{START}::test_who_is_asked_to_end_before_the_runner_was_loaded_ends_all"),
    Defect("supervisors are started twice", f"{R}/launching.py",
           "if hosts == ahead:", "if False:", f"{START}::test_what_was_started_ahead_is_not_started_again"),
)  # fmt: skip
