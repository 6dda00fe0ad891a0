// What the tests of the page of `mingle check` ask in it; `picture` has its squares or tiles.
globalThis.probe = (() => {
  const rgb = (text) => text.match(/[\d.]+/g).map((its, i) => its * (text.startsWith("color(") && i < 3 ? 255 : 1));
  const light = (text) => rgb(text).slice(0, 3).map((its) => its / 255)
    .map((its) => its <= .04045 ? its / 12.92 : ((its + .055) / 1.055) ** 2.4)
    .reduce((sum, its, i) => sum + its * [.2126, .7152, .0722][i], 0);
  const ground = (its, part) => {
    const colour = getComputedStyle(its, part).backgroundColor;
    return rgb(colour)[3] !== 0 ? colour : ground(part ? its : its.parentElement);
  };
  const contrast = (its, part) => {
    const style = getComputedStyle(its, part);
    const [less, more] = [its instanceof SVGElement ? style.fill : style.color, ground(its, part)].map(light).sort();
    return (more + .05) / (less + .05);
  };
  const places = () => [...document.querySelectorAll("#picture rect:not(.mark), #picture i")];
  const visible = (all) => [...document.querySelectorAll(all)].filter((its) => its.checkVisibility());
  return {
    // The lowest contrast of a text to what is behind it (WCAG 2.1, 1.4.3), and that text.
    contrast() {
      const all = [[document.querySelector(".verdict"), "::before"], [document.querySelector("#search"), "::placeholder"]];
      const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) {
        const { data, parentElement } = texts.currentNode;
        if (data.trim() && parentElement.checkVisibility()) all.push([parentElement, null]);
      }
      return all.map(([its, part]) => [contrast(its, part), its.outerHTML.slice(0, 80)]).sort((a, b) => a[0] - b[0])[0];
    },
    place(number) {
      places()[number].scrollIntoView({ block: "center" });
      const { x, y } = places()[number].getBoundingClientRect();
      return { x: x + 3, y: y + 3 };
    },
    // From here on, count in `probe.changes` what changes.
    watch() {
      probe.changes = 0;
      new MutationObserver((all) => all.forEach((its) => {
        probe.changes += 1 + its.addedNodes.length + its.removedNodes.length;
      })).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
    },
    // The median of a move from one place to another in milliseconds, with its layout.
    move_ms() {
      const took = places().slice(0, 100).map((its) => {
        const { x, y } = its.getBoundingClientRect(), began = performance.now();
        its.dispatchEvent(new MouseEvent("mousemove", { bubbles: true, clientX: x + 3, clientY: y + 3 }));
        document.body.getBoundingClientRect();
        return performance.now() - began;
      });
      return took.sort((a, b) => a - b)[took.length >> 1];
    },
    told: () => document.getElementById("which").textContent,
    rows: () => visible("#hosts tbody tr").map((its) => its.cells[0].textContent.trim()),
    findings: () => visible("#findings li").map((its) => its.textContent),
  };
})();
