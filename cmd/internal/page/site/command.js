// The command that says the same as what is shown, to be copied into a terminal.
// Names come from the users who made the objects, so they are quoted.

import { h, icon, say } from "./dom.js";

const plain = /^[A-Za-z0-9_@%+=:,./-]+$/;

// quote writes a word so that a shell takes it as it is.
export function quote(word) {
  if (plain.test(word)) return word;
  if (/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069]/.test(word)) { // what a terminal would obey, or not show
    const bytes = [...new TextEncoder().encode(word)].map((b) => (b > 32 && b < 127 && b !== 39 && b !== 92 ? String.fromCharCode(b) : `\\x${b.toString(16).padStart(2, "0")}`));
    return `$'${bytes.join("")}'`;
  }
  return `'${word.replaceAll("'", "'\\''")}'`;
}

// line is a command line: words, and flags with values; those without are left out.
export function line(about, words, flags = {}) {
  const parts = words.map(quote);
  for (const [flag, value] of Object.entries(flags)) {
    if (value === undefined || value === null || value === "" || value === false) continue;
    if (value === true) parts.push(flag);
    else parts.push(flag.startsWith("--") ? `${flag}=${quote(String(value))}` : `${flag} ${quote(String(value))}`);
  }
  return [about.program, ...parts, ...(about.flags ?? []).map(quote)].join(" ");
}

// bar shows a command line with a button that copies it.
export function bar(text) {
  const button = h("button.plain", { type: "button", "data-copy": "", "aria-keyshortcuts": "c", onclick: () => copy(text, button) }, icon("copy"), h("span", {}, "Copy"));
  return h("div.command", { role: "group", "aria-label": "The command that says the same" }, h("code", {}, text), button);
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.lastChild.textContent = "Copied";
    say("The command has been copied");
  } catch {
    button.lastChild.textContent = "Select it to copy";
    getSelection().selectAllChildren(button.parentElement.querySelector("code"));
  }
}
