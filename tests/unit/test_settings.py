"""Settings are read from real files in a temporary home."""

import os
from pathlib import Path

import pytest
from needs import only_with

from mingle_hooks.api import join
from mingle_hooks.errors import SettingsError, UsageError
from mingle_hooks.settings import NOT_SETTINGS, SECTIONS, TABLE, Settings, left_behind, load, option_arguments
from mingle_hooks.values import FIELDS


class Place:
    """A site's file and a user's file that a test may write."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.site = root / "etc" / "mingle.toml"
        self.user = self.home / ".config" / "mingle" / "mingle.toml"
        self.site.parent.mkdir()
        self.user.parent.mkdir(parents=True)

    def write(self, path: Path, text: str | bytes) -> None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(0o644)

    def load(self, environ: dict[str, str] | None = None, **options: object) -> Settings:
        return load({"HOME": str(self.home), **(environ or {})}, options, system_file=str(self.site))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return empty places for settings."""
    return Place(tmp_path)


def test_the_later_of_defaults_site_user_variable_and_option_wins(place: Place) -> None:
    settings = place.load()
    assert (settings.scope, settings.shell, settings.id) == ("node", "sh", None)
    loads = [settings]
    for path, text in ((place.site, "timeout = 10"), (place.user, 'timeout = "20s"')):
        place.write(path, text)
        loads.append(place.load())
    environ = {"MINGLE_TIMEOUT": "30"}
    loads += [place.load(environ), place.load(environ, timeout="1m")]
    sources = ("default", str(place.site), str(place.user), "MINGLE_TIMEOUT", "--timeout")
    found = [(loaded.timeout, loaded.source("timeout")) for loaded in loads]
    assert found == [*zip((300.0, 10.0, 20.0, 30.0, 60.0), sources, strict=True)]


def test_settings_are_merged_key_by_key(place: Place) -> None:
    place.write(place.site, 'iface = ["ib0", "10.0.0.0/8"]\nquiet = true\n[multicast]\nttl = 4')
    place.write(place.user, "quiet = false")
    found = place.load()
    assert ([p.text for p in found.iface], found.quiet, found.multicast_ttl) == (["ib0", "10.0.0.0/8"], False, 4)


def test_the_users_file_is_looked_for_where_xdg_says(place: Place, tmp_path: Path) -> None:
    """A relative path does not count, and without a home there is no file."""
    (tmp_path / "xdg" / "mingle").mkdir(parents=True)
    place.write(tmp_path / "xdg" / "mingle" / "mingle.toml", "timeout = 7")
    assert place.load({"XDG_CONFIG_HOME": str(tmp_path / "xdg")}).timeout == 7
    place.write(place.user, "timeout = 9")
    assert place.load({"XDG_CONFIG_HOME": "relative"}).timeout == 9
    assert load({}, {}, system_file=str(place.site)).timeout == 300


def test_what_is_empty_or_not_given_is_not_set(place: Place) -> None:
    assert place.load({"MINGLE_VIA": "multicast"}, via=(), timeout=None).via == ("multicast",)
    assert place.load({"MINGLE_NODES": ""}).source("nodes") == "default"


def test_lists_keep_their_order_however_they_are_written(place: Place) -> None:
    """Sections of other commands come with their defaults."""
    assert place.load(frameworks=("a", "b,c")).frameworks == ("a", "b", "c")
    assert place.load({"MINGLE_FOR": "a, b ,c"}).frameworks == ("a", "b", "c")
    assert place.load({"MINGLE_VIA": "multicast, hosts"}).via == ("multicast", "hosts")
    assert place.load({"MINGLE_TEMPLATES": "/a:/b"}).section("template")["directories"] == ("/a", "/b")
    place.write(place.site, '[hooks]\ncluster = "alpha"\nobserve = true')
    hooks = place.load().section("hooks")
    assert (hooks["cluster"], hooks["observe"], hooks["key_file"]) == ("alpha", True, "/etc/mingle/key")


def test_what_an_earlier_mingle_exported_is_not_the_users(place: Place) -> None:
    left = {"MINGLE_EXPORTS": "MASTER_ADDR MINGLE_ID MINGLE_HOSTFILE", "MINGLE_ID": "old", "MINGLE_HOSTFILE": "/x"}
    assert place.load(left) == place.load(dict.fromkeys(NOT_SETTINGS, "x")) == place.load()
    assert place.load({"MINGLE_ID": "mine"}).id == "mine"
    assert place.load({"MINGLE_ID": "old", "MINGLE_WORLD": "0123456789abcdef"}).id is None


