// Elements and texts. Whatever comes from tables and clients becomes text here, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// A text with `code` in backticks, as messages have it.
export function prose(text) {
  return String(text).split(/(`[^`]+`)/).map((part) => (part.startsWith("`") ? h("code", {}, part.slice(1, -1)) : part));
}

export const count = (number) => (number === null || number === undefined ? "–" : number.toLocaleString("en-US"));
export const many = (number, one, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;

export function rate(number) {
  return number === 0 ? "0" : number < 10 ? number.toFixed(number < 1 ? 2 : 1) : String(Math.round(number));
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.0995) return `${Math.round(value * 1000)} ms`;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.floor(value / 60)} min`;
  if (value < 172800) return `${Math.floor(value / 3600)} h`;
  return `${Math.floor(value / 86400)} days`;
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function clock(ms, withMilliseconds = false) {
  const time = new Date(ms);
  const text = [time.getHours(), time.getMinutes(), time.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
  return withMilliseconds ? `${text}.${String(time.getMilliseconds()).padStart(3, "0")}` : text;
}

export const moment = (ms) => `${new Date(ms).toISOString().slice(0, 10)} ${clock(ms)}`;

// A duration that goes on: it is counted here until the next document says more.
export function age(value) {
  const element = h("span", { class: "age" }, seconds(value));
  element.age = { value, since: performance.now() };
  return element;
}

setInterval(() => {
  for (const element of document.querySelectorAll(".age")) {
    const { value, since } = element.age;
    const text = seconds(value + (performance.now() - since) / 1000);
    if (element.textContent !== text) element.textContent = text;
  }
}, 1000);

export const who = (client) => client.application || (client.host ? "a client without a name" : "a client that is gone");
export const at = (client) => (client.host ? `${client.host}, process ${client.pid}` : "");

export const shortName = (table) => table.name || table.location.replace(/\/+$/, "").split("/").pop();
export const linkOf = (location) => `#/table/${encodeURIComponent(location)}`;

// While a button is pressed nothing is put in its place: the click would be lost.
let pressed = false;
const waiting = new Map();
document.addEventListener("pointerdown", () => { pressed = true; }, true);
for (const end of ["pointerup", "pointercancel"]) {
  document.addEventListener(end, () => {
    pressed = false;
    setTimeout(() => {
      for (const [element, children] of waiting) replace(element, children);
      waiting.clear();
    });
  }, true);
}

// Put new content in the place of old; the element that has the focus keeps it, if the new content has one with its id.
export function replace(element, ...children) {
  if (pressed) {
    waiting.set(element, children);
    return;
  }
  waiting.delete(element);
  const focused = document.activeElement && element.contains(document.activeElement) ? document.activeElement.id : "";
  element.replaceChildren(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

export function grid(columns, rows, caption) {
  const head = h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.number && "number" }, column.title)));
  const body = rows.map((row) => h("tr", {}, columns.map((column) => h("td", { class: column.number ? "number" : column.kind }, column.cell(row)))));
  return h("div", { class: "scroll" }, h("table", {}, h("caption", { class: "unseen" }, caption), h("thead", {}, head), h("tbody", {}, body)));
}

export const empty = (...text) => h("p", { class: "empty" }, ...text);
export const section = (title, ...content) => h("section", { "aria-label": title }, h("h2", {}, title), ...content);
export const figures = (facts) => h("dl", { class: "figures" }, facts.map(([name, value, kind]) => h("div", { class: kind }, h("dt", {}, name), h("dd", {}, value))));
