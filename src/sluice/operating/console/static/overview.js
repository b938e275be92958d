// The first page: what is wrong, who waits behind whom, what to do, and all tables.

import { age, at, clock, count, empty, figures, grid, h, linkOf, many, prose, rate, replace, seconds, section, shortName, who } from "./dom.js";

const LIMITS = {
  workload: "the workload",
  lease: "a lease",
  client: "a client",
  publication: "publication",
  store: "the object store",
  coordinator: "the coordinator",
};
const LIMIT_ORDER = ["coordinator", "store", "publication", "client", "lease", "workload"];
const NOTICED_S = 1;

export const limitOf = (word) => LIMITS[word] || word;

const queuedFor = ({ queue }) => (queue.oldest ? queue.oldest.waits_s : 0);
// Who has waited longest: in the queue, or for a lease before being filed.
const oldestOf = (table) => Math.max(queuedFor(table), table.leases.longest_wait_s);
const isStuck = (table) => oldestOf(table) >= NOTICED_S || table.publication.seconds >= NOTICED_S;

export function oldestWaiter(table, place = "") {
  const waiter = table && (queuedFor(table) >= table.leases.longest_wait_s ? table.queue.oldest : table.leases.waiter);
  return ["Oldest waiter", waiter ? [age(oldestOf(table)), h("small", {}, who(waiter) + place)] : ["none", h("small", {}, "nobody waits")]];
}

export function behind(table) {
  const { queue, leases, publication } = table;
  const held = leases.oldest;
  if (held) return [h("strong", {}, who(held)), ` holds ${held.mode === "shared" ? "a shared" : "an exclusive"} lease (${at(held)}) for `, age(held.held_s)];
  if (queue.oldest && table.limited_by === "client") return "nobody: it is first, and no client decides it";
  if (publication.versions && table.limited_by !== "workload")
    return publication.owner_is_connected === false ? "clients that are gone, whose versions are not in the log" : "the object store, which takes the log slowly";
  return queue.oldest ? "its turn comes" : "the log";
}

function waiters(tables) {
  const rows = [];
  for (const table of tables.filter(isStuck)) {
    const { queue, leases, publication } = table;
    if (queue.oldest && queue.oldest.waits_s >= NOTICED_S)
      rows.push({ table, waits: queue.oldest.waits_s, what: [h("strong", {}, who(queue.oldest)), ` ${queue.oldest.operation}`, h("small", {}, at(queue.oldest))], after: queue.length - 1 });
    else if (leases.longest_wait_s >= NOTICED_S)
      rows.push({ table, waits: leases.longest_wait_s, what: [h("strong", {}, who(leases.waiter)), " a lease", h("small", {}, at(leases.waiter))], after: leases.waiting - 1 });
    if (publication.seconds >= NOTICED_S)
      rows.push({ table, waits: publication.seconds, what: `${many(publication.versions, "version")} decided, not in the log`, after: publication.versions - 1 });
  }
  return rows.sort((one, other) => other.waits - one.waits);
}

export function messagesList(messages, withPlace = true) {
  return h("ul", { class: "messages" }, messages.map((each) =>
    h("li", { class: each.severity },
      h("p", {}, h("span", { class: "severity" }, each.severity), h("span", { class: "name" }, each.name),
        withPlace && h("span", { class: "place" }, each.where), each.since && h("time", { datetime: each.since }, `since ${clock(Date.parse(each.since))}`)),
      h("p", {}, prose(each.what)),
      h("p", { class: "remedy" }, prose(each.remedy)))));
}

function headline(status) {
  const errors = status.messages.filter((each) => each.severity === "error");
  const stuck = status.tables.filter((table) => table.limited_by !== "workload");
  if (errors.length === 0 && stuck.length === 0)
    return status.ok === null ? ["unknown", "Nothing is wrong, but something cannot be seen from here"] : ["well", "All is well"];
  if (status.coordinator.trouble !== null) return ["wrong", "The coordinator does not answer"];
  const named = stuck.length === 1 ? `${shortName(stuck[0])} is held up by ${limitOf(stuck[0].limited_by)}` : `${many(stuck.length, "table")} are held up`;
  return ["wrong", stuck.length ? named : `${many(errors.length, "error")}: see what to do`];
}

