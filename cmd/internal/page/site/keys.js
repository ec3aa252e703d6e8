// The keyboard: what the keys do, and the list of them.

import { h } from "./dom.js";

const listed = [
  ["/", "Search"], ["1 – 5", "The views of an object"], ["[ and ]", "The change before and the next one"], ["n", "Now"], ["c", "Copy the command"],
  ["u", "From an object to its namespace, and from there to all"], ["t", "Another theme"], ["Arrows, Page Up and Down", "Move in lists, in the graph and on the axis of time"],
  ["Enter", "Open"], ["Esc", "Close"], ["?", "This list"],
];

export function dialog() {
  const box = h("dialog.keys", { "aria-labelledby": "keys-title" }, h("h2", { id: "keys-title" }, "Keyboard"),
    h("dl", {}, listed.map(([key, text]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)])),
    h("form", { method: "dialog" }, h("button", { autofocus: true }, "Close")));
  document.body.append(box);
  return box;
}

// keys calls what a key stands for, unless the user is typing.
export function keys(actions) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const typing = event.target.closest?.("input:not([type=range]):not([type=checkbox]), textarea, select, dialog[open]");
    if (typing) return;
    const act = actions[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
