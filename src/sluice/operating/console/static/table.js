// One table from near.

import { age, at, bytes, clock, count, empty, figures, grid, h, many, moment, prose, rate, replace, seconds, section, shortName, who } from "./dom.js";
import { Lanes, stateOf } from "./lanes.js";
import { behind, limitOf, messagesList, oldestWaiter } from "./overview.js";
import { treemap } from "./treemap.js";
import { ask } from "./actions.js";

const TABS = [["now", "Now"], ["history", "History"], ["schema", "Schema"], ["files", "Files"]];

// The commit that came first, as far as the refusal names it.
function winnerOf(bar) {
  const { winning_version: version, winning_operation: operation, facts } = bar.refusal || {};
  return version === null || version === undefined ? null : { ...facts.winner, version, operation };
}

// Delta's type as SQL has it.
function typeOf(type) {
  if (typeof type === "string") return type;
  if (type.type === "array") return `array<${typeOf(type.elementType)}>`;
  if (type.type === "map") return `map<${typeOf(type.keyType)}, ${typeOf(type.valueType)}>`;
  return `struct<${type.fields.map((each) => `${each.name}: ${typeOf(each.type)}`).join(", ")}>`;
}

export function tablePage(context, location) {
  return new TablePage(context, location);
}

class TablePage {
  constructor(context, location) {
    this.context = context;
    this.location = location;
    this.title = shortName({ location });
    this.tab = "now";
    this.chosen = null;
    this.lanes = new Lanes((bar) => this.choose(bar));
    this.head = h("div");
    this.panel = h("div", { id: "panel", role: "tabpanel", tabindex: "0", "aria-labelledby": "tab-now" });
    this.detail = h("aside", { class: "detail", "aria-live": "polite" });
    this.below = h("div");
    this.leftOut = h("p", { class: "muted" });
    this.tabs = TABS.map(([key, text]) => h("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": "panel", "aria-selected": String(key === "now"), tabindex: key === "now" ? "0" : "-1", onclick: () => this.open(key) }, text));
    const list = h("div", { role: "tablist", "aria-label": "About the table" }, this.tabs);
    list.addEventListener("keydown", (event) => this.turn(event));
    this.element = h("div", {}, this.head, list, this.panel);
    this.open("now");
    this.ended = new AbortController();
    this.timer = setInterval(() => this.fetch(), 2000);
  }

  leave() {
    clearInterval(this.timer);
    this.ended.abort();
    this.lanes.leave();
  }

  get row() {
    return this.context.status?.tables.find((table) => table.location === this.location);
  }

  open(key) {
    this.tab = key;
    for (const tab of this.tabs) {
      const isOpen = tab.id === `tab-${key}`;
      tab.setAttribute("aria-selected", String(isOpen));
      tab.tabIndex = isOpen ? 0 : -1;
    }
    this.panel.setAttribute("aria-labelledby", `tab-${key}`);
    if (key === "now") replace(this.panel, this.lanes.element, this.leftOut, this.detail, this.below);
    else replace(this.panel, empty("Reading …"));
    if (key === "files") this.files();
    else if (this.facts) this.show();
  }

  turn(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = this.tabs[(TABS.findIndex(([key]) => key === this.tab) + step + TABS.length) % TABS.length];
    next.focus();
    next.click();
  }

  // The status says when something is new; in between, what waits is read again.
  update() {
    this.drawHead();
    this.fetch();
  }

  async fetch() {
    if (this.fetching || document.hidden) return;
    this.fetching = true;
    try {
      const answer = await fetch(`/api/table?location=${encodeURIComponent(this.location)}`, { signal: this.ended.signal });
      const facts = await answer.json();
      if (!answer.ok) throw new Error(facts.error);
      this.facts = facts;
      this.trouble = null;
    } catch (error) {
      if (this.ended.signal.aborted) return;
      this.trouble = error instanceof TypeError ? null : error.message;
    } finally {
      this.fetching = false;
    }
    this.drawHead();
    if (this.trouble && !this.facts) replace(this.panel, empty(this.trouble));
    else if (this.facts && this.tab !== "files") this.show();
  }

  drawHead() {
    const { row, facts } = this;
    if (row) this.title = shortName(row);
    document.title = `${this.title} · sluice`;
    const lag = facts ? facts.version - facts.published : 0;
    const messages = (this.context.status?.messages || []).filter((each) => each.where === this.location);
    const actions = this.context.settings.actions && h("div", { class: "actions" },
      h("button", { type: "button", id: "compact", onclick: () => ask("compact", `Compact ${this.title}?`, this.location, "") }, "Compact …"),
      h("button", { type: "button", id: "dry-vacuum", onclick: () => ask("dry-vacuum", `What would a vacuum of ${this.title} delete?`, this.location, "") }, "Try a vacuum …"));
    replace(this.head,
      h("p", { class: "crumb" }, h("a", { href: "#/" }, "Tables"), " / ", h("span", {}, this.location)),
      h("div", { class: "title" }, h("h1", {}, this.title), actions || null),
      facts?.description ? h("p", { class: "muted" }, facts.description) : null,
      figures([
        ["Limited by", row ? limitOf(row.limited_by) : "–", row && row.limited_by !== "workload" ? "wrong" : ""],
        ["Version", facts ? [count(facts.version), h("small", {}, lag ? `${many(lag, "version")} not in the log` : "all in the log")] : "–"],
        ["Commits/s", row ? [rate(row.commits_per_s), h("small", {}, `${many(row.committed, "commit")} in ${seconds(row.window_s)}`)] : "–"],
        ["Refused", row ? [count(row.refused), h("small", {}, `in ${seconds(row.window_s)}`)] : "–", row?.refused ? "wrong" : ""],
        oldestWaiter(row),
      ]),
      messages.length ? messagesList(messages, false) : null,
      facts?.log_trouble ? h("p", { class: "trouble" }, `The log cannot be read: ${facts.log_trouble}`) : null,
      this.trouble && facts ? h("p", { class: "trouble" }, this.trouble) : null);
  }

  show() {
    const { facts } = this;
    const waiting = facts.queue.map((each) => ({ ...each, decided_ms: null, published_ms: null, version: null, ordinal: 0 }));
    this.bars = [...facts.bars, ...waiting];
    this.lanes.show(this.bars, facts.now_ms);
    replace(this.leftOut, this.moreBars());
    if (this.tab === "now") replace(this.below, this.refused(), this.queue(), this.leases(), this.consumers());
    if (this.tab === "now" && this.chosen) this.choose(this.bars.find((bar) => bar.transaction_id === this.chosen.transaction_id) || this.chosen);
    if (this.tab === "history") replace(this.panel, this.history());
    if (this.tab === "schema") replace(this.panel, ...this.schema());
  }

  choose(bar) {
    this.chosen = bar;
    const key = JSON.stringify(bar);
    if (this.detail.dataset.shown === key) return;
    this.detail.dataset.shown = key;
    const state = stateOf(bar);
    const winner = winnerOf(bar);
    const won = winner && this.bars.find((each) => each.version === winner.version && (!winner.transaction_id || each.transaction_id === winner.transaction_id));
    const took = (from, to) => (from === null || to === null ? "–" : seconds((to - from) / 1000));
    const facts = [
      ["Client", [h("strong", {}, who(bar)), " ", at(bar)]],
      ["Operation", bar.operation || "not on record"],
      [bar.refusal ? "Begun" : "Queued", bar.refusal ? clock(bar.queued_ms) : clock(bar.queued_ms, true)],
      ["Decided", bar.decided_ms === null ? "not yet" : `${clock(bar.decided_ms, true)}, after ${took(bar.queued_ms, bar.decided_ms)}`],
    ];
    if (!bar.refusal && bar.decided_ms !== null) facts.push(["In the log", bar.published_ms === null ? "not yet" : `${clock(bar.published_ms, true)}, after ${took(bar.decided_ms, bar.published_ms)}`], ["Version", `${bar.version}, place ${bar.ordinal}`]);
    if (bar.rebased?.length) facts.push(["Adapted", bar.rebased.join("; ")]);
    if (bar.refusal) {
      facts.push(["Rule", h("code", {}, bar.refusal.rule)]);
      if (winner) facts.push(["Lost to", [h("strong", {}, who(winner)), ` ${winner.operation}${winner.version === null ? "" : `, version ${winner.version}`} `, won ? h("button", { type: "button", class: "link", onclick: () => this.lanes.select(won) }, "show it") : null]]);
      facts.push(["Why", prose(bar.refusal.message)]);
      if (bar.refusal.remedy) facts.push(["What avoids it", prose(bar.refusal.remedy)]);
    }
    facts.push(["Transaction", h("code", {}, bar.transaction_id)]);
    replace(this.detail, h("div", { class: state },
      h("h3", {}, { refused: "Refused", queued: "Waits to be decided", decided: `Version ${bar.version}, not in the log yet`, published: `Version ${bar.version}` }[state],
        h("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => this.close() }, "×")),
      h("dl", {}, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))));
  }

  close() {
    this.chosen = null;
    this.lanes.selected = null;
    delete this.detail.dataset.shown;
    replace(this.detail);
  }

  refused() {
    const rows = this.facts.bars.filter((bar) => bar.refusal).reverse().slice(0, 20);
    if (!rows.length) return section("Refused", empty("No refusal is on record: the coordinator keeps those of the last batches."));
    return section("Refused", grid([
      { title: "At", number: true, cell: (bar) => clock(bar.decided_ms) },
      { title: "Who", cell: (bar) => h("button", { type: "button", class: "link", id: `refused-${bar.transaction_id}`, onclick: () => this.lanes.select(bar) }, who(bar)) },
      { title: "Rule", cell: (bar) => h("code", { class: "mark" }, bar.refusal.rule) },
      { title: "Lost to", cell: (bar) => (winnerOf(bar) ? `${who(winnerOf(bar))} ${winnerOf(bar).operation}` : "–") },
      { title: "Version", number: true, cell: (bar) => count(winnerOf(bar)?.version) },
      { title: "What avoids it", cell: (bar) => prose(bar.refusal.remedy || "–"), kind: "wide" },
    ], rows, "Refused transactions, the newest first"));
  }

  queue() {
    const { queue: rows, queue_left_out: more, now_ms: now } = this.facts;
    if (!rows.length) return section("Queue", empty("The queue is empty."));
    const actions = this.context.settings.actions;
    return section("Queue", grid([
      { title: "", number: true, cell: (each) => rows.indexOf(each) + 1 },
      { title: "Who", cell: (each) => [who(each), h("small", {}, at(each))], kind: "lines" },
      { title: "Operation", cell: (each) => each.operation || "of a newer release" },
      { title: "Waits", number: true, cell: (each) => age(Math.max(0, now - each.queued_ms) / 1000) },
      { title: "Read version", number: true, cell: (each) => count(each.read_version) },
      { title: "Behind", cell: (each) => (rows[0] === each ? (this.row ? behind(this.row) : "–") : who(rows[rows.indexOf(each) - 1])), kind: "wide" },
      { title: "Transaction", cell: (each) => h("code", { title: each.transaction_id }, each.transaction_id.slice(0, 8)) },
      ...(actions ? [{ title: "", cell: (each) => h("button", { type: "button", id: `withdraw-${each.transaction_id}`, onclick: () => ask("withdraw", `Withdraw the ${each.operation} of ${who(each)}?`, this.location, each.transaction_id) }, "Withdraw …") }] : []),
    ], rows, "Transactions that wait, in their order"), more ? h("p", { class: "muted" }, `${count(more)} more wait behind them.`) : null);
  }

  leases() {
    const rows = this.facts.leases;
    const names = new Map(rows.map((each) => [each.lease, who(each)]));
    const actions = this.context.settings.actions;
    const broken = this.facts.broken.slice(-5).reverse();
    return section("Leases", rows.length
      ? grid([
        { title: "Holder", cell: (each) => [who(each), each.name ? ` (${each.name})` : "", h("small", {}, at(each))], kind: "lines" },
        { title: "State", cell: (each) => (each.held ? "held" : each.waits_for ? `waits for ${names.get(each.waits_for) || "another"}` : "is next") },
        { title: "Mode", cell: (each) => each.mode },
        { title: "On", cell: (each) => each.where || "the whole table" },
        { title: "For", number: true, cell: (each) => age(each.age_s) },
        { title: "Fencing token", number: true, cell: (each) => (each.held ? String(each.token) : "–") },
        ...(actions ? [{ title: "", cell: (each) => h("button", { type: "button", id: `break-${each.lease}`, onclick: () => ask("break-lease", `Break the lease of ${who(each)}? Its commits are refused from then on.`, this.location, each.lease) }, "Break …") }] : []),
      ], rows, "Leases and requests for leases, in their order")
      : empty("Nobody holds a lease, and nobody waits for one."),
    broken.map((each) => h("p", { class: "muted" }, `Broken at ${moment(each.at_ms)} by ${each.by}: ${each.holder}${each.reason ? ` (${each.reason})` : ""}`)));
  }

  consumers() {
    const { consumers, streams = [], version } = this.facts;
    if (!consumers.length && !streams.length) return section("Consumers and streams", empty("No named consumer reads this table, and no stream writes it."));
    return section("Consumers and streams",
      consumers.length ? grid([
        { title: "Consumer", cell: (each) => [each.name, h("small", {}, at(each.client))], kind: "lines" },
        { title: "Position", number: true, cell: (each) => count(each.version) },
        { title: "Versions behind", number: true, cell: (each) => h("span", { class: each.version < version && each.idle_s > 3600 ? "mark" : "" }, count(Math.max(0, version - each.version))) },
        { title: "Moved", number: true, cell: (each) => [age(each.idle_s), " ago"] },
        { title: "Into", cell: (each) => each.into.join(", ") || "–" },
      ], consumers, "Named consumers") : null,
      streams.length ? grid([
        { title: "Stream or idempotent writer", cell: (each) => each.name },
        { title: "Last number", number: true, cell: (each) => count(each.number) },
        { title: "At", number: true, cell: (each) => (each.at_ms ? moment(each.at_ms) : "–") },
      ], streams.slice(0, 20), "Streams that write this table") : null);
  }

  history() {
    const rows = this.facts.bars.filter((bar) => bar.version !== null).sort((one, other) => other.version - one.version || other.ordinal - one.ordinal);
    if (!rows.length) return empty("The log has no transaction yet.");
    return section("History", grid([
      { title: "Version", number: true, cell: (bar) => `${count(bar.version)}${bar.ordinal ? `.${bar.ordinal}` : ""}` },
      { title: "Decided", number: true, cell: (bar) => moment(bar.decided_ms) },
      { title: "Operation", cell: (bar) => bar.operation },
      { title: "Who", cell: (bar) => [who(bar), h("small", {}, at(bar))], kind: "lines" },
      { title: "Waited", number: true, cell: (bar) => seconds((bar.decided_ms - bar.queued_ms) / 1000) },
      { title: "In the log after", number: true, cell: (bar) => (bar.published_ms === null ? "not yet" : seconds((bar.published_ms - bar.decided_ms) / 1000)) },
      { title: "Transaction", cell: (bar) => h("code", { title: bar.transaction_id }, bar.transaction_id.slice(0, 8)) },
    ], rows, "The last transactions in the log, the newest first"), h("p", { class: "muted" }, this.moreBars()));
  }

  moreBars() {
    const { bars_left_out: more } = this.facts;
    return more ? `Left out: ${many(more, "earlier transaction")} of the last versions.` : "";
  }

  schema() {
    const { columns = [], properties = {}, protocol } = this.facts;
    if (!protocol) return [empty("The log cannot be read.")];
    const set = Object.entries(properties);
    const features = [...new Set([...(protocol.reader_features || []), ...(protocol.writer_features || [])])].sort();
    return [
      section("Columns", grid([
        { title: "Column", cell: (each) => each.name },
        { title: "Type", cell: (each) => h("code", {}, typeOf(each.type)) },
        { title: "Nullable", cell: (each) => (each.nullable ? "yes" : "no") },
        { title: "Partition", cell: (each) => (this.facts.partitioned_by.includes(each.name) ? "yes" : "") },
        { title: "Comment", cell: (each) => each.metadata?.comment || "", kind: "wide" },
      ], columns, "Columns")),
      section("Properties", set.length ? grid([{ title: "Property", cell: ([name]) => h("code", {}, name) }, { title: "Value", cell: ([, value]) => value, kind: "wide" }], set, "Properties") : empty("No property is set.")),
      section("Protocol", h("p", {}, `Reader ${protocol.min_reader_version}, writer ${protocol.min_writer_version}. ${features.join(", ")}`)),
    ];
  }

  async files() {
    const answer = await fetch(`/api/files?location=${encodeURIComponent(this.location)}`, { signal: this.ended.signal }).catch(() => null);
    const facts = await answer?.json();
    if (this.tab !== "files" || !answer) return;
    if (!answer.ok) {
      replace(this.panel, empty(facts.error));
      return;
    }
    const what = facts.by.length ? "partition" : "file";
    const { parts, left_out: more } = facts;
    const rest = (key) => facts[key] - parts.reduce((sum, part) => sum + part[key], 0);
    const title = `${bytes(facts.bytes)} in ${many(facts.files, "file")}, by ${facts.by.length ? facts.by.join(", ") : "file"}`;
    if (!parts.length) {
      replace(this.panel, empty("The table has no files."));
      return;
    }
    const width = Math.max(320, this.panel.clientWidth);
    replace(this.panel, section(title, treemap(parts, width, Math.min(440, Math.max(200, width / 2.4))),
      h("p", { class: "muted" }, `Version ${count(facts.version)}. Areas are bytes; the stronger the colour, the smaller the files. `, more ? `Left out: ${many(more, `smaller ${what}`)} with ${bytes(rest("bytes"))} in ${many(rest("files"), "file")}.` : ""),
      h("details", {}, h("summary", {}, "As a list"), grid([
        { title: what === "partition" ? "Partition" : "File", cell: (each) => each.name, kind: "wide" },
        { title: "Files", number: true, cell: (each) => count(each.files) },
        { title: "Bytes", number: true, cell: (each) => bytes(each.bytes) },
        { title: "Mean size", number: true, cell: (each) => bytes(each.bytes / each.files) },
      ], parts, title))));
  }
}
