// The settings of a conversation: system prompt, sampling fields, and other fields of the request. The server's
// openapi.json marks the sampling fields and has their limits.
import { at, element } from "./dom.js";
import * as conversations from "./conversations.js";
import { hasMarkdown } from "./markdown.js";
import { ask } from "./server.js";

let fields = null; // [{name, text, schema}], once the server told

async function readFields() {
  const document = await (await ask("/openapi.json")).json();
  const { properties } = document.components.schemas.ChatRequest;
  return Object.entries(properties)
    .filter(([, field]) => field["x-sampling"])
    .sort(([, a], [, b]) => a["x-sampling"] - b["x-sampling"]) // their order in the table
    .map(([name, field]) => ({ name, text: field.description, schema: field.anyOf[0] }));
}

// The bounds that somebody may meet: {low, high, words}.
function bounds({ minimum, exclusiveMinimum, maximum }) {
  const near = (bound) => (Math.abs(bound) < 1e9 ? bound : undefined);
  const low = near(minimum ?? exclusiveMinimum);
  const high = near(maximum);
  const words = [];
  if (low !== undefined) words.push((exclusiveMinimum === undefined ? "from " : "above ") + low);
  if (high !== undefined) words.push("to " + high);
  return { low, high, words: words.join(" ") };
}

function control({ name, text, schema }) {
  const { low, high, words } = bounds(schema);
  const label = element("label", name.replaceAll("_", " "));
  const input = element("input");
  input.type = "number";
  input.name = name;
  input.step = schema.type === "integer" ? "1" : "any";
  input.min = low ?? "";
  input.max = high ?? (schema.type === "integer" ? Number.MAX_SAFE_INTEGER : "");
  input.placeholder = "default";
  input.addEventListener("change", () => change(input, schema));
  label.append(input, element("small", words ? `${text} (${words})` : text));
  return label;
}

function change(input, schema) {
  const conversation = conversations.current();
  const excluded = input.value !== "" && Number(input.value) === schema.exclusiveMinimum;
  input.setCustomValidity(excluded ? "above " + schema.exclusiveMinimum : "");
  if (!input.reportValidity()) return;
  if (input.value === "") delete conversation.settings.sampling[input.name];
  else conversation.settings.sampling[input.name] = Number(input.value);
  conversations.keep(conversation);
}

// What is wrong with the settings; empty: nothing.
export function settingsFault({ more }) {
  if (!more.trim()) return "";
  try {
    const value = JSON.parse(more);
    if (value && typeof value === "object" && !Array.isArray(value)) return "";
  } catch {
    // Text that is no JSON meets the same words.
  }
  return "Settings: more fields of the request are a JSON object";
}

function show() {
  const { settings } = conversations.current();
  at("system").value = settings.system;
  at("more").value = settings.more;
  for (const input of at("sampling").querySelectorAll("input")) {
    input.setCustomValidity("");
    input.value = settings.sampling[input.name] ?? "";
  }
  const plain = hasMarkdown ? "" : "This build shows Markdown as plain text.";
  at("settings-say").textContent = settingsFault(settings) || plain;
}

async function open() {
  show();
  at("settings").showModal();
  if (fields) return;
  try {
    fields = await readFields();
    at("sampling").replaceChildren(...fields.map(control));
    show();
  } catch (error) {
    at("settings-say").textContent = error.message;
  }
}

export function start() {
  at("show-settings").addEventListener("click", open);
  at("close-settings").addEventListener("click", () => at("settings").close());
  at("settings").addEventListener("click", (event) => {
    if (event.target === at("settings")) at("settings").close(); // beside the dialog
  });
  for (const name of ["system", "more"]) {
    at(name).addEventListener("change", () => {
      conversations.current().settings[name] = at(name).value;
      conversations.keep(conversations.current());
      show();
    });
  }
  at("reset-settings").addEventListener("click", () => {
    conversations.current().settings = { system: "", sampling: {}, more: "" };
    conversations.keep(conversations.current());
    show();
  });
}
