// Makes and finds elements. Text enters them through textContent alone.

export const at = (id) => document.getElementById(id);

export function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

export function button(text, press, className) {
  const made = element("button", text, className);
  made.type = "button";
  made.addEventListener("click", press);
  return made;
}

// Writes to the clipboard and says so on the button.
export async function copy(text, from) {
  const before = from.textContent;
  try {
    await navigator.clipboard.writeText(text);
    from.textContent = "Copied";
  } catch {
    from.textContent = "Not allowed"; // the browser grants it to localhost and HTTPS
  }
  setTimeout(() => (from.textContent = before), 1500);
}
