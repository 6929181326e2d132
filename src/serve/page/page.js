"use strict";

// Text of the model and of the server enters the page through textContent alone.
const at = (id) => document.getElementById(id);
const messages = [];
let running = null; // the AbortController of the reply under way
let watching = null; // of the stream of experts
let latest = null; // what it told last

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

// --- chat ---

function show(role, text) {
  at("welcome").hidden = true;
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
  return parts.join(" · ");
}

async function reply() {
  const article = show("assistant");
  const details = element("details");
  const reasoning = element("div");
  const answer = element("div");
  details.hidden = true;
  details.append(element("summary", "Reasoning"), reasoning);
  article.append(details, answer);
  const own = new AbortController();
  running = own;
  at("send").hidden = true;
  at("stop").hidden = false;
  const body = { messages, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };
  if (at("temperature").value) body.temperature = Number(at("temperature").value);
  let first = 0;
  let id = "";
  try {
    const stream = await ask("/v1/chat/completions", { method: "POST", body: JSON.stringify(body), signal: own.signal });
    for await (const event of events(stream.body)) {
      if (event.error) throw new Error(event.error.message);
      if (!id) watch((id = event.id));
      const delta = event.choices[0]?.delta ?? {};
      if (delta.reasoning) {
        details.hidden = false;
        reasoning.textContent += delta.reasoning;
      }
      if (delta.content) answer.textContent += delta.content;
      if (!first && (delta.reasoning || delta.content)) first = performance.now();
      if (first) at("figures").textContent = figures(event.usage?.completion_tokens ?? 0, first, event.usage);
      if (delta.content || delta.reasoning) article.scrollIntoView({ block: "end" });
    }
  } catch (error) {
    if (error.name !== "AbortError") show("wrong", error.message);
  }
  if (running === own) {
    running = null;
    at("send").hidden = false;
    at("stop").hidden = true;
    if (at("figures").textContent) article.append(element("footer", at("figures").textContent));
    at("figures").textContent = "";
    article.scrollIntoView({ block: "end" });
    if (answer.textContent) messages.push({ role: "assistant", content: answer.textContent });
  }
}

function say(words) {
  if (running || !words.trim()) return;
  at("words").value = "";
  messages.push({ role: "user", content: words });
  show("user", words);
  reply();
}

// --- experts ---

// Colours of the style sheet, as numbers.
function colours() {
  const style = getComputedStyle(document.documentElement);
  return ["--cold", "--warm", "--hot"].map((name) => {
    const hex = style.getPropertyValue(name).trim();
    return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  });
}

// A pixel for each layer and expert, by the square root of its share of the largest count.
function draw(canvas, rows) {
  const most = Math.max(1, ...rows.map((row) => Math.max(...row)));
  const [cold, warm, hot] = colours();
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  canvas.style.aspectRatio = `${Math.max(rows[0].length, rows.length)} / ${Math.max(rows.length, rows[0].length / 3)}`;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  rows.flat().forEach((count, i) => {
    const heat = Math.sqrt(count / most) * 2;
    const [from, to] = heat < 1 ? [cold, warm] : [warm, hot];
    for (let c = 0; c < 3; ++c) image.data[4 * i + c] = from[c] + (to[c] - from[c]) * (heat < 1 ? heat : heat - 1);
    image.data[4 * i + 3] = 255;
  });
  context.putImageData(image, 0, 0);
}

function words(rows) {
  const used = rows.flat().filter((count) => count > 0).length;
  const tokens = Math.max(...rows.map((row) => row.reduce((sum, count) => sum + count, 0)));
  let hottest = { count: 0 };
  rows.forEach((row, layer) =>
    row.forEach((count, expert) => {
      if (count > hottest.count) hottest = { count, layer, expert };
    }),
  );
  if (!hottest.count) return "No token yet.";
  const all = rows.length * rows[0].length;
  return `${used} of ${all} experts in use · ${tokens} choices a layer · busiest: layer ${hottest.layer}, expert ${hottest.expert}`;
}