@pytest.mark.parametrize("name", ["key_file", "directory"])
def test_a_relative_path_of_an_option_is_relative_to_where_it_was_typed(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A variable or a file reaches other directories and hosts: there only absolute paths are read."""
    monkeypatch.chdir(tmp_path)
    assert getattr(place.load({}, **{name: "a/../key"}), name) == f"{tmp_path}/key"
    with pytest.raises(SettingsError, match="absolute path"):
        place.load({f"MINGLE_{name.upper()}": "key"})


ACCEPTED: dict[str, dict[str, object]] = {
    "id": {"a b/ü": "a b/ü", "x" * 255: "x" * 255},
    "nodes": {"1": 1, " 65536 ": 65_536},
    "rank": {"0": 0, "65535": 65_535},
    "master": {"n": ("n", None), "[fd00::1]": ("fd00::1", None), "fd00::1": ("fd00::1", None), "n:1": ("n", 1)}
    | {"n.site:65535": ("n.site", 65_535), "[fd00::1]:29500": ("fd00::1", 29_500), "10.0.0.1:80": ("10.0.0.1", 80)},
    "timeout": {"1": 1.0, "1.5m": 90.0, "1h30m": 5400.0, "2d": 172_800.0, "7d": 604_800.0, ".5m": 30.0},
    "slots": {"gpus": "gpus", "cpus": "cpus", "1": 1, "65536": 65_536},
    "port_range": {"1024-65535": range(1024, 65_536), " 2000-2000 ": range(2000, 2001)},
    "port_hold": {"off": False, "on": True},
    "strict": {"driver,rdma": ("driver", "rdma"), "off": (), "true": FIELDS},
    "host_suffix": {".hsn.cm.site": ".hsn.cm.site", "-" + "a" * 252: "-" + "a" * 252},
    "quiet": {"yes": True},
    "key_file": {"/a/key": "/a/key", "/" + "a" * 4095: "/" + "a" * 4095},
    "via": {"hosts, master": ("hosts", "master")},
    "shell": {"a" * 64: "a" * 64},
    "multicast_ttl": {"1": 1, "32": 32},
}


def test_values_are_parsed_into_types(place: Place) -> None:
    for name, values in ACCEPTED.items():
        assert {text: getattr(place.load(**{name: text}), name) for text in values} == values
    for name, given, value in (("strict", ["driver", "rdma"], ("driver", "rdma")), ("strict", True, FIELDS)):
        assert getattr(place.load(**{name: given}), name) == value
    assert (place.load(strict="driver", no_strict=True).strict, place.load(strict="driver").strict) == ((), ("driver",))
    assert (place.load(rdma=True).rdma, place.load(insecure=True).insecure) == (True, True)


NONE_OF_THEM: dict[str, tuple[str, ...]] = {
    "id": ("a\nb", "x" * 256, "a\x1b[0m", b"\xff".decode(errors="surrogateescape")),
    "nodes": ("0", "65537", "three", "1e3", "9" * 400),
    "rank": ("-1", "65536", "\u0661"),
    "master": (
        *("", "node1:0", "node1:65536", "$(id)", "[fe80::1%eth0]:1", "a:b:c"),
        *("n1:", "[n1]:1", "[::1", "[::1]80", "fe80::1%3"),
    ),
    "scope": ("nodes",),
    "shell": ("sh;id", "_sh", "a" * 65),
    "via": ("a,,b", "hosts,other", ",".join(["a"] * 65)),
    "frameworks": ("$(id)",),
    "iface": ("^lo",),
    "port_range": (
        *("2000", "2001-2000", "1023-2000", "2000-65536", "-1-5", "a-b", "2000-2001-2002", "\u0662\u0660-\u0662\u0661"),
    ),
    "port_hold": ("maybe",),
    "strict": ("colour",),
    "timeout": ("0", "0.9", "604801", "1h x", "h", "169h", "nan", "5 minutes"),
    "slots": ("gpu", "0", "65537"),
    "key_file": ("", "/" + "a" * 4096),
    "directory": ("a\nb",),
    "host_suffix": ("-ib;id", "_ib", "a" * 254),
    "quiet": ("maybe",),
}
REFUSED = [(name, given) for name, texts in NONE_OF_THEM.items() for given in texts]


@pytest.mark.parametrize(("name", "given"), REFUSED)
def test_a_value_out_of_bounds_is_an_error_that_names_its_source(place: Place, name: str, given: str) -> None:
    """An option is the user's mistake, a variable that of a setting; empty ones are not set."""
    option, variable = next((s.option, s.variable) for s in TABLE if s.name == name)
    calls = [(option, UsageError, {}, {name: given}), (variable, SettingsError, {variable: given}, {})]
    for source, kind, environ, options in calls if given else calls[:1]:
        with pytest.raises(kind) as caught:
            place.load(environ, **options)
        assert source in caught.value.seen or len(given) > 200
        assert caught.value.is_about_arguments is (kind is UsageError)
        assert str(caught.value).isprintable()


def test_a_list_and_a_search_path_have_so_many_entries_at_most(place: Place) -> None:
    """What is longer is no list that anybody has typed."""
    assert len(place.load(iface=",".join(["eth0"] * 64)).iface) == 64
    with pytest.raises(UsageError, match="at most 64 entries"):
        place.load(iface=",".join(["eth0"] * 65))
    found = place.load({"MINGLE_TEMPLATES": ":".join(["/a"] * 64)})
    assert len(found.section("template")["directories"]) == 64
    with pytest.raises(SettingsError, match="at most 64 directories"):
        place.load({"MINGLE_TEMPLATES": ":".join(["/a"] * 65)})


def test_an_empty_id_is_refused_with_a_guess_why(place: Place) -> None:
    for given in ("", " ", "\t "):
        with pytest.raises(UsageError, match=r"an id that is not empty; saw an empty one \(is \$JOB set\?\)"):
            place.load(id=given)


WRONG_TYPES = ("via = [1]", "via = {}", 'quiet = "perhaps"', "quiet = 7", "port_range = 20000", "port_hold = 2")
WRONG_TYPES += ('key_file = "relative"', "iface = 1", "shell = 1979-05-27", "multicast = 3", "multicast.ttl = true")
VALUES = ("true", "[]", "nan", "inf", '"' + "9" * 5000 + '"')


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        *((line, f"{line.partition(' ')[0]} in SITE") for line in (*WRONG_TYPES, "hooks = []")),
        *((f"timeout = {value}", "timeout in SITE") for value in VALUES),
        ("timeuot = 3", "saw timeuot in SITE; try timeout"),
        ("[multicast]\nttll = 3", "saw multicast.ttll in SITE; try multicast.ttl"),
        ("[hooks]\nobserved = true", "saw hooks.observed in SITE; try hooks.observe"),
        ("[hook]\nobserve = true", "saw hook in SITE; try hooks"),
        *((line, f"saw {line.partition(' ')[0]} in SITE") for line in ('id = "job"', "insecure = true")),
        *((f"{head}tiemout = 7", "tiemout in SITE") for head in ("", "version = 1\n")),
        *(
            (f"version = {number}\nnews = 1", "version in SITE")
            for number in ("0", '"new"', "true", "1.5", "[2]", "1000")
        ),
        ('version = 2\ntimeout = "soon"', "timeout in SITE"),
        *((text, "expected a TOML file; saw SITE") for text in ("timeout =", "a = 1\na = 2", "a = " + "[" * 100_000)),
        # How deep a value may be before it cannot be read, or not be printed, differs between versions of Python.
        *((f"timeout{text}", "SITE") for text in (" = 0x" + "f" * 5000, "." + "a." * 1500 + "a = 1")),
    ],
)
def test_a_mistake_in_a_file_is_an_error_that_names_key_and_file(place: Place, text: str, seen: str) -> None:
    place.write(place.site, text)
    with pytest.raises(SettingsError) as caught:
        place.load()
    assert seen.replace("SITE", str(place.site)) in str(caught.value)


