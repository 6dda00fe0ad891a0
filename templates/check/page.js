"use strict";
// Everything that comes from a host gets into the page as text.
(() => {
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("data").textContent), count = data.hosts.length;
  const names = data.hosts.map((name) => name.toLowerCase());
  const add = (parent, kind, text = "", its = "") => {
    const made = document.createElement(kind);
    made.textContent = text;
    made.className = its;
    parent.append(made);
    return made;
  };

  // Search and filter: of findings, of rows, and of tiles.

  const rowOf = new Map([...document.querySelectorAll("#hosts tbody tr:not(.all)")].map((row) => [row.cells[0].textContent, row]));
  const rows = data.hosts.map((name) => rowOf.get(name));
  const findings = [...document.querySelectorAll("#findings li")].map((line, i) => (
    { line, text: line.textContent.toLowerCase(), hosts: new Set(data.findings[i]) }));
  const about = data.hosts.map((_, i) => findings.filter((its) => its.hosts.has(i) && its.line.classList.contains("bad")));
  const tiles = [];

  function sift() {
    const text = find("search").value.trim().toLowerCase(), kind = find("show").value, exact = names.indexOf(text);
    const hits = new Set([...names.keys()].filter((i) => exact < 0 ? rows[i].textContent.toLowerCase().includes(text) : i === exact));
    const shown = new Set(kind ? [] : hits);
    for (const its of findings) {
      const says = exact < 0 && its.text.includes(text);
      const both = [...its.hosts].filter((i) => says || hits.has(i));
      its.line.hidden = (kind && !its.line.classList.contains(kind)) || !(says || both.length);
      if (!its.line.hidden) both.forEach((i) => shown.add(i));
    }
    data.hosts.forEach((_, i) => {
      rows[i].hidden = !shown.has(i);
      tiles[i]?.classList.toggle("faint", !shown.has(i));
    });
    find("hosts").classList.toggle("sifted", Boolean(text || kind));
    for (const more of document.querySelectorAll("details")) more.open = Boolean(text || kind);
    const some = findings.filter((its) => !its.line.hidden).length;
    find("shown").textContent = text || kind ? `${some} of ${findings.length} findings, ${shown.size} of ${count} hosts` : "";
  }
  find("tools").hidden = false;
  find("tools").addEventListener("input", sift);
  for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
  if (!data.pairs.some((its) => its.length)) return;

  // Paths of one network, by host and other host.

  const picture = find("picture");
  let ways = [], usual = {};
  const median = (found) => found.sort((a, b) => a - b)[found.length >> 1];

  // 0 is as it should be, 1 is bad, null is not known.
  const measures = {
    state: (way) => {
      const known = [measures.loss(way), measures.size(way), way.ports && Number(way.ports !== "open")].filter((its) => its !== null);
      return known.length ? Math.max(...known) : null;
    },
    loss: (way) => way.sent ? Math.min((1 - way.arrived / way.sent) * 4, 1) : null,
    rtt: (way) => way.rtt === null ? null : Math.min(Math.max(Math.log10(way.rtt / usual.rtt), 0), 1),
    size: (way) => way.mtu === null || !way.want ? null : Number(way.mtu < way.want),
    speed: (way) => way.speed === undefined ? null : Math.min(Math.max(1 - way.speed / usual.speed, 0) * 1.5, 1),
  };
  const grade = (way) => way ? measures[find("measure").value](way) : null;
  const shade = (its) => its === null ? "none" : `g${Math.round(its * 4)}`;

  function load(network) {
    ways = data.hosts.map(() => new Map());
    const mtus = data.mtus[network];
    const ports = (...tried) => tried.every((its) => its === null) ? null : tried.find((its) => its) || "open";
    for (const [one, ...rest] of data.pairs[network]) {
      for (let i = 0; i < rest.length; i += 3) {
        const [other, kind, rtt] = rest.slice(i, i + 3);
        const [sent, there, sentBack, back, mtu, openThere, openBack, freeThere, freeBack] = data.kinds[kind];
        const want = Math.min(mtus[one] || mtus[other], mtus[other] || mtus[one]);
        ways[one].set(other, { sent, arrived: there, rtt, mtu, want, ports: ports(openThere, freeThere) });
        ways[other].set(one, { sent: sentBack, arrived: back, rtt, mtu, want, ports: ports(openBack, freeBack) });
      }
    }
    for (const [one, other, on, speed] of data.flows) {
      const way = ways[one].get(other);
      if (on === network && way) way.speed = speed || 0;
    }
    const all = ways.flatMap((its) => [...its.values()]);
    usual = { rtt: median(all.map((way) => way.rtt).filter((its) => its !== null)) || 1,
      speed: median(all.map((way) => way.speed).filter((its) => its !== undefined)) || 1 };
  }

  // Beside the picture: what is known of a host, or of two.

  function tell(one, others) {
    find("which").textContent = [one, ...data.some ? [] : others].map((i) => data.hosts[i]).join(" and ");
    find("about").replaceChildren();
    find("ways").replaceChildren();
    for (const its of about[one].slice(0, 4)) add(find("about"), "li", its.line.childNodes[1].textContent.trim());
    if (!others.length) return;
    const line = (kind, cells) => {
      const row = add(find("ways"), "tr");
      for (const text of cells) add(row, kind, text);
    };
    line("th", ["WITH", "SENT", "RECEIVED", "RTT", "PACKET", "PORTS", ...data.flows.length ? ["MBIT/S"] : []]);
    for (const other of others) {
      const [to, from] = [ways[one].get(other), ways[other].get(one)];
      if (!to) line("td", [data.hosts[other], "not known"]);
      else line("td", [data.hosts[other], `${to.arrived} of ${to.sent}`, `${from.arrived} of ${from.sent}`,
        to.rtt === null ? "-" : `${(to.rtt / 1000).toFixed(2)} ms`, to.mtu === null ? "-" : to.mtu,
        [...new Set([to.ports, from.ports])].filter((its) => its).sort().join(", ") || "-",
        ...data.flows.length ? [[to.speed, from.speed].map((its) => its ?? "-").join(" / ")] : []]);
    }
  }

  // Of few hosts a square for each way; of many hosts a tile for each. Only marks change as the mouse moves.

  let paint, point; // point(row, column) marks what is there; of tiles, there is one row
  let here = [-1, -1];

  function drawMatrix() {
    const hosts = [...names.keys()].filter((i) => data.mtus.some((its) => its[i] !== false));
    const size = hosts.length, box = Math.min(Math.max(Math.floor(760 / size), 11), 36);
    const font = Math.min(box, 12);
    const short = hosts.map((i) => data.hosts[i]).map((name) => name.length > 18 ? `${name.slice(0, 8)}…${name.slice(-9)}` : name);
    const edge = Math.max(...short.map((name) => name.length)) * font * .62 + 8, all = edge + box * size + 2;
    const shape = (parent, kind, its) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
      for (const [name, value] of Object.entries(its)) made.setAttribute(name, value);
      parent.append(made);
      return made;
    };
    const svg = shape(picture, "svg", { width: all, height: all, viewBox: `0 0 ${all} ${all}`, "font-size": font });
    find("ways").classList.add("two");
    short.forEach((name, i) => {
      const middle = edge + (i + .5) * box, its = { class: about[hosts[i]].length ? "named" : "" };
      shape(svg, "text", { ...its, x: edge - 6, y: middle, "text-anchor": "end" }).textContent = name;
      shape(svg, "text", { ...its, transform: `translate(${middle},${edge - 6}) rotate(-90)` }).textContent = name;
    });
    const squares = hosts.map((_, row) => hosts.map((_, column) => shape(svg, "rect",
      { x: edge + column * box, y: edge + row * box, width: box - 1, height: box - 1 })));
    const bars = [{ x: edge, width: box * size, height: box }, { y: edge, width: box, height: box * size }].map(
      (its) => shape(svg, "rect", { ...its, class: "mark", visibility: "hidden" }));
    paint = () => squares.forEach((line, row) => line.forEach((square, column) => square.setAttribute("class",
      row === column ? "self" : shade(grade(ways[hosts[row]].get(hosts[column]))))));
    point = (row, column) => {
      if (row < 0 || column < 0 || row >= size || column >= size) return;
      here = [row, column];
      bars[0].setAttribute("y", edge + row * box);
      bars[1].setAttribute("x", edge + column * box);
      for (const bar of bars) bar.removeAttribute("visibility");
      tell(hosts[row], row === column ? [] : [hosts[column]]);
    };
    svg.addEventListener("mousemove", (event) => {
      const at = svg.getBoundingClientRect();
      const [row, column] = [event.clientY - at.top, event.clientX - at.left].map((its) => Math.floor((its - edge) / box));
      if (row !== here[0] || column !== here[1]) point(row, column);
    });
  }

  function drawTiles() {
    picture.className = "tiles";
    let next = 0;
    for (const rack of data.racks) {
      for (const last = next + rack; next < last;) {
        const hosts = [...names.keys()].slice(next, next = Math.min(next + 64, last));
        const block = add(picture, "div", "", "block");
        add(block, "small", [...new Set([hosts[0], hosts.at(-1)])].map((i) => data.hosts[i]).join(" – "));
        const line = add(block, "div");
        for (const i of hosts) {
          tiles.push(add(line, "i", rows[i].classList.contains("missing") ? "×" : about[i].length ? "!" : ""));
          tiles[i].title = data.hosts[i];
        }
      }
    }
    const numbers = new Map(tiles.map((tile, i) => [tile, i]));
    paint = () => tiles.forEach((tile, i) => {
      const both = [[...ways[i].values()], [...ways[i].keys()].map((other) => ways[other].get(i))].map(
        (its) => its.map(grade).filter((known) => known !== null)).filter((its) => its.length).map(median);
      tile.className = `${shade(both.length ? Math.max(...both) : null)}${about[i].length ? " named" : ""}`;
    });
    point = (_, i) => {
      if (i >= count) return;
      tiles[here[1]]?.classList.remove("mark");
      here = [0, i];
      tiles[i].classList.add("mark");
      tell(i, [...ways[i].keys()]);
    };
    picture.addEventListener("mousemove", (event) => {
      const i = numbers.get(event.target);
      if (i !== undefined && i !== here[1]) point(0, i);
    });
    picture.addEventListener("click", (event) => {
      if (!numbers.has(event.target)) return;
      find("search").value = event.target.title;
      sift();
    });
  }

  picture.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const [row, column] = [here[0] + step[0], here[1] + step[1] + (data.some ? step[0] * 16 : 0)]; // tiles in a block's line
    point(Math.max(row, 0), Math.max(column, 0));
  });
  const choose = () => {
    load(Number(find("network").value));
    paint();
    if (here[1] >= 0) point(...here);
    sift();
  };
  for (const name of ["network", "measure"]) find(name).addEventListener("change", choose);
  find("paths").hidden = false;
  find("ways").classList.toggle("fast", data.flows.length > 0);
  if (data.some) drawTiles();
  else drawMatrix();
  choose();
})();
