// Reads files of conversations, which may hold anything: what comes out has known members of known types alone.

const ROLES = ["user", "assistant", "tool"];

function wrong(where, wanted) {
  throw new Error(`${where}: ${wanted}`);
}

function text(value, where) {
  return typeof value === "string" ? value : wrong(where, "a text");
}

function number(value, where) {
  return Number.isFinite(value) ? value : wrong(where, "a number");
}

function list(value, where, item) {
  if (!Array.isArray(value)) wrong(where, "a list");
  return value.map((one, i) => item(one, `${where}[${i}]`));
}

function object(value, where) {
  return value && typeof value === "object" && !Array.isArray(value) ? value : wrong(where, "an object");
}

// Copies the members that are there.
function some(value, where, members) {
  const out = {};
  for (const [name, read] of Object.entries(members)) {
    if (value[name] !== undefined) out[name] = read(value[name], `${where}.${name}`);
  }
  return out;
}

function call(value, where) {
  return some(object(value, where), where, { id: text, name: text, arguments: text });
}

function usage(value, where) {
  return some(object(value, where), where, { prompt: number, completion: number, cached: number });
}

function message(value, where) {
  const role = object(value, where).role;
  if (!ROLES.includes(role)) wrong(where + ".role", ROLES.join(", "));
  return {
    role,
    content: text(value.content, where + ".content"),
    ...some(value, where, {
      reasoning: text,
      calls: (calls, at) => list(calls, at, call),
      call_id: text,
      name: text,
      finish: text,
      error: text,
      rate: number,
      usage,
    }),
  };
}

function settings(value, where) {
  const sampling = {};
  for (const [name, one] of Object.entries(object(object(value, where).sampling ?? {}, where + ".sampling")))
    sampling[name] = number(one, `${where}.sampling.${name}`);
  const [system, more] = ["system", "more"].map((name) => text(value[name] ?? "", `${where}.${name}`));
  return { system, sampling, more };
}

function conversation(value, where) {
  return {
    id: text(object(value, where).id, where + ".id"),
    title: text(value.title, where + ".title").slice(0, 80),
    changed: number(value.changed, where + ".changed"),
    settings: settings(value.settings ?? {}, where + ".settings"),
    messages: list(value.messages, where + ".messages", message),
  };
}

export function checkedConversations(file) {
  let value;
  try {
    value = JSON.parse(file);
  } catch {
    wrong("file", "JSON, as Export writes it");
  }
  if (object(value, "file").moracle !== 1) wrong("file", "conversations, as Export writes them");
  return list(value.conversations, "conversations", conversation);
}
