// The frame of the page: which view is shown, and what is served.
import { at } from "./dom.js";
import * as chat from "./chat.js";
import * as conversations from "./conversations.js";
import { showDecisions } from "./decisions.js";
import * as experts from "./experts.js";
import * as list from "./list.js";
import { ask } from "./server.js";
import * as settings from "./settings.js";

const VIEWS = ["chat", "experts", "decisions"];

function choose(view) {
  document.body.className = view;
  at("decisions").hidden = view !== "decisions";
  for (const name of VIEWS) at("show-" + name).setAttribute("aria-pressed", String(name === view));
  list.showList(false);
  document.scrollingElement.scrollTop = view === "chat" ? document.scrollingElement.scrollHeight : 0;
  if (view === "decisions") showDecisions();
}

async function greet() {
  try {
    const status = await (await ask("/v1/status")).json();
    const invariant = status.batch_invariant ? "same bits at any load" : "bits may differ by load";
    const state = status.state === "ready" ? invariant : `${status.state} ${Math.round(100 * status.progress)} %`;
    at("model").textContent = `${status.model} · ${state}`;
    if (status.state === "loading") setTimeout(greet, 500);
    if (status.state !== "ready") return;
    chat.setContext(status.context);
    experts.watchAll();
  } catch (error) {
    at("model").textContent = error.message;
  }
}

for (const view of VIEWS) at("show-" + view).addEventListener("click", () => choose(view));
at("key").addEventListener("change", greet);
for (const part of [experts, settings, list, chat]) part.start();
await conversations.start();
greet();
