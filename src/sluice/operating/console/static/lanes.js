// The transactions of a table on a time line: a lane for each client, a bar for each transaction.

import { clock, h, seconds, svg, who } from "./dom.js";

const ROW = 18;
const GAP = 10;
const TOP = 26;
const LABEL = 190;
const SPANS = [[15, "15 s"], [60, "1 min"], [300, "5 min"], [1800, "30 min"], [0, "all"]];
const STEPS = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400];

const laneKey = (bar) => `${bar.application}\n${bar.host}\n${bar.pid}`;
const endOf = (bar, now) => bar.published_ms ?? (bar.refusal ? bar.decided_ms : now);

export function stateOf(bar) {
  if (bar.refusal) return "refused";
  if (bar.decided_ms === null) return "queued";
  return bar.published_ms === null ? "decided" : "published";
}

export function barTitle(bar) {
  const state = stateOf(bar);
  const what = `${who(bar)} ${bar.operation || "a transaction"}`;
  if (state === "refused") return `${what}: refused by ${bar.refusal.rule}`;
  if (state === "queued") return `${what}: waits`;
  return `${what}: version ${bar.version}${state === "decided" ? ", not in the log yet" : ""}, waited ${seconds((bar.decided_ms - bar.queued_ms) / 1000)}`;
}

// The lanes, each with rows in which no two bars overlap.
function stacked(bars, now, least) {
  const lanes = new Map();
  for (const bar of bars) {
    if (!lanes.has(laneKey(bar))) lanes.set(laneKey(bar), { bar, rows: [], bars: [] });
    const lane = lanes.get(laneKey(bar));
    let row = lane.rows.findIndex((end) => end <= bar.queued_ms);
    if (row < 0) row = lane.rows.length < 6 ? lane.rows.push(0) - 1 : 5;
    lane.rows[row] = Math.max(endOf(bar, now), bar.queued_ms + least);
    lane.bars.push({ bar, row });
  }
  return [...lanes.values()].sort((one, other) => laneKey(one.bar).localeCompare(laneKey(other.bar)));
}

