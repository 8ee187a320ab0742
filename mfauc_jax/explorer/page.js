"use strict";
(() => {
const $ = (id) => document.getElementById(id);
const data = JSON.parse($("contents").textContent);
const { items, users } = data;

// ---- contents ----
const raw = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
const had = new Uint32Array(raw(items.had)), shown = new Uint32Array(raw(items.shown));
const flat = new Int16Array(raw(items.map)), near = new Int32Array(raw(items.near));
const cosine = new Int16Array(raw(items.cosine)), category = new Uint8Array(raw(items.category));
const userHad = new Uint32Array(raw(users.had)), lists = new Int32Array(raw(users.lists));
const scores = new Float32Array(raw(users.scores)), why = new Int32Array(raw(users.why));
const added = new Float32Array(raw(users.added)), seen = new Int32Array(raw(users.seen));
const seenStart = [0];
for (const count of new Uint8Array(raw(users.seen_counts))) seenStart.push(seenStart.at(-1) + count);
const title = (j) => (items.titles ? items.titles[j] : items.ids[j]);
const whole = (x) => x.toLocaleString("en");
const short = (x) => (x === null || x === undefined ? "–" : String(Number(x.toPrecision(4))).replace("-", "−"));
const fixed = (x) => (x === null || x === undefined ? "–" : x.toFixed(4).replace("-", "−"));
const percent = (x) => `${(100 * x).toFixed(x < 0.1 ? 1 : 0)} %`;

// ---- elements; text goes in by textContent only ----
function make(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}
function fill(parent, ...nodes) { parent.replaceChildren(...nodes); return parent; }
function row(...cells) {
  const tr = make("tr");
  for (const cell of cells) {
    if (cell instanceof Node && cell.tagName === "TD") tr.append(cell);
    else { const td = make("td"); td.append(cell); tr.append(td); }
  }
  return tr;
}
const number = (text) => make("td", text, "number");
function itemLink(j) {
  const link = make("button", title(j), "link");
  link.dataset.item = j;
  link.addEventListener("click", () => openItem(j));
  return link;
}
function bar(text, share) {
  const cell = make("td", text, "number score");
  cell.style.backgroundSize = `${Math.round(80 * Math.max(0, Math.min(1, share)))}% 3px`;
  return cell;
}

// ---- search: a button per result, thirty at most ----
const MOST = 30;
function search(words, texts) {
  const wanted = words.trim().toLowerCase(), first = [], later = [];
  if (!wanted) return [];
  for (let at = 0; at < texts.length && first.length < MOST; at++) {
    const place = texts[at].indexOf(wanted);
    if (place === 0) first.push(at);
    else if (place > 0 && later.length < MOST) later.push(at);
  }
  return first.concat(later).slice(0, MOST);
}
function searchBox(name, texts, caption, small, choose, found) {
  const input = $(`${name}-search`), results = $(`${name}-results`);
  const pick = (at) => { results.hidden = true; input.value = ""; found([]); choose(at); };
  const update = () => {
    const hits = search(input.value, texts);
    found(hits);
    results.hidden = !input.value.trim();
    const rows = hits.map((at) => {
      const li = make("li"), button = make("button", caption(at));
      if (small(at)) button.append(" ", make("small", small(at)));
      button.addEventListener("click", () => pick(at));
      li.append(button);
      return li;
    });
    if (!rows.length) rows.push(make("li", "nothing found on this page", "note"));
    fill(results, ...rows);
  };
  input.addEventListener("input", update);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { input.value = ""; update(); }
    if (event.key === "Enter") { const hits = search(input.value, texts); if (hits.length) pick(hits[0]); }
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".search")) results.hidden = true;
  });
}

// ---- pictures ----
const colours = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["back", "panel", "ink", "soft", "line", "accent", "mark", "other"])
    colours[name] = style.getPropertyValue(`--${name}`).trim();
}
readColours();
const RAMP = ["#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#f1d51c"];
const KINDS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#7f3fbf", "#bcbd22", "#e377c2"];
const plots = [];
const linear = (v) => v, log = (v) => Math.log10(1 + v);