function cell(canvas, rows, output, event) {
  const box = canvas.getBoundingClientRect();
  const layer = Math.min(rows.length - 1, Math.floor(((event.clientY - box.top) / box.height) * rows.length));
  const expert = Math.min(rows[0].length - 1, Math.floor(((event.clientX - box.left) / box.width) * rows[0].length));
  if (layer >= 0 && expert >= 0) output.textContent = `layer ${layer}, expert ${expert}: ${rows[layer][expert]} tokens`;
}

function paint() {
  if (!latest) return;
  for (const [name, rows] of [["all", latest.all], ["request", latest.request?.counts]]) {
    if (!rows?.length) continue;
    draw(at(name + "-map"), rows);
    at(name + "-words").textContent = words(rows);
  }
}

for (const name of ["all", "request"]) {
  at(name + "-map").addEventListener("mousemove", (event) => {
    const rows = name === "all" ? latest?.all : latest?.request?.counts;
    if (rows?.length) cell(at(name + "-map"), rows, at(name + "-cell"), event);
  });
  at(name + "-map").addEventListener("mouseleave", () => (at(name + "-cell").textContent = ""));
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);

// The experts of all replies, and of the one with this id.
async function watch(id) {
  watching?.abort();
  const own = new AbortController();
  watching = own;
  try {
    const stream = await ask("/v1/routing" + (id ? "?request=" + encodeURIComponent(id) : ""), { signal: own.signal });
    for await (const event of events(stream.body)) {
      latest = event.request ? event : { ...event, request: latest?.request };
      paint();
    }
  } catch (error) {
    if (error.name !== "AbortError") at("all-words").textContent = error.message;
  }
}

// --- decisions ---

function group(layer) {
  const section = element("section");
  const scheme = layer.scheme.activation ? `${layer.scheme.weight}, activations ${layer.scheme.activation}` : layer.scheme.weight;
  section.append(element("h2", layer.names.join(", ")), element("p", scheme));
  const table = element("table");
  const trace = layer.trace ?? [];
  // A backend has a card for each group of schemes: the first without a reason against it serves.
  const chosen = trace.find((backend) => backend.backend === layer.backend && !backend.reasons?.length);
  for (const backend of trace) {
    const row = element("tr");
    const serves = backend === chosen;
    const why = (backend.reasons ?? []).map((reason) => `${reason.rule}: wanted ${reason.wanted}, found ${reason.found}`);
    row.append(element("td", backend.backend, serves ? "serves" : ""));
    row.append(element("td", serves ? "serves" : why.join("; ") || `could serve, after ${layer.backend}`, serves ? "serves" : "lacks"));
    table.append(row);
  }
  if (!layer.backend) section.append(element("p", "no kernel serves it"));
  section.append(table);
  return section;
}

async function decisions() {
  const told = await (await ask("/v1/decision")).json();
  at("table").replaceChildren(...told.layers.map(group));
}

// --- the page ---

function choose(view) {
  document.body.className = view;
  at("decisions").hidden = view !== "decisions";
  for (const name of ["chat", "experts", "decisions"]) at("show-" + name).setAttribute("aria-pressed", String(name === view));
  if (view === "decisions") decisions().catch((error) => at("table").replaceChildren(element("p", error.message)));
}

async function greet() {
  try {
    const status = await (await ask("/v1/status")).json();
    const invariant = status.batch_invariant ? "same bits at any load" : "bits may differ by load";
    at("model").textContent =
      status.state === "ready" ? `${status.model} · ${invariant}` : `${status.model} · ${status.state} ${Math.round(100 * status.progress)} %`;
    if (status.state === "loading") setTimeout(greet, 500);
    if (status.state === "ready") watch("");
  } catch (error) {
    at("model").textContent = error.message;
  }
}

at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  say(at("words").value);
});
at("words").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  at("ask").requestSubmit();
});
for (const idea of at("ideas").children) idea.addEventListener("click", () => say(idea.textContent));
at("stop").addEventListener("click", () => running?.abort());
at("clear").addEventListener("click", () => {
  running?.abort();
  messages.length = 0;
  for (const article of at("talk").querySelectorAll("article")) article.remove();
  at("welcome").hidden = false;
  at("figures").textContent = "";
});
for (const view of ["chat", "experts", "decisions"]) at("show-" + view).addEventListener("click", () => choose(view));
at("key").addEventListener("change", greet);
greet();
