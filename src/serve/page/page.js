"use strict";

// Text of the model and of the server enters the page through textContent alone.
const at = (id) => document.getElementById(id);
const messages = [];
let running = null; // the AbortController of the reply under way

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function headers() {
  const all = { "Content-Type": "application/json" };
  if (at("key").value) all.Authorization = "Bearer " + at("key").value; // kept in this field alone
  return all;
}

async function ask(path, options) {
  const answer = await fetch(path, { ...options, headers: headers() });
  if (answer.status === 401) at("key-field").hidden = false;
  if (!answer.ok) {
    const told = await answer.json().catch(() => null);
    throw new Error(told?.error?.message ?? "status " + answer.status);
  }
  return answer;
}

// The objects of a stream of server-sent events.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    for (let end = held.indexOf("\n\n"); end >= 0; end = held.indexOf("\n\n")) {
      const event = held.slice(0, end);
      held = held.slice(end + 2);
      if (event.startsWith("data: ") && event !== "data: [DONE]") yield JSON.parse(event.slice(6));
    }
  }
}

function show(role, text) {
  const article = element("article", text, role);
  at("talk").append(article);
  article.scrollIntoView({ block: "end" });
  return article;
}

function figures(tokens, first, usage) {
  const seconds = (performance.now() - first) / 1000;
  const parts = [];
  if (tokens > 1 && seconds > 0) parts.push(((tokens - 1) / seconds).toFixed(1) + " tokens/s");
  if (usage) {
    parts.push(usage.prompt_tokens + " + " + usage.completion_tokens + " tokens");
    if (usage.prompt_tokens_details.cached_tokens) parts.push(usage.prompt_tokens_details.cached_tokens + " cached");
  }
  at("figures").textContent = parts.join(" · ");
}

async function reply() {
  const article = show("assistant");
  const details = element("details");
  const reasoning = element("div");
  const answer = element("div");
  details.hidden = true;
  details.append(element("summary", "Reasoning"), reasoning);
  article.append(details, answer);
  running = new AbortController();
  at("send").hidden = true;
  at("stop").hidden = false;
  const body = { messages, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };
  if (at("temperature").value) body.temperature = Number(at("temperature").value);
  let first = 0;
  try {
    const stream = await ask("/v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal: running.signal });
    for await (const event of events(stream.body)) {
      if (event.error) throw new Error(event.error.message);
      const delta = event.choices[0]?.delta ?? {};
      if (delta.reasoning) {
        details.hidden = false;
        reasoning.textContent += delta.reasoning;
      }
      if (delta.content) answer.textContent += delta.content;
      if (!first && (delta.reasoning || delta.content)) first = performance.now();
      if (first) figures(event.usage?.completion_tokens ?? 0, first, event.usage);
      if (delta.content || delta.reasoning) article.scrollIntoView({ block: "end" });
    }
  } catch (error) {
    if (error.name !== "AbortError") show("wrong", error.message);
  } finally {
    running = null;
    at("send").hidden = false;
    at("stop").hidden = true;
    if (answer.textContent) messages.push({ role: "assistant", content: answer.textContent });
  }
}

function list(title, backends) {
  const section = element("section");
  section.append(element("h2", title.names.join(", ")));
  const scheme = title.scheme.activation ? title.scheme.weight + ", activations " + title.scheme.activation : title.scheme.weight;
  section.append(element("p", scheme));
  section.append(element("p", title.backend ? "served by " + title.backend : "no kernel serves it", "serves"));
  const rows = element("ul");
  for (const backend of backends) {
    if (backend.backend === title.backend) continue;
    const why = (backend.reasons ?? []).map((reason) => `${reason.rule}: wanted ${reason.wanted}, found ${reason.found}`);
    rows.append(element("li", backend.backend + ": " + (why.join("; ") || "it serves, after " + title.backend)));
  }
  section.append(rows);
  return section;
}

async function decisions() {
  const told = await (await ask("/v1/decision")).json();
  at("table").replaceChildren(...told.layers.map((layer) => list(layer, layer.trace ?? [])));
}

function choose(chat) {
  at("chat").hidden = !chat;
  at("decisions").hidden = chat;
  at("show-chat").setAttribute("aria-pressed", String(chat));
  at("show-decisions").setAttribute("aria-pressed", String(!chat));
  if (!chat) decisions().catch((error) => at("table").replaceChildren(element("p", error.message)));
}

async function greet() {
  try {
    const status = await (await ask("/v1/status")).json();
    const invariant = status.batch_invariant ? "same bits at any load" : "bits may differ by load";
    at("model").textContent =
      status.state === "ready" ? `${status.model} · ${invariant}` : `${status.model} · ${status.state} ${Math.round(100 * status.progress)} %`;
    if (status.state === "loading") setTimeout(greet, 500);
  } catch (error) {
    at("model").textContent = error.message;
  }
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = at("words").value;
  if (running || !words.trim()) return;
  at("words").value = "";
  messages.push({ role: "user", content: words });
  show("user", words);
  reply();
});
at("words").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("ask").requestSubmit();
});
at("stop").addEventListener("click", () => running?.abort());
at("clear").addEventListener("click", () => {
  running?.abort();
  messages.length = 0;
  at("talk").replaceChildren();
  at("figures").textContent = "";
});
at("show-chat").addEventListener("click", () => choose(true));
at("show-decisions").addEventListener("click", () => choose(false));
at("key").addEventListener("change", greet);
greet();
