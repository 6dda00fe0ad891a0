"""What attacks on the rendezvous found, put back: the tests on hosts see it as it was seen then."""

from mutants.defect import Defect

V, W = "mingle_hooks/rendezvous", "tests/world"
TASKS, NEVER = f"{W}/test_tasks_of_a_node.py", f"{W}/test_never_in_the_way.py"
ROWS = (
    Defect("a leader goes on after its deadline and has a world alone", f"{V}/leader/closing.py",
           "return not self._renew(self.leases.ending(LAST_WORD_S))", "self._renew([]); return True",
           f"{W}/test_last_word.py"
           "::test_a_leader_that_is_stopped_before_the_last_word_has_no_world_that_the_others_gave_up"),
    Defect("a task that is killed while others wait is counted", f"{V}/local_peers/first_task.py",
           'self._watch(task, lambda: self._fail(self._without(rank, "gone")))', "pass",
           f"{TASKS}::test_a_task_that_is_killed_while_others_wait_fails_the_world_for_all"),
    Defect("a first task that is stopped keeps the others", f"{V}/local_peers/follower.py",
           "min(self._heard + SILENCE_S, self._deadline + OVERTIME_S)", "self._deadline + OVERTIME_S",
           f"{TASKS}::test_a_first_task_that_is_stopped_keeps_the_others_no_longer_than_their_deadline"),
    Defect("who takes a predictable name breaks the next run", f"{V}/local_peers/meeting_point.py",
           "NAMES = 4", "NAMES = 1", f"{TASKS}::test_what_another_user_makes_of_the_name_hinders_no_next_run"),
    Defect("the leader of a run that failed spoils the next one", f"{V}/following.py",
           "if self._deadline.is_before(membership.failed_ago_s):", "if membership.failed_ago_s < 0.0:",
           f"{W}/test_failures.py::test_a_run_that_failed_does_not_spoil_the_next_one"),
    Defect("a few octets block an id for a minute", f"{V}/leader/listeners.py",
           "for port, reuse in [*((port, False) for port in group), *((port, True) for port in group)]:",
           "for port, reuse in [(port, False) for port in group]:",
           f"{W}/test_blocked_ports.py"
           "::test_a_stranger_cannot_block_the_next_run_by_connections_that_are_turned_away"),
    Defect("where all check-in ports are taken no other is told", f"{V}/leader/candidate.py",
           "tuple(opened.check_in) or (opened.master,)", "tuple(opened.check_in) or (1,)",
           f"{W}/test_blocked_ports.py"
           "::test_where_others_listen_on_all_check_in_ports_members_come_to_another_that_the_ways_tell"),
    Defect("a limit that was met is not named", f"{V}/loop.py",
           "self.shortage = shortage(error) or self.shortage", "pass",
           f"{NEVER}::test_out_of_file_descriptors_is_told_with_the_limit_that_was_met"),
    Defect("a leader out of descriptors blames the others' hosts", f"{V}/leader/shortfall.py",
           "if seen.shortage is not None:", "if False:",
           f"{NEVER}::test_a_leader_that_runs_out_of_descriptors_tells_everybody_that_it_did"),
    Defect("a member greets its leader twice", f"{V}/rendezvous.py",
           "self._search.pause()", "pass",
           f"{W}/test_plain_hosts.py"
           "::test_all_who_ask_for_the_roster_are_sent_the_same_octets_and_each_greets_once"),
)  # fmt: skip
