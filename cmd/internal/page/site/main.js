// The frame of the page: what is always there, and which view is shown.

import { ask } from "./api.js";
import { h, icon, put, say } from "./dom.js";
import { Health } from "./health.js";
import * as shortcuts from "./keys.js";
import { Scene } from "./scene.js";
import { Search } from "./search.js";
import * as state from "./state.js";
import { tabs, Thing } from "./thing.js";
import { trouble } from "./words.js";

const main = document.getElementById("main");
const namespace = document.getElementById("namespace");
const themeButton = document.getElementById("theme");
const search = new Search(() => state.read());
const help = shortcuts.dialog();

let about; // what there is to be looked at
let view;

// view is a class, and what makes another one of it necessary.
const viewOf = (place) => (place.view === "health" ? Health : place.kind && place.name ? Thing : Scene);

function show(place) {
  const View = viewOf(place);
  if (view?.constructor === View) {
    view.update(place);
  } else {
    view?.close();
    view = new View(about, place);
    put(main, view.element);
    scrollTo(0, 0);
  }
  namespace.value = place.ns ?? "";
  document.getElementById("health").setAttribute("aria-current", place.view === "health" ? "page" : "false");
}

async function begin() {
  try {
    about = await ask("overview");
  } catch (error) {
    put(main, trouble(error));
    setTimeout(begin, 3000);
    return;
  }
  namespaces();
  if (about.namespace && !location.search) history.replaceState(null, "", state.href({ ns: about.namespace }));
  state.onMove(show);
  main.replaceChildren();
  show(state.read());
}

function namespaces() {
  const chosen = state.read().ns;
  const names = chosen && !about.namespaces.includes(chosen) ? [...about.namespaces, chosen] : about.namespaces;
  put(namespace, h("option", { value: "" }, "All namespaces"), names.map((name) => h("option", { value: name }, name)));
  namespace.value = chosen ?? "";
}

// renew asks what has come in the meantime, such as another namespace.
async function renew() {
  about = Object.assign(about ?? {}, await ask("overview").catch(() => ({})));
  if (about.namespaces && document.activeElement !== namespace) namespaces();
}

// The themes: what the machine has, and the other two.
const themes = [["", "half", "as the machine has it"], ["light", "sun", "light"], ["dark", "moon", "dark"]];

function theme(by = 0) {
  const root = document.documentElement;
  const at = themes.findIndex(([name]) => name === (root.dataset.theme ?? ""));
  const [name, drawing, text] = themes[(at + by) % themes.length];
  if (name) root.dataset.theme = name;
  else delete root.dataset.theme;
  if (by) {
    if (name) localStorage.setItem("theme", name);
    else localStorage.removeItem("theme");
    say(`Theme: ${text}`);
  }
  put(themeButton, icon(drawing));
  themeButton.title = `Theme: ${text} (t)`;
  themeButton.setAttribute("aria-label", `Theme: ${text}`);
  dispatchEvent(new Event("themechange"));
}

// The pulse says whether the page hears what happens.
const pulses = { live: "Live", away: "Not live: the bus is away" };
addEventListener("pulse", ({ detail }) => {
  const pulse = document.getElementById("pulse");
  pulse.dataset.state = detail;
  put(pulse, h("span", {}, detail === "live" && about.recording ? "A recording" : pulses[detail]));
});

// Links within the page do not load it anew.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || !about || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || link.origin !== location.origin || link.pathname !== "/" || link.hash) return;
  event.preventDefault();
  state.go(state.read(new URL(link.href).search));
});

function up() {
  const place = state.read();
  state.go(place.name ? { ns: place.ns, span: place.span, show: place.kind } : { span: place.span });
}

const press = (selector) => () => document.querySelector(selector)?.click();
const turn = Object.fromEntries(tabs.map(([name], i) => [String(i + 1), press(`#tab-${name}`)]));

put(document.getElementById("search"), search.element);
namespace.addEventListener("change", () => state.go({ ns: namespace.value, span: state.read().span }));
themeButton.addEventListener("click", () => theme(1));
document.getElementById("help").addEventListener("click", () => help.showModal());
shortcuts.keys({
  "/": () => search.focus(), "?": () => help.showModal(), t: () => theme(1), u: up, c: press("[data-copy]"), n: press(".axis [aria-keyshortcuts=n]"),
  "[": press('.axis [aria-keyshortcuts="["]'), "]": press('.axis [aria-keyshortcuts="]"]'), ...turn,
});
theme();
begin();
setInterval(() => { if (!document.hidden && about) renew(); }, 10000);