class Plot {
  // x, y: arrays; how: {axes, xScale, yScale, xLabel, yLabel, tip(i), click(i), bucket: Uint8Array, bucketColours(), over(plot)}
  constructor(canvas, x, y, how) {
    this.canvas = canvas; this.tip = canvas.parentElement.querySelector(".tip"); this.how = how;
    this.xScale = how.xScale || linear; this.yScale = how.yScale || linear;
    this.x = Float64Array.from(x, this.xScale); this.y = Float64Array.from(y, this.yScale);
    this.size = how.size || 3; this.hovered = -1; this.pending = false;
    this.home = how.range || this.range();
    this.reset(); this.buildIndex(); this.sortByBucket(how.bucket); this.listen();
    plots.push(this);
  }
  range() {
    const ends = (a) => {
      let low = Infinity, high = -Infinity;
      for (const v of a) { if (v < low) low = v; if (v > high) high = v; }
      if (!(low <= high)) [low, high] = [0, 1];
      const margin = 0.04 * (high - low) || 0.5;
      return [low - margin, high + margin];
    };
    return [...ends(this.x), ...ends(this.y)];
  }
  reset() { this.view = this.home.slice(); this.draw(); }
  // a uniform grid over the points, so that the mouse asks a few cells and not every point
  buildIndex() {
    const n = this.x.length, side = Math.max(1, Math.min(256, Math.round(Math.sqrt(n))));
    const [x0, x1, y0, y1] = this.home;
    this.cell = (v, low, high) => Math.max(0, Math.min(side - 1, Math.floor(((v - low) / (high - low)) * side)));
    this.side = side; this.start = new Int32Array(side * side + 1); this.order = new Int32Array(n);
    const at = new Int32Array(n);
    for (let i = 0; i < n; i++) {
      at[i] = this.cell(this.y[i], y0, y1) * side + this.cell(this.x[i], x0, x1);
      this.start[at[i] + 1]++;
    }
    for (let c = 0; c < side * side; c++) this.start[c + 1] += this.start[c];
    const next = this.start.slice();
    for (let i = 0; i < n; i++) this.order[next[at[i]]++] = i;
  }
  nearest(px, py, reach) {
    const [a, b] = [this.fromScreen(px - reach, py + reach), this.fromScreen(px + reach, py - reach)];
    const [x0, x1, y0, y1] = this.home;
    let best = -1, least = reach * reach;
    for (let r = this.cell(a[1], y0, y1); r <= this.cell(b[1], y0, y1); r++)
      for (let c = this.cell(a[0], x0, x1); c <= this.cell(b[0], x0, x1); c++)
        for (let k = this.start[r * this.side + c]; k < this.start[r * this.side + c + 1]; k++) {
          const i = this.order[k], [sx, sy] = this.toScreen(this.x[i], this.y[i]);
          const distance = (sx - px) ** 2 + (sy - py) ** 2;
          if (distance < least) { least = distance; best = i; }
        }
    return best;
  }
  sortByBucket(bucket) {  // points of one colour are drawn together
    const n = this.x.length, counts = new Int32Array(257);
    this.bucket = bucket || new Uint8Array(n);
    for (let i = 0; i < n; i++) counts[this.bucket[i] + 1]++;
    for (let c = 0; c < 256; c++) counts[c + 1] += counts[c];
    this.bucketStart = counts.slice(); this.drawOrder = new Int32Array(n);
    for (let i = 0; i < n; i++) this.drawOrder[counts[this.bucket[i]]++] = i;
    this.draw();
  }
  box() {
    const { clientWidth: w, clientHeight: h } = this.canvas;
    return this.how.axes ? [70, w - 12, h - 42, 12] : [0, w, h, 0];  // left, right, bottom, top
  }
  toScreen(x, y) {
    const [l, r, b, t] = this.box(), [x0, x1, y0, y1] = this.view;
    return [l + ((x - x0) / (x1 - x0)) * (r - l), b - ((y - y0) / (y1 - y0)) * (b - t)];
  }
  fromScreen(px, py) {
    const [l, r, b, t] = this.box(), [x0, x1, y0, y1] = this.view;
    return [x0 + ((px - l) / (r - l)) * (x1 - x0), y0 + ((b - py) / (b - t)) * (y1 - y0)];
  }
  zoom(factor, px, py) {
    const [l, r, b, t] = this.box(), [cx, cy] = this.fromScreen(px ?? (l + r) / 2, py ?? (b + t) / 2);
    const [x0, x1, y0, y1] = this.view;
    if ((x1 - x0) * factor > 1.5 * (this.home[1] - this.home[0])) return this.reset();
    if ((x1 - x0) * factor < 1e-3 * (this.home[1] - this.home[0])) return;
    this.view = [cx + (x0 - cx) * factor, cx + (x1 - cx) * factor, cy + (y0 - cy) * factor, cy + (y1 - cy) * factor];
    this.draw();
  }
  centre(i) {
    const [x0, x1, y0, y1] = this.view, [px, py] = this.toScreen(this.x[i], this.y[i]), [l, r, b, t] = this.box();
    if (px > l + 20 && px < r - 20 && py > t + 20 && py < b - 20) return this.draw();
    const w = (x1 - x0) / 2, h = (y1 - y0) / 2;
    this.view = [this.x[i] - w, this.x[i] + w, this.y[i] - h, this.y[i] + h];
    this.draw();
  }
  listen() {
    const place = (event) => {
      const frame = this.canvas.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    };
    const pointers = new Map();
    let moved = 0;
    this.canvas.addEventListener("pointerdown", (event) => {
      pointers.set(event.pointerId, place(event)); moved = 0;
      if (this.how.pan) this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const [px, py] = place(event), before = pointers.get(event.pointerId);
      if (before && this.how.pan) {
        const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, p]) => p);
        moved += Math.abs(px - before[0]) + Math.abs(py - before[1]);
        if (others.length) {
          const [ox, oy] = others[0];
          const was = Math.hypot(before[0] - ox, before[1] - oy), is = Math.hypot(px - ox, py - oy);
          this.zoom(Math.max(0.5, Math.min(2, was / Math.max(is, 1))), ox, oy);
        } else if (moved > 4) {
          const [a, b] = [this.fromScreen(...before), this.fromScreen(px, py)];
          const [dx, dy] = [a[0] - b[0], a[1] - b[1]];
          this.view = [this.view[0] + dx, this.view[1] + dx, this.view[2] + dy, this.view[3] + dy];
          this.draw();
        }
        pointers.set(event.pointerId, [px, py]);
      }
      this.hover(px, py);
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const [px, py] = place(event), i = this.nearest(px, py, event.pointerType === "touch" ? 18 : 9);
      if (pointers.has(event.pointerId) && moved <= 4 && i >= 0 && this.how.click) this.how.click(i);
      pointers.delete(event.pointerId);
    });
    this.canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
    this.canvas.addEventListener("pointerleave", () => { this.hovered = -1; this.tip.hidden = true; this.draw(); });
    if (this.how.pan)
      this.canvas.addEventListener("wheel", (event) => {
        event.preventDefault();
        this.zoom(event.deltaY > 0 ? 1.25 : 0.8, ...place(event));
      }, { passive: false });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }
  hover(px, py) {
    const i = this.nearest(px, py, 9);
    if (i !== this.hovered) { this.hovered = i; this.draw(); }
    this.tip.hidden = i < 0;
    if (i < 0) return;
    this.tip.textContent = this.how.tip(i);
    const w = this.canvas.clientWidth, h = this.canvas.clientHeight;
    this.tip.style.left = `${Math.max(4, Math.min(px + 14, w - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${py + 18 + this.tip.offsetHeight > h ? py - this.tip.offsetHeight - 8 : py + 14}px`;
  }
  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => { this.pending = false; this.paint(); });
  }
  paint() {
    const { canvas } = this, w = canvas.clientWidth, h = canvas.clientHeight, ratio = window.devicePixelRatio || 1;
    if (!w || !h) return;
    if (canvas.width !== Math.round(w * ratio)) canvas.width = Math.round(w * ratio);
    if (canvas.height !== Math.round(h * ratio)) canvas.height = Math.round(h * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.fillStyle = colours.back; pen.fillRect(0, 0, w, h);
    if (this.how.axes) this.axes(pen);
    const [l, r, b, t] = this.box();
    pen.save(); pen.beginPath(); pen.rect(l, t, r - l, b - t); pen.clip();
    const fills = this.how.bucketColours(), size = this.size, half = size / 2, round = this.x.length <= 6000;
    const [x0, x1, y0, y1] = this.view, sx = (r - l) / (x1 - x0), sy = (b - t) / (y1 - y0);
    pen.globalAlpha = this.how.alpha || 0.8;
    for (let c = 0; c < fills.length; c++) {
      pen.fillStyle = fills[c];
      for (let k = this.bucketStart[c]; k < this.bucketStart[c + 1]; k++) {
        const i = this.drawOrder[k], px = l + (this.x[i] - x0) * sx, py = b - (this.y[i] - y0) * sy;
        if (px < l - size || px > r + size || py < t - size || py > b + size) continue;
        if (round) { pen.beginPath(); pen.arc(px, py, half, 0, 7); pen.fill(); }
        else pen.fillRect(px - half, py - half, size, size);
      }
    }
    pen.globalAlpha = 1;
    if (this.how.over) this.how.over(this, pen);
    if (this.hovered >= 0) this.ring(pen, this.hovered, 6, colours.ink);
    pen.restore();
    this.canvas.dataset.painted = String(1 + Number(this.canvas.dataset.painted || 0));
  }
  ring(pen, i, radius, colour) {
    const [px, py] = this.toScreen(this.x[i], this.y[i]);
    pen.strokeStyle = colour; pen.lineWidth = 2;
    pen.beginPath(); pen.arc(px, py, radius, 0, 7); pen.stroke();
  }
  axes(pen) {
    const [l, r, b, t] = this.box(), [x0, x1, y0, y1] = this.view;
    pen.font = "12px system-ui, sans-serif"; pen.strokeStyle = colours.line; pen.fillStyle = colours.soft; pen.lineWidth = 1;
    pen.textAlign = "center"; pen.textBaseline = "top";
    let last = -Infinity;
    for (const [value, text] of ticks(x0, x1, this.xScale, (r - l) / 70, this.how.wholeX)) {
      const [px] = this.toScreen(value, y0);
      pen.beginPath(); pen.moveTo(px, t); pen.lineTo(px, b); pen.stroke();
      if (px - last > 34) { pen.fillText(text, px, b + 5); last = px; }
    }
    pen.textAlign = "right"; pen.textBaseline = "middle"; last = Infinity;
    for (const [value, text] of ticks(y0, y1, this.yScale, (b - t) / 50)) {
      const [, py] = this.toScreen(x0, value);
      pen.beginPath(); pen.moveTo(l, py); pen.lineTo(r, py); pen.stroke();
      if (Math.abs(py - last) > 13) { pen.fillText(text, l - 6, py); last = py; }
    }
    pen.textAlign = "center"; pen.textBaseline = "bottom"; pen.fillStyle = colours.ink;
    pen.fillText(this.how.xLabel, (l + r) / 2, this.canvas.clientHeight - 4);
    pen.save(); pen.translate(14, (t + b) / 2); pen.rotate(-Math.PI / 2); pen.fillText(this.how.yLabel, 0, 4); pen.restore();
  }
}
function ticks(low, high, scale, most, wholes) {
  const found = [];
  if (scale === log) {
    const values = [0];
    for (let p = 1; p <= 1e9; p *= 10) values.push(p, ...(high - low < 3.2 ? [2 * p, 5 * p] : []));
    for (const v of values) if (log(v) >= low && log(v) <= high) found.push([log(v), whole(v)]);
    return found;
  }
  const rough = (high - low) / Math.max(2, most), power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(wholes ? 1 : 0, power * ([1, 2, 5, 10].find((f) => f * power >= rough) || 10));
  for (let v = Math.ceil(low / step) * step; v <= high + 1e-9 * step; v += step)
    found.push([v, Number(v.toPrecision(6)).toLocaleString("en", { maximumSignificantDigits: 5 }).replace("-", "−")]);
  return found;
}

