"""The page of `mingle check` in a real browser: how it looks, what can be read, and what a mouse and a keyboard do."""

from pathlib import Path

import pytest
from browser import browser
from needs import only_with
from support.check_reports import fingerprint, report

from mingle_hooks.check.report import Host, Pair, report_page

pytestmark = only_with("chromium")
PROBE = (Path(__file__).parents[2] / "data/check_page.js").read_text()
BROKEN = {
    "node1": {"faults": ("<img src=x onerror=alert(1)>",)},
    "node2": {"fingerprint": fingerprint(gpus="7 H100"), "gpus": 7},
    "node3": {"missing": "No route to host", "addresses": ()},
}
TAB, RIGHT = ("Tab", 9), ("ArrowRight", 39)


def broken(its: Host) -> Host:
    """Return the host, with a fault if it is one of the first."""
    return its._replace(**BROKEN.get(its.name, {}))


def lossy(pair: Pair) -> Pair:
    """Return the pair; half of what is sent to the fourth host is lost."""
    return pair._replace(there=5) if pair.other == "node4" else pair


@pytest.mark.parametrize("count", [4, 64, 1024])
def test_the_page_can_be_read_and_used(count: int, tmp_path: Path) -> None:
    """It leaves pictures in its folder (-o tmp_path_retention_policy=all), and prints what a mouse move takes."""
    file = tmp_path / f"{count}.html"
    file.write_text(report_page(report(count, broken, pair=lossy), "4711", "2026-11-26 15:06:44 +0000"))
    with browser(tmp_path / "profile") as tab:

        def press(key: str, code: int) -> None:
            tab.ask("Input.dispatchKeyEvent", type="rawKeyDown", key=key, windowsVirtualKeyCode=code)

        for scheme in ("dark", "light"):
            tab.open(file, scheme)
            tab.run(PROBE)
            tab.ask("Input.dispatchMouseEvent", type="mouseMoved", **tab.run("probe.place(1)"))
            contrast, where = tab.run("probe.contrast()")
            assert contrast >= 4.5, where
            tab.shoot(tmp_path / f"{count}-{scheme}.png")
        tab.run("probe.watch()")
        tab.ask("Input.dispatchMouseEvent", type="mouseMoved", **tab.run("probe.place(2)"))
        assert 0 < tab.run("probe.changes") < 250
        assert tab.run("probe.told()") == {4: "node1 and node4", 64: "node1 and node4", 1024: "node3"}[count]
        print(f"a move at {count} hosts: {tab.run('probe.move_ms()'):.2f} ms")  # noqa: T201

        tab.open(file, "light")
        tab.run(PROBE)
        reached = [press(*TAB) or tab.run("document.activeElement.id") for _ in range(5)]
        assert reached == ["search", "show", "network", "measure", "picture"]
        press(*RIGHT)
        assert tab.run("probe.told()") == "node1"
        tab.run('document.getElementById("search").focus()')
        tab.ask("Input.insertText", text="node2")
        assert tab.run("probe.rows()") == ["node2"]
        assert any("7 H100" in text for text in tab.run("probe.findings()"))
        assert tab.run('document.querySelector("img")') is None

        tab.ask("Emulation.setScriptExecutionDisabled", value=True)
        tab.open(file, "light")
        tab.shoot(tmp_path / f"{count}-without-script.png")
    assert tab.errors == []
