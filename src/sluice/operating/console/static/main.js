// The page: one stream of documents, a page for each address after #, and the keys.

import { clock, replace } from "./dom.js";
import { ensemblePage } from "./ensemble.js";
import { overviewPage } from "./overview.js";
import { tablePage } from "./table.js";

const main = document.getElementById("main");
const live = document.getElementById("live");
const context = { status: null, settings: { actions: false }, received: 0 };
const DEAF_MS = 15000;
let page = null;
let heard = performance.now();
let stream = null;

function pageOf(hash) {
  const [, kind, rest] = /^#\/([a-z]*)\/?(.*)$/.exec(hash) || [null, "", ""];
  if (kind === "table") return tablePage(context, decodeURIComponent(rest));
  return kind === "ensemble" ? ensemblePage(context) : overviewPage(context);
}

function go() {
  page?.leave?.();
  page = pageOf(location.hash);
  document.title = `${page.title} · sluice`;
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.getAttribute("href") === "#/ensemble" ? location.hash === "#/ensemble" : location.hash !== "#/ensemble";
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  replace(main, page.element);
  if (context.status) page.update();
  window.scrollTo(0, 0);
}

function say(state, text) {
  if (live.dataset.state !== state) live.dataset.state = state;
  if (live.textContent !== text) live.textContent = text;
}

// A browser keeps six connections to a host, for all its pages: one that is hidden keeps none.
function listen() {
  stream?.close();
  if (document.hidden) return;
  stream = new EventSource("/api/events");
  const hear = (at) => {
    heard = performance.now();
    say("live", `live, ${clock(Date.parse(at))}`);
  };
  stream.onmessage = (event) => {
    context.status = JSON.parse(event.data);
    document.getElementById("where").textContent = context.status.coordinator.address;
    hear(context.status.at);
    page.update();
  };
  stream.addEventListener("still", (event) => hear(event.data));
  const mine = stream;
  stream.onerror = () => {
    say("away", "the console does not answer; trying again");
    if (mine === stream && mine.readyState === EventSource.CLOSED) setTimeout(() => mine === stream && listen(), 2000);
  };
}

// The buttons of a page wait for it, and nothing else does.
async function settle() {
  let settings;
  try {
    settings = await (await fetch("/api/settings")).json();
  } catch {
    setTimeout(settle, 2000);
    return;
  }
  context.settings = settings;
  if (context.status) page.update();
}

setInterval(() => {
  if (live.dataset.state === "live" && performance.now() - heard > DEAF_MS) say("away", "nothing has come for a while");
}, 1000);

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    const filter = document.getElementById("filter");
    if (filter) {
      event.preventDefault();
      filter.focus();
    }
  }
});

window.addEventListener("hashchange", go);
go();
settle();
document.addEventListener("visibilitychange", () => {
  if (context.status && document.hidden) say("away", "paused while the page is hidden");
  listen();
});
listen();