def test_names_are_valid_only_where_they_belong(place: Place) -> None:
    """Root's hooks are set up in the site's file; a mistyped variable is named with the nearest."""
    with pytest.raises(SettingsError, match=r"MINGLE_TIMEOT in the environment; try MINGLE_TIMEOUT"):
        place.load({"MINGLE_TIMEOT": "3"})
    place.write(place.user, "[hooks]\nobserve = true")
    with pytest.raises(SettingsError, match=r"hooks\.observe"):
        place.load()


def test_what_the_kubelet_sets_for_a_service_is_no_setting(place: Place) -> None:
    """Variables of a Service named mingle or mingle-key are ignored in a pod; a mistyped name is an error there too."""
    its = [*("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT"), *("PORT_80_TCP", "PORT_80_TCP_ADDR")]
    of_services = {f"MINGLE_{name}{end}": "tcp://10.0.0.1:80" for name in ("", "KEY_") for end in its}
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    assert place.load({**of_services, **pod, "MINGLE_PORT_RANGE": "30000-30010"}).port_range == range(30000, 30011)
    with pytest.raises(SettingsError, match="MINGLE_KEY_PORT in the environment"):
        place.load(of_services)
    with pytest.raises(SettingsError, match="MINGLE_TIMEOT in the environment"):
        place.load({**pod, "MINGLE_TIMEOT": "3"})


