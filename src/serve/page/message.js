// Shows one message: its text, what is folded beside it, its figures, and what can be done with it.
import { button, copy, element } from "./dom.js";
import { codeBlock } from "./code.js";
import { readableJson } from "./json.js";
import { markdown } from "./markdown.js";
import { figures } from "./reply.js";

// A part that is folded until somebody opens it, and stays as it is while its words grow.
class Folded {
  constructor(className) {
    this.summary = element("summary");
    this.inside = element("div");
    this.details = element("details", undefined, className);
    this.details.append(this.summary, this.inside);
  }
  show(title, nodes) {
    this.summary.textContent = title;
    this.inside.replaceChildren(...nodes);
  }
}

function json(text) {
  return [codeBlock(readableJson(text) ?? text, "json")];
}

export class MessageView {
  // `actions` has edit, regenerate, goOn and erase, which get the message.
  constructor(message, actions) {
    this.message = message;
    this.actions = actions;
    this.article = element("article", undefined, message.role);
    this.reasoning = new Folded("reasoning");
    this.text = element("div", undefined, "text");
    this.whole = new Folded("json");
    this.calls = element("div", undefined, "calls");
    this.folds = []; // one for each call
    this.error = element("p", undefined, "wrong");
    this.footer = element("footer");
    this.buttons = element("div", undefined, "actions");
    this.article.append(this.reasoning.details, this.text, this.whole.details, this.calls);
    this.article.append(this.error, this.footer, this.buttons);
    this.cost = 0;
    this.timer = 0;
    this.update(false);
  }

  // Shows soon what has grown, seldom enough that showing takes a fifth of the time. `around` calls what it gets.
  updateSoon(around) {
    this.timer ||= setTimeout(() => around(() => this.update(true)), Math.max(40, 4 * this.cost));
  }

  update(running) {
    clearTimeout(this.timer);
    this.timer = 0;
    const begin = performance.now();
    const { message } = this;
    this.article.setAttribute("aria-busy", String(running));
    this.reasoning.details.hidden = !message.reasoning;
    if (message.reasoning) this.reasoning.show("Reasoning", [element("div", message.reasoning, "plain")]);
    this.showText(running);
    this.showCalls();
    this.error.hidden = !message.error;
    this.error.textContent = message.error ?? "";
    const unfinished = message.role === "assistant" && !message.finish && !message.error; // its page was closed
    this.footer.textContent = [figures(message), unfinished ? "not finished" : ""].filter(Boolean).join(" · ");
    this.footer.hidden = running || !this.footer.textContent;
    this.showButtons(running);
    this.cost = performance.now() - begin;
  }

  showText(running) {
    const { role, content, name } = this.message;
    const folds = role === "tool" || (role === "assistant" && !running && readableJson(content) !== null);
    this.whole.details.hidden = !folds;
    this.text.hidden = folds || !content;
    if (folds) this.whole.show(role === "tool" ? "Result of " + (name || "a tool") : "JSON", json(content));
    if (folds || !content) this.text.replaceChildren();
    else if (role === "assistant") this.text.replaceChildren(markdown(content));
    else this.text.replaceChildren(element("div", content, "plain"));
  }

  showCalls() {
    (this.message.calls ?? []).forEach((call, i) => {
      if (!this.folds[i]) this.calls.append((this.folds[i] = new Folded("call")).details);
      this.folds[i].show("Calls " + (call.name || "a tool"), json(call.arguments));
    });
  }

  showButtons(running) {
    const { message } = this;
    this.buttons.hidden = running;
    if (!this.buttons.childElementCount) this.addButtons();
    this.goOn.hidden = message.role !== "assistant" || !message.content || Boolean(message.calls?.length);
  }

  addButtons() {
    const { message, actions } = this;
    const copying = button("Copy", () => copy(message.content, copying), "copy");
    this.buttons.append(copying);
    if (message.role !== "tool") this.buttons.append(button("Edit", () => this.edit(), "edit"));
    const again = message.role === "assistant" ? "Regenerate" : "Answer";
    this.goOn = button("Continue", () => actions.goOn(message), "go-on");
    this.buttons.append(button(again, () => actions.regenerate(message), "regenerate"), this.goOn);
    this.buttons.append(button("Delete", () => actions.erase(message), "erase"));
  }

  // Puts a field in place of the text until it is saved or left.
  edit() {
    const { message } = this;
    const field = element("textarea");
    field.value = message.content;
    field.rows = Math.min(16, message.content.split("\n").length + 1);
    field.setAttribute("aria-label", "Message");
    const form = element("div", undefined, "editing");
    const close = () => {
      form.remove();
      this.article.classList.remove("edited");
      this.update(false);
    };
    const save = button(message.role === "user" ? "Send" : "Save", () => {
      close();
      this.actions.edit(message, field.value);
    }, "save");
    form.append(field, button("Cancel", close, "cancel"), save);
    this.article.classList.add("edited");
    this.article.append(form);
    field.focus();
  }
}