function top(status) {
  const { coordinator, tables } = status;
  const waiting = tables.filter(oldestOf).sort((one, other) => oldestOf(other) - oldestOf(one))[0];
  const lag = tables.filter((table) => table.publication.versions).sort((one, other) => other.publication.seconds - one.publication.seconds)[0];
  const spare = coordinator.may_stop_before_commits_do;
  const serving = coordinator.servers.filter((server) => ["leader", "follower", "observer", "standalone"].includes(server.state)).length;
  const [state, text] = headline(status);
  return [
    h("h1", { class: state }, text),
    figures([
      ["Limited by", limitOf(status.limited_by), status.limited_by === "workload" ? "" : "wrong"],
      oldestWaiter(waiting, waiting && ` on ${shortName(waiting)}`),
      ["Publish lag", lag ? [age(lag.publication.seconds), h("small", {}, `${many(lag.publication.versions, "version")} of ${shortName(lag)}`)] : ["none", h("small", {}, "all versions are in the log")]],
      ["Servers", [coordinator.servers.length ? `${serving} of ${coordinator.servers.length} serve` : "none", h("small", {}, spare === null ? "how many may stop is unknown" : `${spare} more may stop`)], spare === 0 && coordinator.servers.length > 1 ? "wrong" : ""],
      ["Clients", [coordinator.clients ? count(Object.values(coordinator.clients).reduce((sum, each) => sum + each, 0)) : "unknown", h("small", {}, coordinator.write_s === null ? "no write goes through" : `a write takes ${seconds(coordinator.write_s)}`)]],
    ]),
  ];
}

const COLUMNS = [
  { key: "table", title: "Table", of: (t) => shortName(t).toLowerCase(), cell: (t) => h("a", { href: linkOf(t.location), title: t.location }, shortName(t)) },
  { key: "limit", title: "Limited by", of: (t) => LIMIT_ORDER.indexOf(t.limited_by), cell: (t) => (t.trouble ? "not readable" : limitOf(t.limited_by)), mark: (t) => t.limited_by !== "workload" || t.trouble },
  { key: "version", title: "Version", number: true, of: (t) => -t.version, cell: (t) => count(t.version) },
  { key: "rate", title: "Commits/s", number: true, of: (t) => -t.commits_per_s, cell: (t) => rate(t.commits_per_s) },
  { key: "refused", title: "Refused", number: true, of: (t) => -t.refused, cell: (t) => count(t.refused), mark: (t) => t.refused > 0 },
  { key: "queue", title: "Queue", number: true, of: (t) => -t.queue.length, cell: (t) => count(t.queue.length) },
  { key: "oldest", title: "Oldest waits", number: true, of: (t) => -oldestOf(t), cell: (t) => (oldestOf(t) ? seconds(oldestOf(t)) : "–"), mark: (t) => oldestOf(t) > 10 },
  { key: "lag", title: "Not in the log", number: true, of: (t) => -t.publication.versions, cell: (t) => count(t.publication.versions), mark: (t) => t.publication.seconds > 10 },
  { key: "leases", title: "Leases", number: true, of: (t) => -t.leases.held - t.leases.waiting, cell: (t) => (t.leases.waiting ? `${t.leases.held} + ${t.leases.waiting} wait` : count(t.leases.held)) },
];

// What is wrong comes first, then what is busy.
const weight = (t) => [t.trouble ? 0 : 1, LIMIT_ORDER.indexOf(t.limited_by), isStuck(t) ? 0 : 1, -t.refused, -t.queue.length, -t.commits_per_s];

function compare(one, other) {
  for (let n = 0; n < one.length; n += 1) if (one[n] !== other[n]) return one[n] < other[n] ? -1 : 1;
  return 0;
}

// Rows are made once and changed where a text changed: three hundred of them every other second.
class Tables {
  constructor(context) {
    this.context = context;
    this.rows = new Map();
    this.sort = { key: "", down: false };
    this.filter = h("input", { id: "filter", type: "search", placeholder: "Filter by name or location  ( / )", "aria-label": "Filter the tables", oninput: () => this.update() });
    this.busy = h("input", { id: "busy", type: "checkbox", onchange: () => this.update() });
    this.shown = h("span", { class: "muted", role: "status" });
    this.heads = COLUMNS.map((column) => h("th", { scope: "col", class: column.number && "number" }, h("button", { type: "button", id: `sort-${column.key}`, onclick: () => this.by(column.key) }, column.title)));
    this.body = h("tbody");
    this.nothing = empty("");
    this.element = h("section", { "aria-label": "Tables" },
      h("div", { class: "bar" }, h("h2", {}, "Tables"), this.filter, h("label", { for: "busy" }, this.busy, " only those in use"), this.shown),
      h("div", { class: "scroll" }, h("table", { id: "tables" }, h("caption", { class: "unseen" }, "All tables of the coordinator"), h("thead", {}, h("tr", {}, this.heads)), this.body)),
      this.nothing);
  }

