// The search: kinds and names, completed while the user types.

import { ask } from "./api.js";
import { h, later, put, say } from "./dom.js";
import * as state from "./state.js";
import { plural, resource, trouble } from "./words.js";

export class Search {
  constructor(place) {
    this.place = place; // gives the state that is shown
    this.hits = [];
    this.at = -1;
    this.list = h("ul.hits", { id: "hits", role: "listbox", "aria-label": "What was found", hidden: true });
    this.input = h("input", {
      type: "search", role: "combobox", placeholder: "Search, such as web or deploy/web", "aria-label": "Search for kinds and names", "aria-controls": "hits", "aria-expanded": "false",
      "aria-autocomplete": "list", "aria-keyshortcuts": "/", autocomplete: "off", spellcheck: "false", oninput: later(120, () => this.find()), onkeydown: (event) => this.key(event),
      onfocus: () => { if (this.input.value) this.find(); }, onblur: () => setTimeout(() => this.close(), 150),
    });
    this.element = [this.input, this.list];
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  close() {
    this.list.hidden = true;
    this.at = -1;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  async find() {
    const typed = this.input.value.trim();
    this.loading?.abort();
    if (!typed) {
      this.close();
      return;
    }
    const loading = (this.loading = new AbortController());
    try {
      this.hits = await ask("search", { q: typed, namespace: this.place().ns }, loading.signal);
      this.show(typed);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.hits = [];
      put(this.list, h("li.none", {}, trouble(error)));
      this.open();
    }
  }

  open() {
    if (document.activeElement !== this.input) return;
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
  }

  show(typed) {
    this.at = -1;
    put(this.list, this.hits.map((hit, i) => h("li", {
      role: "option", id: `hit-${i}`, "aria-selected": "false", onpointerdown: (event) => { event.preventDefault(); this.choose(hit); },
    }, h("span.tag", {}, resource(hit.kind)), hit.name ? h("span.name", {}, hit.name) : h("span.name", {}, "all of them"), h("span.soft", {}, hit.namespace ?? ""), hit.gone ? h("span.soft", {}, "gone") : "")));
    if (!this.hits.length) put(this.list, h("li.none.soft", {}, `Nothing on record is called “${typed}”.`));
    say(this.hits.length ? `${plural(this.hits.length, "hit")}, arrows choose` : "nothing found");
    this.open();
  }

  choose(hit) {
    this.input.value = "";
    this.close();
    this.input.blur();
    if (hit.name) state.go(state.object(this.place(), hit));
    else state.go({ ns: this.place().ns, show: hit.kind });
  }

  key(event) {
    if (event.key === "Escape") {
      if (this.list.hidden) this.input.blur();
      this.close();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (!this.hits.length) return;
      this.at = (this.at + (event.key === "ArrowDown" ? 1 : -1) + this.hits.length) % this.hits.length;
      this.mark();
    } else if (event.key === "Enter" && this.hits.length) {
      this.choose(this.hits[Math.max(0, this.at)]);
    } else {
      return;
    }
    event.preventDefault();
  }

  mark() {
    [...this.list.children].forEach((li, i) => li.setAttribute("aria-selected", String(i === this.at)));
    const chosen = this.list.children[this.at];
    chosen?.scrollIntoView({ block: "nearest" });
    this.input.setAttribute("aria-activedescendant", `hit-${this.at}`);
  }
}