def test_a_file_is_text_of_at_most_a_mebibyte(place: Place) -> None:
    place.write(place.user, b"\xff\xfe")
    with pytest.raises(SettingsError, match=f"a TOML file; saw {place.user}"):
        place.load()
    place.write(place.user, "#" * (1 << 20))
    place.load()
    place.write(place.user, "#" * ((1 << 20) + 1))
    with pytest.raises(SettingsError, match="at most 1048576 bytes"):
        place.load()


@pytest.mark.parametrize("mode", [0o664, 0o646])
def test_a_file_that_others_can_write_is_refused(place: Place, mode: int) -> None:
    for path in (place.site, place.user):
        place.write(path, "timeout = 3")
        path.chmod(mode)
        with pytest.raises(SettingsError, match=f"chmod 0644 {path}"):
            place.load()
        path.unlink()


@only_with("root")
def test_only_the_sites_file_may_be_anybodys_as_containers_map_owners(place: Place) -> None:
    place.write(place.site, "timeout = 3")
    os.chown(place.site, 65_534, -1)
    assert place.load().timeout == 3
    place.write(place.user, "timeout = 3")
    os.chown(place.user, 12_345, -1)
    with pytest.raises(SettingsError, match="owned by uid 12345"):
        place.load()


def test_what_cannot_be_read_is_refused(place: Place) -> None:
    """What is no regular file, too: tests/unit/test_joining.py has each kind."""
    place.user.symlink_to(place.user)
    with pytest.raises(SettingsError, match="a readable settings file"):
        place.load()
    place.user.unlink()
    place.user.mkdir()
    with pytest.raises(SettingsError, match="a regular file"):
        place.load()


def test_every_setting_of_the_table_is_a_field_or_in_a_section_and_no_two_share_a_name() -> None:
    fields = list(Settings._fields)
    assert [setting.name for setting in TABLE if "." not in setting.name] == fields[: fields.index("sections")]
    assert {setting.name.partition(".")[0] for setting in TABLE if "." in setting.name} == set(SECTIONS)
    for column in ("name", "key", "variable", "option"):
        used = [getattr(setting, column) for setting in TABLE if getattr(setting, column)]
        assert sorted(used) == sorted(set(used))
    defaults = {s.name: s.default for s in TABLE if s.default not in (None, (), "", False)}
    assert " ".join(f"{name}={value}" for name, value in defaults.items()) == (
        "scope=node shell=sh port_range=range(20000, 25000) port_hold=True timeout=300.0 order=scheduler bind=none "
        "on_failure=exit multicast_ttl=1 version=1 "
        "template.launcher=torchrun hooks.cluster=cluster hooks.key_file=/etc/mingle/key hooks.containers=auto"
    )


def test_names_of_a_later_version_are_left_out_and_noted(place: Place) -> None:
    """After a roll back the newer file is still there: whoever knows less of it goes on with what is known."""
    place.write(place.site, 'version = 2\nnews = 1\ntimeout = 7\n[hooks]\nmore = "x"\n[table]\nx = 1\n')
    place.write(place.user, 'iface = "ib0"\n')
    settings = place.load()
    assert (settings.timeout, [name.text for name in settings.iface], settings.version) == (7.0, ["ib0"], 2)
    assert settings.left_out == tuple(f"{name} in {place.site}" for name in ("news", "hooks.more", "table"))


@pytest.mark.parametrize("head", ["", "version = 1\n"])
def test_the_version_of_one_file_is_not_the_others(place: Place, head: str) -> None:
    place.write(place.site, "version = 2")
    place.write(place.user, f"{head}tiemout = 7")
    with pytest.raises(SettingsError, match="tiemout in"):
        place.load()


def test_a_member_notes_what_is_left_out(place: Place) -> None:
    """The note has one line for each name, and the world forms."""
    place.write(place.user, "version = 2\nnews = 1")
    notes: list[str] = []
    assert join(id="a", nodes=1, environ={"HOME": str(place.home)}, note=notes.append).world.digest
    assert notes[0] == f"ignored news in {place.user}, which only a later version of mingle knows"


def test_options_are_handed_on_as_they_were_given() -> None:
    given = {"id": "a b", "quiet": True, "nodes": None, "insecure": False, "timeout": 5}
    assert option_arguments(given) == ("--id=a b", "--quiet", "--timeout=5")


def test_what_an_earlier_mingle_exported_is_left_behind_unless_it_was_changed() -> None:
    environ = {"MINGLE_EXPORTS": "A A=b=c B B=1 C", "A": "b=c", "B": "2", "C": "3"}
    assert left_behind(environ) == {"A", "A=b=c", "B=1", "C"}
    assert left_behind({"A": "1"}) == set()
