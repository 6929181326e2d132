// Which kernel serves each group of modules, and what the others lack.
import { at, element } from "./dom.js";
import { ask } from "./server.js";

const IN_LAYER = /^(?:.*\.)?layers\.(\d+)\.(.+)$/;

// "q_proj" of "self_attn.q_proj"; "shared_expert.up_proj" of "mlp.shared_expert.up_proj".
const short = (path) => path.split(".").slice(1).join(".") || path;

// "0–2, 5" of 0, 1, 2, 5.
function ranges(numbers) {
  const out = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = out.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else out.push([number, number]);
  }
  return out.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
}

function layersOf(names) {
  return new Set(names.flatMap((name) => IN_LAYER.exec(name)?.[1] ?? []).map(Number));
}

function ofLayers(layers, total) {
  if (layers.size === total) return total === 1 ? "of the layer" : `of all ${total} layers`;
  return (layers.size === 1 ? "of layer " : "of layers ") + ranges(layers);
}

// "q_proj, o_proj of all 3 layers". Modules of the same layers stand together; two that end alike keep their paths.
export function heading(names, total) {
  const paths = new Map(); // by path within a layer: its layers
  const alone = [];
  for (const name of names) {
    const [, layer, path] = IN_LAYER.exec(name) ?? [];
    if (!path) alone.push(name);
    else paths.set(path, (paths.get(path) ?? new Set()).add(Number(layer)));
  }
  const all = [...paths.keys()];
  const together = new Map();
  for (const [path, layers] of paths) {
    const name = all.filter((other) => short(other) === short(path)).length > 1 ? path : short(path);
    const where = ofLayers(layers, total);
    together.set(where, [...(together.get(where) ?? []), name]);
  }
  return [...[...together].map(([where, modules]) => `${modules.join(", ")} ${where}`), ...alone].join("; ");
}

// The features of "cpu x86_64 with avx2+avx512"; null: it is no such list.
const features = (text) => /^cpu(?: \S+)? with (.+)$/.exec(text)?.[1].split("+") ?? null;

export function reasonWords({ rule, wanted, found }) {
  const [needed, there] = [features(wanted), features(found)];
  if (rule === "device") {
    const missing = needed && there ? needed.filter((one) => !there.includes(one)) : [];
    return missing.length ? "lacks " + missing.join(", ") : `needs ${wanted}`;
  }
  if (rule === "not_built") return found === "none" ? "is not in this build" : `is not in this build (${found})`;
  return `${rule.replaceAll("_", " ")}: wants ${wanted}, not ${found}`;
}

// Whether a card is for a GPU on a CPU, or the other way round.
const ofOtherDevice = ({ reasons }) =>
  reasons.some(({ rule, wanted, found }) => rule === "device" && !(features(wanted) && features(found)));

// Cards with the same reasons share a row.
function rowsOf(cards) {
  const rows = new Map();
  for (const { card, reasons } of cards) {
    const why = (reasons ?? []).map(reasonWords);
    const row = rows.get(why.join("\n")) ?? { names: [], why };
    row.names.push(card);
    rows.set(why.join("\n"), row);
  }
  return [...rows.values()];
}

function list(items, className) {
  const made = element("ul", undefined, className);
  made.append(...items.map((item) => element("li", item)));
  return made;
}

function tableOf(cards) {
  const table = element("table");
  for (const { names, why } of rowsOf(cards)) {
    const row = element("tr");
    const reasons = element("td");
    reasons.append(list(why));
    const cell = element("td");
    cell.append(list(names));
    row.append(cell, reasons);
    table.append(row);
  }
  return table;
}

function folded(title, cards) {
  const details = element("details");
  details.append(element("summary", title), tableOf(cards));
  return details;
}

function group(layer, total) {
  const section = element("section");
  const title = element("h3", heading(layer.names, total));
  title.title = layer.names.join("\n");
  const trace = layer.trace ?? [];
  // A backend has a card for each group of schemes: the first without a reason against it serves.
  const chosen = trace.find((card) => card.backend === layer.backend && !card.reasons?.length);
  const able = trace.filter((card) => card !== chosen && !card.reasons?.length);
  const unable = trace.filter((card) => card.reasons?.length);
  const { weight, activation } = layer.scheme;
  section.append(title, element("p", activation ? `${weight}, activations ${activation}` : weight));
  const winner = element("p", undefined, "winner");
  if (layer.backend) winner.append(element("strong", layer.backend), ` serves${chosen ? ": " + chosen.card : ""}`);
  else winner.textContent = "No kernel serves it.";
  section.append(winner);
  if (able.length) section.append(element("p", "Could as well, after it: " + able.map((card) => card.card).join(", ")));
  const near = unable.filter((card) => card.kind !== "external" && !ofOtherDevice(card));
  const far = unable.filter((card) => card.kind !== "external" && ofOtherDevice(card));
  const external = unable.filter((card) => card.kind === "external");
  if (near.length) section.append(tableOf(near));
  if (far.length) section.append(folded("Kernels of other devices", far));
  if (external.length) section.append(folded("Kernels of other engines", external));
  return section;
}

// Layers that differ in shape alone share a decision.
function merged(layers) {
  const groups = new Map();
  for (const { names, ...decision } of layers) {
    const key = JSON.stringify(decision);
    const group = groups.get(key) ?? { names: [], ...decision };
    group.names.push(...names);
    groups.set(key, group);
  }
  return [...groups.values()];
}

async function show() {
  const { layers } = await (await ask("/v1/decision")).json();
  const total = layersOf(layers.flatMap((layer) => layer.names)).size;
  at("table").replaceChildren(...merged(layers).map((layer) => group(layer, total)));
}

export function showDecisions() {
  return show().catch((error) => at("table").replaceChildren(element("p", error.message, "wrong")));
}
