// The conversations of this browser: which there are, which one is open, and what files they go to and come from.
import * as store from "./store.js";
import { checkedConversations } from "./transfer.js";

// Dispatches "list" when the list or its titles change, "current" when another conversation is open, and "failed" with
// an error when the browser keeps nothing.
export const changes = new EventTarget();

let all = []; // the latest first; those without a message are in no list and no store
let open = fresh();

// crypto.randomUUID is there for localhost and HTTPS alone.
function newId() {
  const numbers = crypto.getRandomValues(new Uint32Array(4));
  return Array.from(numbers, (number) => number.toString(16).padStart(8, "0")).join("");
}

function fresh(settings) {
  return {
    id: newId(),
    title: "",
    changed: Date.now(),
    settings: settings ?? { system: "", sampling: {}, more: "" },
    messages: [],
  };
}

function tell(name, detail) {
  changes.dispatchEvent(new CustomEvent(name, { detail }));
}

function kept(promise) {
  return promise.catch((error) => tell("failed", error));
}

export const list = () => all;
export const current = () => open;

export async function start() {
  const records = (await kept(store.loadAll())) ?? [];
  all = records.sort((a, b) => b.changed - a.changed);
  if (all.length) open = all[0];
  tell("list");
  tell("current");
}

// Opens an empty conversation with the settings of the last one.
export function create() {
  open = fresh(structuredClone(open.settings));
  tell("list");
  tell("current");
}

export function select(id) {
  open = all.find((one) => one.id === id) ?? open;
  tell("list");
  tell("current");
}

// Keeps what a conversation has become.
export function keep(conversation) {
  if (!conversation.messages.length && !all.includes(conversation)) return;
  const first = conversation.messages.find((message) => message.role === "user");
  conversation.title ||= (first?.content ?? "").trim().replace(/\s+/g, " ").slice(0, 80);
  conversation.changed = Date.now();
  all = [conversation, ...all.filter((one) => one !== conversation)];
  kept(store.put(conversation));
  tell("list");
}

// Keeps the words that came since, while a reply is written. A conversation that is deleted stays so.
export function keepProgress(conversation) {
  if (all.includes(conversation)) kept(store.put(conversation));
}

export function rename(conversation, title) {
  conversation.title = title.trim().slice(0, 80) || conversation.title;
  keep(conversation);
}

export function remove(conversation) {
  all = all.filter((one) => one !== conversation);
  kept(store.remove(conversation.id));
  if (open === conversation) {
    open = all[0] ?? fresh(structuredClone(conversation.settings));
    tell("current");
  }
  tell("list");
}

// Settles when the browser has forgotten them.
export function removeAll() {
  all = [];
  open = fresh();
  tell("list");
  tell("current");
  return kept(store.removeAll());
}

export function exportText() {
  return JSON.stringify({ moracle: 1, conversations: all }, null, 1);
}

// Adds the conversations of an exported file and returns how many are new. Throws an Error that says what is wrong.
export async function importText(text) {
  const known = new Set(checkedConversations(exportText()).map((one) => JSON.stringify(one)));
  const added = checkedConversations(text).filter((one) => !known.has(JSON.stringify(one)));
  for (const one of added) {
    if (all.some((other) => other.id === one.id)) one.id = newId(); // another state of one that is here
    all.push(one);
  }
  await Promise.all(added.map((one) => kept(store.put(one))));
  all.sort((a, b) => b.changed - a.changed);
  if (!open.messages.length && all.length) open = all[0];
  tell("list");
  tell("current");
  return added.length;
}