// ---- tabs ----
const tabs = [...document.querySelectorAll("[role=tab]")];
function openTab(name) {
  for (const tab of tabs) {
    tab.setAttribute("aria-selected", String(tab.dataset.tab === name));
    $(tab.dataset.tab).hidden = tab.dataset.tab !== name;
  }
  started[name]?.(); delete started[name];
}
for (const tab of tabs) tab.addEventListener("click", () => openTab(tab.dataset.tab));

// ---- lists ----
let user = -1;
function openUser(at) {
  user = at;
  $("user-name").textContent = `User ${users.ids[at]}`;
  const mine = seen.subarray(seenStart[at], seenStart[at + 1]), many = userHad[at] > mine.length;
  $("user-seen-note").textContent = `This user has ${whole(userHad[at])} ${userHad[at] === 1 ? "item" : "items"} in training` +
    (many ? `, ${mine.length} of which are` : "");
  fill($("user-seen"), ...Array.from(mine, itemLink));
  const rows = [], first = at * users.length;
  let top = 0;
  for (let r = 0; r < users.length; r++) if (lists[first + r] >= 0) top = Math.max(top, scores[first + r]);
  for (let r = 0; r < users.length; r++) {
    const j = lists[first + r];
    if (j < 0) continue;
    const cell = make("td");
    for (let k = 0; k < users.reasons; k++) {
      const place = (first + r) * users.reasons + k;
      if (why[place] < 0) continue;
      if (cell.childNodes.length) cell.append(", ");
      cell.append(itemLink(why[place]), make("small", ` +${Number(added[place].toPrecision(2))}`));
    }
    rows.push(row(number(String(r + 1)), itemLink(j), bar(short(scores[first + r]), scores[first + r] / (top || 1)), cell));
  }
  if (!rows.length) { const cell = make("td", "nothing is left to list: this user has every item"); cell.colSpan = 4; rows.push(row(cell)); }
  fill($("list").tBodies[0], ...rows);
  $("why-note").textContent = at < users.explained
    ? "The score is the sum of what each of the user's own items adds to it, of which the three largest are shown, and a small rest."
    : `No reasons here: ${users.why_not}.`;
}
$("user-count").textContent = users.count === users.all
  ? `${whole(users.count)} users` : `${whole(users.count)} of ${whole(users.all)} users are on this page`;
