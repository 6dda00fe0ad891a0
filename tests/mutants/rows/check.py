"""Defects of `mingle check`."""

from __future__ import annotations

from mutants.defect import Defect

K, T = "mingle_hooks/check", "tests/check"
VERDICT, ROUNDS, BISECTING, PAGE, PROBE = (
    f"{T}/test_{name}.py" for name in ("verdict", "rounds", "bisecting", "page", "probe")
)

ROWS = (
    Defect("a probe answers whoever asks", f"{K}/packet.py",
           "if not compare_digest(", "if False and not compare_digest(",
           f"{PROBE}::test_only_what_is_signed_for_this_host_is_answered"),
    Defect("a probe answers for another host", f"{K}/node/datagrams.py",
           "if its is not None and its.to == self.number:", "if its is not None:",
           f"{PROBE}::test_only_what_is_signed_for_this_host_is_answered"),
    Defect("a copy makes up for a loss", f"{K}/node/datagrams.py",
           "self._heard.get(key, 0) | 1 << its.value", "(self._heard.get(key, 0) << 1) | 1",
           f"{PROBE}::test_one_datagram_that_comes_twice_counts_once"),
    Defect("any host will do at an address", f"{K}/node/calls.py",
           " or here.sender != self._number", "", f"{PROBE}::test_a_call_knows_who_answers"),
    Defect("a question that hangs is waited for", f"{K}/node/aside.py",
           "            os.kill(self._pid, signal.SIGKILL)", "            pass",
           f"{PROBE}::test_a_question_that_hangs_is_left_behind", hangs=True),
    Defect("a host's text reaches the page as it is", f"{K}/page.py",
           "{escape(printable(its.text))}</li>", "{its.text}</li>", f"{PAGE}::test_what_hosts_say_stays_text"),
    Defect("a host's name ends the script", f"{K}/page.py",
           'text.replace("<", "\\\\u003c").replace(">", "\\\\u003e")', "text",
           f"{PAGE}::test_what_hosts_say_stays_text"),
    Defect("whoever reaches a bad host is bad", f"{K}/blame.py",
           "_LEAST_OF_A_HOST = 2", "_LEAST_OF_A_HOST = 1", f"{ROUNDS}::test_blame_takes_the_fewest_causes"),
    Defect("a bad network is all of its hosts' fault", f"{K}/blame.py",
           "_MOST_OF_HOSTS = 2 / 3", "_MOST_OF_HOSTS = 2", f"{ROUNDS}::test_blame_takes_the_fewest_causes"),
    Defect("half of the hosts are a majority", f"{K}/majority.py",
           "len(said) * MAJORITY", "len(said) * 0.5", f"{VERDICT}::test_without_a_majority_nobody_is_blamed"),
    Defect("one lost datagram is a fault", f"{K}/rules/paths.py",
           "_LEAST_LOST, _LEAST_SHARE = 2, 0.1", "_LEAST_LOST, _LEAST_SHARE = 1, 0.1",
           f"{VERDICT}::test_one_fault_between_hosts_is_one_line_for_each_network"),
    Defect("who sends to a slow host is slow", f"{K}/rules/flows.py",
           "if len(its) > 1 and max(its) < usual * SLOW", "if len(its) > 1 and min(its) < usual * SLOW",
           f"{VERDICT}::test_slow_hosts_are_told_from_their_neighbours"),
    Defect("a bridge for guests is two hosts' mistake", f"{K}/networks.py",
           "if len(its) > 1 and address not in guests}", "if len(its) > 1}",
           f"{VERDICT}::test_a_bridge_with_one_address_on_all_is_for_guests"),
    Defect("a name leads nowhere but to the network that is asked for", f"{K}/rules/names.py",
           "{*host.every, *(", "{*(", f"{VERDICT}::test_a_name_may_lead_to_a_network_that_is_not_asked_for"),
    Defect("of many hosts some are never probed", f"{K}/rounds.py",
           "tuple((i, (i + offset) % count) for i in range(count))",
           "tuple((i, i + offset) for i in range(count - offset))",
           f"{ROUNDS}::test_of_many_each_meets_eight_and_all_hang_together"),
    Defect("what needs company is run alone", f"{K}/bisecting.py",
           "if any(self._run((one, other)) for other in company):", "if False:",
           f"{BISECTING}::test_one_bad_host_is_found_wherever_it_is"),
    Defect("one run is believed", f"{K}/bisecting.py",
           "or self._run(smallest, again=True):", "or False:",
           f"{BISECTING}::test_what_fails_at_times_is_told_as_that"),
)  # fmt: skip
