// The open conversation: its messages, and the form that adds to them.
import { at } from "./dom.js";
import * as conversations from "./conversations.js";
import { watchReply } from "./experts.js";
import { MessageView } from "./message.js";
import { emptyReply, figures, generate } from "./reply.js";
import { settingsFault } from "./settings.js";

const SAVE_MS = 1000;
const running = new Map(); // by conversation: {controller, message}
const views = new WeakMap(); // by message
let context = 0; // tokens of prompt and reply together, 0: not known yet

const shown = () => conversations.current();

function viewOf(message) {
  if (!views.has(message)) views.set(message, new MessageView(message, { edit, regenerate, goOn, erase }));
  return views.get(message);
}

// A page that is at its end stays there while words arrive; who reads further up is left alone.
function follow(change) {
  const page = document.scrollingElement;
  const follows = page.scrollHeight - page.scrollTop - page.clientHeight < 120;
  change();
  if (follows) page.scrollTop = page.scrollHeight;
}

// The call of a tool that waits for its result; undefined: none. Results follow their calls in order.
function openCall({ messages }) {
  const last = messages.findLastIndex((message) => message.role === "assistant");
  return messages[last]?.calls?.[messages.length - 1 - last];
}

function showContext() {
  const used = shown().messages.findLast((message) => message.usage)?.usage;
  at("context").hidden = !used || !context;
  if (!used || !context) return;
  const tokens = used.prompt + used.completion;
  at("context-meter").max = context;
  at("context-meter").high = 0.85 * context;
  at("context-meter").value = tokens;
  at("context-words").textContent = `${tokens.toLocaleString("en")} of ${context.toLocaleString("en")} tokens`;
}

function showForm() {
  const runs = running.get(shown());
  at("send").hidden = Boolean(runs);
  at("stop").hidden = !runs;
  at("figures").textContent = runs ? figures(runs.message) : "";
  const call = openCall(shown());
  at("words").placeholder = call && !runs ? "Result of " + (call.name || "the tool") : "Ask something";
  showContext();
}

function render() {
  const { messages } = shown();
  at("welcome").hidden = messages.length > 0;
  at("messages").replaceChildren(...messages.map((message) => viewOf(message).article));
  showForm();
}

function renderAtEnd() {
  render();
  document.scrollingElement.scrollTop = document.scrollingElement.scrollHeight;
}

export function setContext(tokens) {
  context = tokens;
  showContext();
}

async function answer(conversation, message = emptyReply()) {
  const fault = settingsFault(conversation.settings);
  const controller = new AbortController();
  running.set(conversation, { controller, message });
  if (conversation.messages.at(-1) !== message) conversation.messages.push(message);
  conversations.keep(conversation);
  viewOf(message).update(true);
  renderAtEnd();
  let saved = performance.now();
  const grown = () => {
    if (shown() === conversation) viewOf(message).updateSoon(follow);
    if (shown() === conversation) showForm();
    if (performance.now() - saved < SAVE_MS) return;
    saved = performance.now();
    conversations.keepProgress(conversation);
  };
  if (fault) message.error = fault;
  else await generate(conversation, message, { signal: controller.signal, started: watchReply, grown });
  running.delete(conversation);
  conversations.keepProgress(conversation);
  follow(() => viewOf(message).update(false));
  if (shown() === conversation) showForm();
}

function say(words) {
  const conversation = shown();
  if (running.has(conversation) || !words.trim()) return;
  at("words").value = "";
  const call = openCall(conversation);
  conversation.messages.push(
    call ? { role: "tool", content: words, call_id: call.id, name: call.name } : { role: "user", content: words },
  );
  if (!openCall(conversation)) return answer(conversation);
  conversations.keep(conversation);
  return renderAtEnd();
}

// --- what can be done with a message ---

function cutAt(conversation, index) {
  conversation.messages.length = index;
  return answer(conversation);
}

function edit(message, words) {
  const conversation = shown();
  const index = conversation.messages.indexOf(message);
  if (index < 0 || running.has(conversation)) return;
  message.content = words;
  if (message.role === "user") return cutAt(conversation, index + 1);
  viewOf(message).update(false);
  conversations.keep(conversation);
}

function regenerate(message) {
  const conversation = shown();
  const index = conversation.messages.indexOf(message);
  if (index < 0 || running.has(conversation)) return;
  cutAt(conversation, message.role === "assistant" ? index : index + 1);
}

// Adds to the last reply, which was cut, stopped or edited.
function goOn(message) {
  const conversation = shown();
  if (conversation.messages.at(-1) !== message || running.has(conversation)) return;
  delete message.finish;
  delete message.error;
  answer(conversation, message);
}

// A question goes with what answered it, a call of a tool with its result.
function erase(message) {
  const conversation = shown();
  const { messages } = conversation;
  const index = messages.indexOf(message);
  if (index < 0 || running.has(conversation)) return;
  const follows = { user: ["assistant", "tool"], assistant: ["tool"], tool: [] }[message.role];
  const next = messages.findIndex((other, i) => i > index && !follows.includes(other.role));
  messages.splice(index, (next < 0 ? messages.length : next) - index);
  conversations.keep(conversation);
  render();
}

export const stop = () => running.get(shown())?.controller.abort();
export function stopAll() {
  for (const { controller } of running.values()) controller.abort();
}
export const stopOne = (conversation) => running.get(conversation)?.controller.abort();

export function start() {
  conversations.changes.addEventListener("current", renderAtEnd);
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
  at("stop").addEventListener("click", stop);
}
