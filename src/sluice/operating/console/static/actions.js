// What a token allows: asked for in a dialog, done by one request. The token is kept in this page's memory only.

import { h, replace } from "./dom.js";

const kept = { by: "", token: "" };
const dialog = document.getElementById("dialog");
const toast = document.getElementById("toast");

function say(text, failed) {
  toast.textContent = text;
  toast.classList.toggle("wrong", failed);
  toast.hidden = false;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { toast.hidden = true; }, 12000);
}

export function ask(action, question, location, what) {
  const by = h("input", { id: "by", autocomplete: "name", required: true, maxlength: "100" });
  const token = h("input", { id: "token", type: "password", autocomplete: "off", required: true });
  [by.value, token.value] = [kept.by, kept.token];
  const form = h("form", { method: "dialog" },
    h("h2", { id: "dialog-title" }, question),
    h("label", { for: "by" }, "Who are you? It is logged", by),
    h("label", { for: "token" }, "The token of this console", token),
    h("div", { class: "actions" },
      h("button", { type: "button", onclick: () => dialog.close() }, "Leave it"),
      h("button", { type: "submit", class: "primary" }, "Do it")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    [kept.by, kept.token] = [by.value, token.value];
    dialog.close();
    say("working …", false);
    try {
      const answer = await fetch(`/api/actions/${action}`, { method: "POST", headers: { "Content-Type": "application/json", "X-Sluice-Token": kept.token }, body: JSON.stringify({ location, by: kept.by, what }) });
      const text = await answer.text();
      if (answer.status === 401) kept.token = "";
      const facts = (answer.headers.get("content-type") || "").includes("json") ? JSON.parse(text) : { error: text };
      say(facts.done || facts.error, !answer.ok);
    } catch (error) {
      say(`the console does not answer: ${error.message}`, true);
    }
  });
  replace(dialog, form);
  dialog.showModal();
  (by.value ? token : by).focus();
}
