// Two maps of layers and experts: of the reply that began last, and of all replies.
import { at } from "./dom.js";
import { ask, events } from "./server.js";

let watching = null; // the AbortController of the stream
let latest = null; // its last event
let told = 0; // when slots were asked for, in ms

export const latestEvent = () => latest;

// Colours of the style sheet, as numbers.
export function colours() {
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
  const busiest = `busiest: layer ${hottest.layer}, expert ${hottest.expert}`;
  return `${used} of ${all} experts in use · ${tokens} choices a layer · ${busiest}`;
}

function cell(canvas, rows, output, event) {
  const box = canvas.getBoundingClientRect();
  const layer = Math.min(rows.length - 1, Math.floor(((event.clientY - box.top) / box.height) * rows.length));
  const expert = Math.min(rows[0].length - 1, Math.floor(((event.clientX - box.left) / box.width) * rows[0].length));
  if (layer >= 0 && expert >= 0) output.textContent = `layer ${layer}, expert ${expert}: ${rows[layer][expert]} tokens`;
}

// Of a model with more experts than memory has room for; else nothing.
export function slotWords(status) {
  if (!status.experts) return "";
  const { slots, experts, uses, hits, reads, read_bytes } = status.experts;
  const share = uses ? Math.round((100 * hits) / uses) : 0;
  const each = read_bytes / Math.max(1, status.prompt_tokens + status.generated_tokens) / 2 ** 20;
  return `${slots} of ${experts} experts have room in memory · ${share} % found there · ${reads} read · ${each.toFixed(1)} MiB a token`;
}

// At most every two seconds, while replies are written.
async function tellSlots() {
  if (Date.now() < told + 2000) return;
  told = Date.now();
  at("slots-words").textContent = slotWords(await (await ask("/v1/status")).json());
}

function paint() {
  if (!latest) return;
  for (const [name, rows] of [["all", latest.all], ["request", latest.request?.counts]]) {
    if (!rows?.length) continue;
    draw(at(name + "-map"), rows);
    at(name + "-words").textContent = words(rows);
  }
}

async function watch(query) {
  watching?.abort();
  const own = new AbortController();
  watching = own;
  try {
    const stream = await ask("/v1/routing" + query, { signal: own.signal });
    for await (const event of events(stream.body)) {
      latest = event.request ? event : { ...event, request: latest?.request };
      paint();
      await tellSlots();
    }
  } catch (error) {
    if (error.name !== "AbortError") at("all-words").textContent = error.message;
  }
}

export const watchAll = () => watch("");
export const watchReply = (id) => watch("?request=" + encodeURIComponent(id));

export function start() {
  for (const name of ["all", "request"]) {
    at(name + "-map").addEventListener("mousemove", (event) => {
      const rows = name === "all" ? latest?.all : latest?.request?.counts;
      if (rows?.length) cell(at(name + "-map"), rows, at(name + "-cell"), event);
    });
    at(name + "-map").addEventListener("mouseleave", () => (at(name + "-cell").textContent = ""));
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
}