  by(key) {
    this.sort = { key, down: this.sort.key === key && !this.sort.down };
    this.update();
  }

  ordered(tables) {
    const column = COLUMNS.find((each) => each.key === this.sort.key);
    const keyed = tables.map((table) => ({ table, key: [...(column ? [column.of(table)] : weight(table)), shortName(table)] }));
    keyed.sort((one, other) => compare(one.key, other.key));
    if (column && this.sort.down) keyed.reverse();
    return keyed.map((each) => each.table);
  }

  update() {
    const all = this.context.status.tables;
    const needle = this.filter.value.trim().toLowerCase();
    const inUse = (table) => table.committed || table.refused || table.queue.length || table.leases.held || table.leases.waiting || table.publication.versions || table.trouble;
    const some = all.filter((table) => (!needle || `${table.name || ""} ${table.location}`.toLowerCase().includes(needle)) && (!this.busy.checked || inUse(table)));
    const rows = this.ordered(some).map((table) => this.row(table));
    if (rows.length !== this.body.children.length || rows.some((row, n) => row !== this.body.children[n])) replace(this.body, rows);
    this.shown.textContent = some.length === all.length ? many(all.length, "table") : `${count(some.length)} of ${many(all.length, "table")}`;
    COLUMNS.forEach((column, n) => {
      if (column.key === this.sort.key) this.heads[n].setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else this.heads[n].removeAttribute("aria-sort");
    });
    this.nothing.hidden = some.length > 0;
    this.nothing.textContent = all.length === 0 ? (this.context.status.coordinator.trouble ? "The tables cannot be seen while the coordinator does not answer." : "The coordinator keeps no table yet. The first sluice.Table.create shows here.") : "No table matches.";
  }

  row(table) {
    let row = this.rows.get(table.location);
    if (!row) {
      row = h("tr", {}, COLUMNS.map((column, n) => (n === 0 ? h("th", { scope: "row" }, column.cell(table)) : h("td", { class: column.number && "number" }))));
      row.addEventListener("click", (event) => {
        if (!event.target.closest("a") && !String(getSelection())) location.hash = linkOf(table.location);
      });
      this.rows.set(table.location, row);
    }
    COLUMNS.forEach((column, n) => {
      const cell = row.children[n];
      const text = column.cell(table);
      if (n > 0 && cell.textContent !== text) cell.textContent = text;
      if (column.mark) cell.classList.toggle("mark", Boolean(column.mark(table)));
      if (n > 0) cell.classList.toggle("zero", ["0", "–", "the workload"].includes(text));
    });
    return row;
  }
}

export function overviewPage(context) {
  const head = h("div");
  const stuck = h("div");
  const notices = h("div");
  const tables = new Tables(context);
  return {
    title: "Tables",
    element: h("div", {}, head, stuck, notices, tables.element),
    update() {
      const { status } = context;
      const rows = waiters(status.tables);
      const queued = status.tables.reduce((sum, table) => sum + table.queue.length, 0);
      replace(head, top(status));
      replace(stuck, section("Who waits", rows.length
        ? grid([
          { title: "Table", cell: (row) => h("a", { href: linkOf(row.table.location) }, shortName(row.table)) },
          { title: "Waits", cell: (row) => row.what, kind: "lines" },
          { title: "For", number: true, cell: (row) => age(row.waits) },
          { title: "Behind", cell: (row) => behind(row.table), kind: "wide" },
          { title: "After it", number: true, cell: (row) => count(row.after) },
        ], rows.slice(0, 12), "Transactions, requests and versions that wait")
        : empty(queued ? `${many(queued, "transaction is", "transactions are")} in queues, none for longer than a second.` : "Nobody waits: transactions are decided as they come.")));
      replace(notices, status.messages.length ? section("What to do", messagesList(status.messages)) : "");
      tables.update();
    },
  };
}
