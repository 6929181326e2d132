// The list of conversations beside the chat: opens, names and deletes them, and moves them to files and back.
import { at, button, element } from "./dom.js";
import * as chat from "./chat.js";
import * as conversations from "./conversations.js";

const { changes } = conversations;

export function showList(open) {
  document.body.classList.toggle("with-list", open);
  at("show-list").setAttribute("aria-expanded", String(open));
}

function entry(conversation) {
  const item = element("li");
  const title = conversation.title || "New chat";
  const opens = button(title, () => {
    conversations.select(conversation.id);
    showList(false);
  }, "open");
  opens.title = new Date(conversation.changed).toLocaleString();
  if (conversation === conversations.current()) opens.setAttribute("aria-current", "true");
  const rename = button("✎", () => {
    const words = prompt("Title", title);
    if (words !== null) conversations.rename(conversation, words);
  }, "rename");
  const erase = button("×", () => {
    if (!confirm(`Delete “${title}”?`)) return;
    chat.stopOne(conversation);
    conversations.remove(conversation);
  }, "erase");
  rename.setAttribute("aria-label", "Rename " + title);
  erase.setAttribute("aria-label", "Delete " + title);
  item.append(opens, rename, erase);
  return item;
}

function showEntries() {
  at("conversations").replaceChildren(...conversations.list().map(entry));
  for (const name of ["export", "clear"]) at(name).disabled = !conversations.list().length;
}

function download(name, text) {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function read(file) {
  if (!file) return;
  try {
    const count = await conversations.importText(await file.text());
    at("list-says").textContent = count === 1 ? "1 conversation added." : `${count} conversations added.`;
  } catch (error) {
    at("list-says").textContent = "Not read: " + error.message;
  }
  at("import-file").value = "";
}

export function start() {
  changes.addEventListener("list", showEntries);
  changes.addEventListener("failed", () => {
    at("kept").textContent = "This browser keeps nothing here: conversations last as long as the page. Export them.";
  });
  at("show-list").addEventListener("click", () => showList(!document.body.classList.contains("with-list")));
  at("new-chat").addEventListener("click", () => {
    conversations.create();
    showList(false);
    at("words").focus();
  });
  at("export").addEventListener("click", () => {
    download(`moracle-${new Date().toISOString().slice(0, 10)}.json`, conversations.exportText());
  });
  at("import").addEventListener("click", () => at("import-file").click());
  at("import-file").addEventListener("change", () => read(at("import-file").files[0]));
  at("clear").addEventListener("click", () => {
    if (!confirm("Delete all conversations of this browser?")) return;
    chat.stopAll();
    conversations.removeAll();
  });
}
