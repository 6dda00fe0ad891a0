"""`mingle hosts`, and the order of the nodes."""

from mutants.defect import Defect

H, ETC = "mingle_hooks/export/hostfiles", "mingle_hooks/etchosts.py"
FORMATS, BLOCK = "tests/export/test_hostfiles.py", "tests/world/test_etc_hosts.py"
ROWS = (
    Defect("loopback is a host's address", f"{H}/etc.py",
           'not address or address.startswith("127.")', "not address",
           f"{FORMATS}::test_what_only_one_host_can_use_is_in_no_etc_hosts"),
    Defect("what is no host's name gets into /etc/hosts", f"{H}/etc.py",
           "if not is_hostname(member.host):", "if False:",
           f"{FORMATS}::test_nothing_but_a_hosts_name_gets_into_etc_hosts"),
    Defect("a name stands for two hosts", f"{H}/etc.py",
           "if len(addresses[name]) == 1]", "]",
           f"{FORMATS}::test_a_host_has_all_its_names_in_one_line_of_etc_hosts"),
    Defect("a newline of ours stays in /etc/hosts", ETC,
           "return before[:-1] if is_added and not after else before + after", "return before + after",
           f"{BLOCK}::test_a_block_comes_and_goes_and_leaves_every_octet"),
    Defect("a line that follows is joined to another", ETC,
           "if is_added and not after else", "if is_added else",
           f"{BLOCK}::test_what_somebody_writes_after_the_block_stays"),
    Defect("the block of a user's id holds it", ETC,
           "sha256(world.encode()).hexdigest()[:16]", "world", f"{BLOCK}::test_a_users_words_do_not_get_there"),
    Defect("/etc/hosts of a container cannot be written", ETC,
           "if wrong.errno not in (errno.EBUSY, errno.EROFS, errno.EXDEV):", "if True:",
           f"{BLOCK}::test_a_block_comes_and_goes_and_leaves_every_octet"),
    Defect("half a block stays on a full disk", ETC,
           "            after = before", "            pass",
           f"{BLOCK}::test_a_full_disk_leaves_the_file_of_a_container_as_it_was"),
    Defect("/etc/hosts gets another mode", ETC,
           "os.fchmod(descriptor, its.st_mode & 0o7777)", "pass", f"{BLOCK}::test_the_files_mode_owner_and_link_stay"),
    Defect("a script on another host counts its own slots", "mingle_hooks/listing.py",
           'spec.slots_from == "tasks" and _is_on_a_node(facts)', 'spec.slots_from in ("tasks", "gpus")',
           "tests/world/test_listing.py::test_what_the_scheduler_does_not_tell_is_not_guessed"),
)  # fmt: skip