$("user-random").addEventListener("click", () => openUser(Math.floor(Math.random() * users.count)));
$("user-before").addEventListener("click", () => openUser((user + users.count - 1) % users.count));
$("user-after").addEventListener("click", () => openUser((user + 1) % users.count));
searchBox("user", users.ids.map((id) => id.toLowerCase()), (at) => users.ids[at],
  (at) => `${whole(userHad[at])} items`, openUser, () => {});

// ---- the map of the items ----
let item = -1, hits = [], map = null;
function colouring(name) {
  const n = items.count, bucket = new Uint8Array(n), legend = [];
  if (name === "category") {
    const most = Math.min(items.categories.length - 1, KINDS.length);
    for (let j = 0; j < n; j++) bucket[j] = category[j] < most ? category[j] + 1 : 0;
    for (let c = 0; c < most; c++) legend.push([KINDS[c], items.categories[c]]);
    legend.push([null, "other or none"]);
    return { bucket, fills: () => [colours.other, ...KINDS], legend };
  }
  const values = name === "popularity" ? had : shown;
  let most = 1;
  for (const v of values) if (v > most) most = v;
  const top = log(most);
  for (let j = 0; j < n; j++) bucket[j] = Math.min(RAMP.length - 1, Math.floor((log(values[j]) / top) * RAMP.length));
  for (const c of [0, 3, 6, 9]) {
    const low = c === 9 ? most : Math.ceil(10 ** ((c / RAMP.length) * top) - 1);
    legend.push([RAMP[c], `${whole(low)} ${name === "popularity" ? "users" : "lists"}`]);
  }
  return { bucket, fills: () => RAMP, legend };
}
function recolour() {
  const { bucket, fills, legend } = colouring($("colour").value);
  map.how.bucketColours = fills; map.sortByBucket(bucket);
  fill($("legend"), ...legend.map(([colour, text]) => {
    const chip = make("span"), dot = make("i");
    dot.style.background = colour || "var(--other)";
    chip.append(dot, text);
    return chip;
  }));
}
function startMap() {
  const n = items.count, x = new Float64Array(n), y = new Float64Array(n);
  for (let j = 0; j < n; j++) { x[j] = flat[2 * j]; y[j] = flat[2 * j + 1]; }
  const { bucket, fills } = colouring("popularity");
  map = new Plot($("map-canvas"), x, y, {
    pan: true, bucket, bucketColours: fills, size: n > 20000 ? 2.5 : n > 2000 ? 4 : 6,
    tip: (j) => `${title(j)}, ${whole(had[j])} users`, click: openItem,
    over: (plot, pen) => {
      for (const j of hits) plot.ring(pen, j, 5, colours.mark);
      if (item < 0) return;
      pen.strokeStyle = colours.mark; pen.lineWidth = 1;
      const [px, py] = plot.toScreen(plot.x[item], plot.y[item]);
      for (const [j] of neighbours(item)) {
        const [qx, qy] = plot.toScreen(plot.x[j], plot.y[j]);
        pen.beginPath(); pen.moveTo(px, py); pen.lineTo(qx, qy); pen.stroke();
      }
      plot.ring(pen, item, 8, colours.mark);
      pen.font = "600 13px system-ui, sans-serif"; pen.textBaseline = "middle"; pen.textAlign = px > plot.canvas.clientWidth / 2 ? "right" : "left";
      const name = title(item).slice(0, 40), tx = px + (pen.textAlign === "left" ? 14 : -14);
      pen.strokeStyle = colours.back; pen.lineWidth = 4; pen.strokeText(name, tx, py); pen.fillStyle = colours.ink; pen.fillText(name, tx, py);
    },
  });
  recolour();
  if (item < 0) showItem(had.indexOf(had.reduce((a, b) => Math.max(a, b), 0)));
}
function neighbours(j) {
  const found = [];
  for (let k = j * items.neighbours; k < (j + 1) * items.neighbours; k++)
    if (near[k] >= 0) found.push([near[k], cosine[k] / 32767]);
  return found;
}
function openItem(j) {
  item = j;
  openTab("map");
  showItem(j);
  map.centre(j);
}
function showItem(j) {
  item = j;
  $("item-name").textContent = title(j);
  const facts = [["id", items.ids[j]], ["in training of", `${whole(had[j])} users`],
    ["in the top 10 of", `${whole(shown[j])} of ${whole(data.exposure.users)} users`]];
  if (items.categories) facts.splice(1, 0, ["category", items.categories[category[j]] || "–"]);
  fill($("item-facts"), ...facts.flatMap(([name, text]) => [make("dt", name), make("dd", text)]));
  fill($("near").tBodies[0], ...neighbours(j).map(([k, c]) => row(itemLink(k), bar(c.toFixed(3).replace("-", "−"), c))));
}
for (const [value, text] of [["popularity", "by popularity"], ["exposure", "by exposure"], ...(items.categories ? [["category", "by category"]] : [])]) {
  const option = make("option", text);
  option.value = value;
  $("colour").append(option);
}
$("colour").addEventListener("change", recolour);
$("zoom-in").addEventListener("click", () => map.zoom(0.6));
$("zoom-out").addEventListener("click", () => map.zoom(1 / 0.6));
$("zoom-reset").addEventListener("click", () => map.reset());
$("map-note").textContent = `The two principal components of the item factors, which hold ${percent(items.shares[0] + items.shares[1])} of their variance: ` +
  "near here need not be near in all dimensions, the list of nearest items is. Drag, scroll or pinch; click an item." +
  (items.count < items.all ? ` The ${whole(items.count)} most popular or listed of ${whole(items.all)} items.` : "");
