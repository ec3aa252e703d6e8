// An object as it was, in YAML, exactly as it is on record.

import { ask } from "./api.js";
import * as clock from "./clock.js";
import { h, put } from "./dom.js";

export class Written {
  constructor(thing) {
    this.thing = thing;
    this.element = h("div");
  }

  async update(place) {
    this.thing.commandIs(this.thing.line("get", { "--at": place.at, "-o": "yaml" }));
    this.loading?.abort();
    const loading = (this.loading = new AbortController());
    try {
      this.show(await ask("object", { ...this.thing.question(), at: place.at }, loading.signal));
    } catch (error) {
      if (error.name !== "AbortError") put(this.element, this.thing.trouble(error));
    }
  }

  // lived shows the newest version when there is another one.
  lived() {
    if (!this.thing.place.at) this.update(this.thing.place);
  }

  close() {
    this.loading?.abort();
  }

  show(found) {
    const note = found.form === "metadata" ? h("p.soft", {}, "Of this kind only the metadata is on record: Secrets never have their content here, nor do kinds that no controller reads.") : "";
    const doubts = (found.doubts ?? []).map((text) => h("p.gap-note", {}, text));
    put(this.element, h("p.soft", {}, `Version ${found.version}, of ${clock.full(found.at)}`), note, doubts,
      h("pre.yaml", { tabindex: "0", "aria-label": "The object as YAML" }, found.yaml.trimEnd().split("\n").map((line) => [this.line(line), "\n"])));
  }

  // line has the key of a line in another colour than its value.
  line(text) {
    const parts = text.match(/^(\s*(?:- )*)([^\s:'"][^:]*|"[^"]*"|'[^']*'):( .*)?$/);
    if (!parts) return h("span", {}, text);
    return h("span", {}, parts[1], h("span.key", {}, parts[2]), ":", parts[3] ?? "");
  }
}
