// Asks for the next message of a conversation and gathers it from the stream's deltas.
import { ask, events } from "./server.js";

// A message as the API takes it; null: it says nothing.
function sent(message) {
  if (message.role === "user") return { role: "user", content: message.content };
  if (message.role === "tool") return { role: "tool", tool_call_id: message.call_id, content: message.content };
  if (!message.content && !message.calls?.length) return null;
  const out = { role: "assistant", content: message.content };
  if (message.calls?.length) {
    if (message.reasoning) out.reasoning = message.reasoning; // a model that goes on after a call goes on with it
    out.tool_calls = message.calls.map((call) => ({
      id: call.id,
      type: "function",
      function: { name: call.name, arguments: call.arguments },
    }));
  }
  return out;
}

function body({ settings, messages }) {
  const goesOn = Boolean(messages.at(-1)?.content); // the last message is the reply, most often an empty one
  const system = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  return {
    ...(settings.more.trim() ? JSON.parse(settings.more) : {}),
    ...settings.sampling,
    ...(goesOn ? { continue_final_message: true, add_generation_prompt: false } : {}),
    n: 1,
    messages: [...system, ...messages.map(sent).filter(Boolean)],
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
  };
}

function addCalls(message, deltas) {
  message.calls ??= [];
  for (const delta of deltas) {
    const call = (message.calls[delta.index ?? message.calls.length] ??= { id: "", name: "", arguments: "" });
    call.id ||= delta.id ?? "";
    call.name ||= delta.function?.name ?? "";
    call.arguments += delta.function?.arguments ?? "";
  }
}

// Adds one frame of the stream to the message. Returns whether it said anything.
function add(message, frame) {
  const choice = frame.choices[0];
  const delta = choice?.delta ?? {};
  if (delta.reasoning) message.reasoning = (message.reasoning ?? "") + delta.reasoning;
  if (delta.content) message.content += delta.content;
  if (delta.tool_calls?.length) addCalls(message, delta.tool_calls);
  if (choice?.finish_reason) message.finish = choice.finish_reason;
  if (frame.usage) {
    const { prompt_tokens: prompt, completion_tokens: completion, prompt_tokens_details: details } = frame.usage;
    message.usage = { prompt, completion, cached: details?.cached_tokens ?? 0 };
  }
  return Boolean(delta.reasoning || delta.content || delta.tool_calls?.length);
}

export const emptyReply = () => ({ role: "assistant", content: "" });

// Fills `message`, which is the conversation's last. `started` gets the reply's id, `grown` is called after each frame.
// What fails is in the message's `error`; a reply that is stopped keeps its words.
export async function generate(conversation, message, { signal, started, grown }) {
  let first = 0;
  let id = "";
  try {
    const options = { method: "POST", body: JSON.stringify(body(conversation)), signal };
    const stream = await ask("/v1/chat/completions", options);
    for await (const frame of events(stream.body)) {
      if (frame.error) throw new Error(frame.error.message);
      if (!id) started((id = frame.id));
      if (add(message, frame)) first ||= performance.now();
      const seconds = (performance.now() - first) / 1000;
      const more = (message.usage?.completion ?? 0) - 1;
      if (first && more > 0 && seconds > 0 && !message.finish) message.rate = more / seconds;
      grown();
    }
  } catch (error) {
    if (error.name === "AbortError") message.finish = "stopped";
    else message.error = error.message;
  }
}

// "12.5 tokens/s · 8 + 60 tokens · 6 cached".
export function figures({ rate, usage, finish }) {
  const parts = [];
  if (rate) parts.push(rate.toFixed(1) + " tokens/s");
  if (usage) parts.push(`${usage.prompt} + ${usage.completion} tokens`);
  if (usage?.cached) parts.push(usage.cached + " cached");
  if (finish === "length") parts.push("cut at the most tokens");
  if (finish === "stopped") parts.push("stopped");
  return parts.join(" · ");
}