const itemTexts = items.ids.map((id, j) => (items.titles ? `${items.titles[j]}\n${id}` : id).toLowerCase());
searchBox("item", itemTexts, title, (j) => (items.titles ? items.ids[j] : `${whole(had[j])} users`), openItem,
  (found) => { hits = found; map?.draw(); });

// ---- quality ----
function startQuality() {
  const quality = data.quality;
  $("no-test").hidden = Boolean(quality); $("with-test").hidden = !quality;
  if (!quality) return;
  const made = data.certificate;
  $("certificate").textContent = made.refused ? `No certificate: ${made.refused}.` : `${made.sentence[0].toUpperCase()}${made.sentence.slice(1)}.`;
  if (!made.refused) {
    fill($("terms").tBodies[0], row("kind", number(made.kind)), ...made.terms.map(([name, v]) => row(name, number(short(v)))));
    fill($("assumptions"), ...made.assumptions.map((text) => make("li", text)));
  }
  $("tested").textContent = `${whole(quality.users)} users with held-out items, ${whole(quality.skipped)} without.`;
  const interval = (low, high) => (low === null || low === undefined ? "–" : `${fixed(low)} to ${fixed(high)}`);
  fill($("metrics").tBodies[0], ...quality.metrics.map(([name, v, low, high]) => row(name === "auc" ? "AUC" : name, number(fixed(v)), number(interval(low, high)))));
  fill($("groups").tBodies[0], ...quality.groups.map(([least, most, , count, mean, low, high]) =>
    row(least === most ? whole(least) : `${whole(least)} to ${whole(most)}`, number(whole(count)), number(fixed(mean)), number(interval(low, high)))));
  const length = new Uint32Array(raw(quality.length)), auc = new Float32Array(raw(quality.auc));
  const sorted = Float32Array.from(auc).sort(), low = sorted[Math.floor(0.01 * sorted.length)] ?? 0;
  let longest = 1, shortest = Infinity;
  for (const l of length) { longest = Math.max(longest, l); shortest = Math.min(shortest, l); }
  const widths = 0.04 * (log(longest) - log(Math.min(shortest, longest))) || 0.2;
  new Plot($("activity-canvas"), length, auc, {
    axes: true, xScale: log, xLabel: "training items of the user", yLabel: "AUC", alpha: 0.35, size: 4,
    range: [log(Math.min(shortest, longest)) - widths, log(longest) + widths, Math.max(0, low - 0.03), 1.015],
    bucketColours: () => [colours.accent], tip: (i) => `AUC ${auc[i].toFixed(3)}, ${whole(length[i])} items`,
    over: (plot, pen) => {
      pen.strokeStyle = pen.fillStyle = colours.mark; pen.lineWidth = 2;
      const at = quality.groups.map(([, , middle, , mean, low, high]) => [...plot.toScreen(log(middle), mean), plot.toScreen(0, low ?? mean)[1], plot.toScreen(0, high ?? mean)[1]]);
      pen.beginPath(); at.forEach(([px, py], k) => (k ? pen.lineTo(px, py) : pen.moveTo(px, py))); pen.stroke();
      for (const [px, py, a, b] of at) {
        pen.beginPath(); pen.moveTo(px, a); pen.lineTo(px, b); pen.moveTo(px - 5, a); pen.lineTo(px + 5, a); pen.moveTo(px - 5, b); pen.lineTo(px + 5, b); pen.stroke();
        pen.beginPath(); pen.arc(px, py, 4, 0, 7); pen.fill();
      }
    },
  });
}

