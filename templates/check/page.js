"use strict";
// Rows are who sends, columns who receives. Everything that comes from a host gets into the page as text.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("matrix");
  if (!canvas || !data.networks.length) return;
  const paint = canvas.getContext("2d"), count = data.hosts.length, named = new Set(data.named);
  const picked = (name) => document.querySelector(`input[name=${name}]:checked`).value;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  let here = null, box = 0, left = 0, top = 0, ways = new Map(), usual = {};

  // [from, to, network, sent, arrived, rtt_us, mtu, want, open, mbits]
  const at = (row, column) => ways.get(row * count + column);
  const share = (way) => way[3] ? 1 - way[4] / way[3] : null;
  const median = (found) => found.sort((a, b) => a - b)[found.length >> 1];

  // 0 is as it should be, 1 is bad, null is not known.
  const grades = {
    state: (way) => way[4] === 0 && way[8] !== "" ? 1 : Math.max(grades.loss(way) || 0, grades.size(way) || 0, way[8] ? 1 : 0),
    loss: (way) => share(way) === null ? null : Math.min(share(way) * 4, 1),
    rtt: (way) => way[5] === null ? null : Math.min(Math.max(Math.log10(way[5] / usual.rtt), 0), 1),
    size: (way) => way[6] === null || !way[7] ? null : way[6] < way[7] ? 1 : 0,
    speed: (way) => way[9] === null ? null : Math.min(Math.max(1 - way[9] / usual.speed, 0) * 1.5, 1),
  };

  const mix = (a, b, part) => {
    const [x, y] = [a, b].map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)));
    return `rgb(${x.map((value, i) => Math.round(value + (y[i] - value) * part)).join(",")})`;
  };
  const shade = (grade) => grade === null || grade === undefined ? colour("none")
    : grade < .5 ? mix(colour("good"), colour("some"), grade * 2) : mix(colour("some"), colour("bad"), grade * 2 - 1);

  const short = (text) => text.length > 18 ? `${text.slice(0, 8)}…${text.slice(-9)}` : text;

  function measure() {
    const room = Math.max(document.documentElement.clientWidth - 60, 320);
    paint.font = "12px ui-monospace, monospace";
    left = Math.ceil(Math.max(...data.hosts.map((name) => paint.measureText(short(name)).width))) + 12;
    top = left;
    box = Math.max(Math.min(Math.floor((Math.min(room, 1100) - left) / count), 30), data.some ? 4 : 3);
  }

  function draw() {
    measure();
    const wide = left + box * count + 2, scale = window.devicePixelRatio || 1;
    canvas.width = wide * scale;
    canvas.height = (top + box * count + 2) * scale;
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${top + box * count + 2}px`;
    paint.setTransform(scale, 0, 0, scale, 0, 0);
    paint.clearRect(0, 0, wide, top + box * count + 2);
    const grade = grades[picked("measure")], gap = box > 8 ? 1 : 0;
    const blank = shade(null), self = colour("self"), known = new Map();
    for (let row = 0; row < count; row++) {
      for (let column = 0; column < count; column++) {
        const way = at(row, column), key = way ? grade(way) : null;
        if (!known.has(key)) known.set(key, shade(key));
        paint.fillStyle = row === column ? self : way ? known.get(key) : blank;
        paint.fillRect(left + column * box, top + row * box, box - gap, box - gap);
      }
    }
    if (box < 8) stress(grade);
    label();
    if (here) {
      paint.strokeStyle = colour("mark");
      paint.lineWidth = 2;
      paint.strokeRect(left, top + here[0] * box, box * count, box);
      if (here[1] >= 0) paint.strokeRect(left + here[1] * box, top, box, box * count);
    }
  }

  // What is bad is larger than its square where that is a point.
  function stress(grade) {
    for (const [row, column] of ways.values()) {
      const its = grade(at(row, column));
      if (its === null || its < .5) continue;
      paint.fillStyle = shade(its);
      paint.fillRect(left + column * box - 2, top + row * box - 2, box + 4, box + 4);
    }
  }

  // Every so many names, as many as there is room for; those that something was found about always.
  function label() {
    const step = Math.ceil(14 / box), taken = [];
    const show = [...Array(count).keys()].filter((i) => named.has(i) || (here && here.includes(i)));
    const rest = [...Array(count).keys()].filter((i) => i % step === 0);
    paint.font = "12px ui-monospace, monospace";
    paint.textBaseline = "middle";
    for (const i of [...show, ...rest]) {
      const middle = i * box + box / 2;
      if (taken.some((other) => Math.abs(other - middle) < 13)) continue;
      taken.push(middle);
      paint.fillStyle = named.has(i) ? colour("bad") : colour("soft");
      paint.textAlign = "right";
      paint.fillText(short(data.hosts[i]), left - 6, top + middle);
      paint.save();
      paint.translate(left + middle, top - 6);
      paint.rotate(-Math.PI / 2);
      paint.textAlign = "left";
      paint.fillText(short(data.hosts[i]), 0, 0);
      paint.restore();
    }
  }

  // Where each host was probed with some others only: what most of its ways are like, one way or the other.
  function tile() {
    const map = document.getElementById("tiles");
    if (!map) return;
    const grade = grades[picked("measure")], found = data.hosts.map(() => [[], []]);
    for (const way of ways.values()) {
      const its = grade(way);
      if (its === null) continue;
      found[way[0]][0].push(its);
      found[way[1]][1].push(its);
    }
    map.replaceChildren();
    data.hosts.forEach((name, i) => {
      const made = document.createElement("span"), both = found[i].filter((its) => its.length).map(median);
      const its = both.length ? Math.max(...both) : null;
      made.textContent = short(name);
      made.title = name;
      made.className = named.has(i) ? "named" : "";
      made.style.background = shade(its);
      if (its !== null) made.style.color = colour("panel");
      made.addEventListener("mouseenter", () => point(i, -1));
      map.append(made);
    });
  }

  function tell() {
    const list = document.getElementById("way");
    list.replaceChildren();
    const say = (what, value) => {
      for (const [kind, text] of [["dt", what], ["dd", value]]) {
        const made = document.createElement(kind);
        made.textContent = text;
        list.append(made);
      }
    };
    if (!here) return;
    const [row, column] = here, way = at(row, column);
    if (column < 0) {
      say("host", data.hosts[row]);
      for (const its of ways.values()) {
        if (its[0] === row) say(`to ${data.hosts[its[1]]}`, words(its));
        if (its[1] === row) say(`from ${data.hosts[its[0]]}`, words(its));
      }
      return;
    }
    say("from", data.hosts[row]);
    say("to", data.hosts[column]);
    if (row === column) return;
    if (!way) return say("", "not probed");
    say("arrived", `${way[4]} of ${way[3]} datagrams`);
    say("round trip", way[5] === null ? "unknown" : `${(way[5] / 1000).toFixed(2)} ms`);
    say("largest packet", way[6] === null ? "unknown" : `${way[6]} octets`);
    say("TCP", way[8] === null ? "not tried" : way[8] || "open");
    if (way[9] !== null) say("one connection", `${way[9]} Mbit/s`);
  }

  const words = (way) => [
    `${way[4]} of ${way[3]}`,
    way[5] === null ? "" : `${(way[5] / 1000).toFixed(2)} ms`,
    way[6] === null ? "" : `${way[6]} octets`,
    way[8] || "",
    way[9] === null ? "" : `${way[9]} Mbit/s`,
  ].filter((its) => its).join(", ");

  function choose() {
    const network = Number(picked("network"));
    const mine = data.ways.filter((way) => way[2] === network);
    ways = new Map(mine.map((way) => [way[0] * count + way[1], way]));
    usual = {
      rtt: median(mine.map((way) => way[5]).filter((its) => its !== null)) || 1,
      speed: median(mine.map((way) => way[9]).filter((its) => its !== null)) || 1,
    };
    draw();
    tile();
    tell();
  }

  function point(row, column) {
    here = row >= 0 && column >= -1 && row < count && column < count ? [row, column] : null;
    draw();
    tell();
  }

  canvas.addEventListener("mousemove", (event) => {
    const edge = canvas.getBoundingClientRect();
    const [row, column] = [event.clientY - edge.top - top, event.clientX - edge.left - left].map((its) => Math.floor(its / box));
    point(column < 0 ? -1 : row, column);
  });
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    const [row, column] = here || [0, 0];
    point(Math.min(Math.max(row + step[0], 0), count - 1), Math.min(Math.max(column + step[1], 0), count - 1));
  });
  for (const input of document.querySelectorAll("input")) input.addEventListener("change", choose);
  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", choose);
  choose();
})();