export class Lanes {
  constructor(onselect) {
    this.onselect = onselect;
    this.span = 60;
    this.paused = false;
    this.selected = null;
    this.drawing = h("div", { class: "drawing" });
    const choices = SPANS.map(([value, text]) => h("label", {}, h("input", { type: "radio", name: "span", value, checked: value === this.span, onchange: () => this.choose(value) }), h("span", {}, text)));
    this.pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => this.toggle() }, "Hold still");
    this.element = h("div", { class: "lanes" },
      h("div", { class: "bar" }, h("h2", {}, "Transactions"),
        h("span", { class: "legend" }, ["queued", "waiting", "decided", "published", "refused"].map((each) => h("span", { class: each }, each))),
        h("fieldset", { class: "choice" }, h("legend", { class: "unseen" }, "How far back"), choices), this.pause),
      this.drawing);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.drawing);
  }

  leave() {
    this.observer.disconnect();
  }

  choose(span) {
    this.span = span;
    this.draw();
  }

  toggle() {
    this.paused = !this.paused;
    this.pause.setAttribute("aria-pressed", String(this.paused));
    if (!this.paused && this.newest) this.show(...this.newest);
  }

  show(bars, now) {
    this.newest = [bars, now];
    if (this.paused) return;
    [this.bars, this.now] = [bars, now];
    this.draw();
  }

  draw() {
    const width = this.drawing.clientWidth;
    if (!this.bars || !width) return;
    if (!this.span && this.bars.length === 0) return this.nothing();
    const to = this.bars.reduce((most, bar) => Math.max(most, bar.decided_ms ?? 0), this.now) + 1;
    const first = this.bars.reduce((least, bar) => Math.min(least, bar.queued_ms), to);
    const from = Math.max(first - (to - first) * 0.02, this.span ? to - 1000 * this.span : 0);
    const scale = (ms) => LABEL + ((ms - from) / (to - from)) * (width - LABEL - 8);
    const visible = this.bars.filter((bar) => endOf(bar, to) >= from);
    if (visible.length === 0) return this.nothing();
    const lanes = stacked(visible, to, (4 * (to - from)) / (width - LABEL));
    const picture = svg("g");
    let y = TOP;
    const places = new Map();
    for (const lane of lanes) {
      const height = lane.rows.length * ROW;
      picture.append(svg("line", { class: "rule", x1: 0, x2: width, y1: y - GAP / 2, y2: y - GAP / 2 }),
        svg("text", { class: "lane", x: 0, y: y + 12 }, short(who(lane.bar), 26), svg("title", {}, `${who(lane.bar)} ${lane.bar.host} ${lane.bar.pid || ""}`)));
      if (lane.bar.pid && height > ROW) picture.append(svg("text", { class: "process", x: 0, y: y + 27 }, short(`${lane.bar.host} ${lane.bar.pid}`, 30)));
      for (const { bar, row } of lane.bars) places.set(bar.transaction_id, { bar, y: y + row * ROW, scale });
      y += height + GAP;
    }
    const drawn = svg("svg", { width, height: y + 20, role: "group", "aria-label": `${visible.length} transactions of ${lanes.length} clients; arrow keys move between them` });
    drawn.append(...this.axis(from, to, scale, y), picture, ...this.versions(visible, places, scale, y), ...[...places.values()].map((place) => this.bar(place, from, to)));
    drawn.addEventListener("keydown", (event) => this.move(event, [...places.values()]));
    const focused = document.activeElement?.dataset?.transaction;
    this.drawing.replaceChildren(drawn);
    const items = [...drawn.querySelectorAll(".bar-item")];
    const current = items.find((item) => item.dataset.transaction === (focused || this.selected)) || items[items.length - 1];
    current.setAttribute("tabindex", "0");
    if (focused) current.focus({ preventScroll: true });
    return undefined;
  }

  nothing() {
    const last = this.bars.length ? this.bars.reduce((most, bar) => Math.max(most, endOf(bar, this.now)), 0) : null;
    const text = last === null ? "No transaction is on record yet." : `Nobody committed in this time. The last transaction ended at ${clock(last)}: choose a longer time.`;
    this.drawing.replaceChildren(h("p", { class: "empty" }, text));
  }

  axis(from, to, scale, bottom) {
    const step = 1000 * (STEPS.find((each) => (1000 * each) / (to - from) > 0.09) || 86400);
    const ticks = [];
    const zone = new Date().getTimezoneOffset() * 60000;
    for (let ms = Math.ceil((from - zone) / step) * step + zone; ms <= to; ms += step)
      ticks.push(svg("line", { class: "tick", x1: scale(ms), x2: scale(ms), y1: 18, y2: bottom }), svg("text", { class: "time", x: scale(ms), y: 12, "text-anchor": to - ms < (to - from) * 0.03 ? "end" : "middle" }, clock(ms)));
    return ticks;
  }

  // A line joins the transactions of one version; its number stands below where there is room.
  versions(bars, places, scale, bottom) {
    const drawn = [];
    const groups = new Map();
    for (const bar of bars) if (bar.version !== null && bar.decided_ms !== null) groups.has(bar.version) ? groups.get(bar.version).push(bar) : groups.set(bar.version, [bar]);
    let free = LABEL - 4;
    for (const [version, members] of [...groups].sort((one, other) => one[0] - other[0])) {
      const x = scale(members[0].decided_ms);
      if (x < LABEL) continue;
      const ys = members.map((bar) => places.get(bar.transaction_id).y);
      if (members.length > 1) drawn.push(svg("line", { class: "group", x1: x, x2: x, y1: Math.min(...ys) + 2, y2: Math.max(...ys) + ROW - 4 }));
      const text = String(version);
      if (x - text.length * 3.5 > free) {
        drawn.push(svg("text", { class: "version", x, y: bottom + 12, "text-anchor": "middle" }, text));
        free = x + text.length * 3.5 + 8;
      }
    }
    return drawn;
  }

  bar({ bar, y, scale }, from, to) {
    const state = stateOf(bar);
    const x = (ms) => scale(Math.max(from, Math.min(ms, to)));
    const [begin, end] = [x(bar.queued_ms), x(endOf(bar, to))];
    const middle = bar.decided_ms === null || bar.refusal ? end : x(bar.decided_ms);
    const item = svg("g", { class: `bar-item ${state}${bar.transaction_id === this.selected ? " selected" : ""}`, "data-transaction": bar.transaction_id, role: "button", tabindex: "-1", "aria-label": barTitle(bar) },
      svg("title", {}, barTitle(bar)),
      svg("rect", { class: "hit", x: begin - 3, y: y - 1, width: Math.max(end - begin, 4) + 6, height: ROW }),
      svg("rect", { class: "wait", x: begin, y: y + 3, width: Math.max(middle - begin, bar.refusal ? 4 : 1.5), height: ROW - 8 }),
      bar.refusal || bar.decided_ms === null ? null : svg("rect", { class: "done", x: middle, y: y + 1, width: Math.max(end - middle, 3), height: ROW - 4, rx: 1.5 }),
      bar.refusal ? svg("path", { class: "cross", d: `M${end + 3} ${y + 3}l${ROW - 8} ${ROW - 8}m0 ${8 - ROW}l${8 - ROW} ${ROW - 8}` }) : null);
    item.addEventListener("click", () => this.select(bar));
    return item;
  }

  select(bar) {
    this.selected = bar.transaction_id;
    for (const item of this.drawing.querySelectorAll(".bar-item")) item.classList.toggle("selected", item.dataset.transaction === bar.transaction_id);
    this.onselect(bar);
  }

  move(event, places) {
    const item = event.target.closest(".bar-item");
    const here = places.find((place) => place.bar.transaction_id === item?.dataset.transaction);
    if (!here) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      this.select(here.bar);
      return;
    }
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] || [0, 0];
    const near = places.filter((place) => (dx ? (place.bar.queued_ms - here.bar.queued_ms) * dx > 0 && laneKey(place.bar) === laneKey(here.bar) : dy && (place.y - here.y) * dy > 0));
    if (!near.length) return;
    const distance = (place) => Math.abs(place.bar.queued_ms - here.bar.queued_ms) + (dx ? 0 : 1e9 * Math.abs(place.y - here.y));
    const next = near.reduce((best, place) => (distance(place) < distance(best) ? place : best));
    event.preventDefault();
    item.setAttribute("tabindex", "-1");
    const target = [...this.drawing.querySelectorAll(".bar-item")].find((each) => each.dataset.transaction === next.bar.transaction_id);
    target.setAttribute("tabindex", "0");
    target.focus();
  }
}

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