// ---- exposure ----
function startExposure() {
  const e = data.exposure;
  $("exposure-note").textContent = `In the top ${e.n} of ${whole(e.users)} users: ${percent(e.covered)} of the items are shown at all, and the most popular tenth of the items fills ${percent(e.top_tenth)} of the places.`;
  new Plot($("exposure-canvas"), had, shown, {
    axes: true, xScale: log, yScale: log, xLabel: "popularity: users with the item in training", yLabel: `lists with the item`, alpha: 0.5,
    bucketColours: () => [colours.accent], size: items.count > 5000 ? 3 : 4, click: openItem,
    tip: (j) => `${title(j)}: ${whole(had[j])} users, ${whole(shown[j])} lists`,
    over: (plot, pen) => {
      pen.strokeStyle = colours.mark; pen.lineWidth = 1.5; pen.beginPath();
      for (let k = 0; k <= 60; k++) {
        const x = plot.view[0] + ((plot.view[1] - plot.view[0]) * k) / 60;
        const [px, py] = plot.toScreen(x, log(Math.max(0, 10 ** x - 1) * e.line));
        if (k) pen.lineTo(px, py); else pen.moveTo(px, py);
      }
      pen.stroke();
    },
  });
}

// ---- training ----
let curve = null;
function drawCurve() {
  const points = data.history[$("record").value], x = points.map((p) => p[0]), y = points.map((p) => p[1]), name = $("record").value;
  const old = $("curve-canvas"), canvas = old.cloneNode();
  old.replaceWith(canvas);
  if (curve) plots.splice(plots.indexOf(curve), 1);
  curve = new Plot(canvas, x, y, {
    axes: true, wholeX: true, xLabel: "iteration", yLabel: name, size: 5, bucketColours: () => [colours.accent],
    tip: (i) => `iteration ${x[i]}: ${short(y[i])}`,
    over: (plot, pen) => {
      pen.strokeStyle = colours.accent; pen.lineWidth = 1.5; pen.beginPath();
      plot.x.forEach((v, i) => (i ? pen.lineTo(...plot.toScreen(v, plot.y[i])) : pen.moveTo(...plot.toScreen(v, plot.y[i]))));
      pen.stroke();
    },
  });
}
function startTraining() {
  const names = Object.keys(data.history);
  names.sort((a, b) => (b === "auc") - (a === "auc") || (a === "step_size") - (b === "step_size"));
  $("curve").hidden = !names.length;
  $("curve-note").textContent = names.length ? `Ended after ${whole(data.history[names[0]].at(-1)[0])} iterations${data.about.stopped === "iterations" ? "" : `: ${data.about.stopped}`}.` : "This model has no records of its iterations.";
  for (const name of names) $("record").append(make("option", name));
  if (names.length) { $("record").addEventListener("change", drawCurve); drawCurve(); }
  fill($("settings").tBodies[0], ...data.settings.map(([name, value]) => row(name, value)), row("chosen solver", data.solver));
  const file = [["users", whole(data.about.users)], ["items", whole(data.about.items)], ["positives", whole(data.about.positives)], ["rank", String(data.about.rank)],
    ["digest of the training data", data.about.data], ["page made by mfauc_jax", data.about.library], ...Object.entries(data.metadata)];
  fill($("file").tBodies[0], ...file.map(([name, value]) => row(name, String(value))));
}

const started = { map: startMap, quality: startQuality, exposure: startExposure, training: startTraining };
document.title = `${data.name}: mfauc explore`;
$("name").textContent = data.name;
$("about").textContent = `${whole(data.about.users)} users × ${whole(data.about.items)} items, ${whole(data.about.positives)} positives, rank ${data.about.rank}`;
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); plots.forEach((plot) => plot.draw()); });
openTab("lists");
openUser(0);
document.documentElement.dataset.ready = "yes";
})();
