// What differs between two versions.

import { ask } from "./api.js";
import * as clock from "./clock.js";
import { h, put } from "./dom.js";
import * as state from "./state.js";
import { by, changed, empty, plural } from "./words.js";

export class Compare {
  constructor(thing) {
    this.thing = thing;
    const choose = (label, name) => h("select", { "aria-label": label, onchange: (event) => this.go({ [name]: event.target.value }) });
    this.from = choose("The version before", "from");
    this.to = choose("The version after", "to");
    this.answer = h("div", { "aria-live": "polite" });
    this.element = h("div", {}, h("div.tools", {}, h("label", {}, h("span.soft", {}, "from "), this.from), h("label", {}, h("span.soft", {}, "to "), this.to),
      h("button", { type: "button", onclick: () => this.go({ from: this.pair().to, to: this.pair().from }) }, "Swap"),
      h("button", { type: "button", onclick: () => this.walk(-1) }, "One earlier"), h("button", { type: "button", onclick: () => this.walk(1) }, "One later")), this.answer);
  }

  go(pair) {
    state.go({ ...this.thing.place, ...this.pair(), ...pair }, { replace: true });
  }

  // versions are those that can be compared: what was said again is nothing new, and
  // what is gone has no fields.
  versions() {
    return (this.thing.life?.versions ?? []).filter((v) => v.event !== "gone" && v.event !== "kept");
  }

  // pair is what is compared: what the address says, or the version that is shown and
  // the one before it.
  pair() {
    const all = this.versions().map((v) => v.resourceVersion);
    const shown = Math.max(1, all.lastIndexOf(this.thing.place.at) >= 0 ? all.lastIndexOf(this.thing.place.at) : all.length - 1);
    return { from: this.thing.place.from ?? all[shown - 1] ?? all[0], to: this.thing.place.to ?? all[shown] ?? all[0] };
  }

  walk(by) {
    const all = this.versions().map((v) => v.resourceVersion);
    const { from, to } = this.pair();
    const [a, b] = [all.indexOf(from) + by, all.indexOf(to) + by];
    if (all[a] && all[b]) this.go({ from: all[a], to: all[b] });
  }

  update() {
    this.lived();
  }

  lived() {
    if (this.thing.error) {
      put(this.answer, this.thing.trouble(this.thing.error));
      return;
    }
    if (!this.thing.life) return;
    const { from, to } = this.pair();
    const all = this.versions();
    for (const [select, chosen] of [[this.from, from], [this.to, to]]) {
      const options = all.toReversed().map((v) => h("option", { value: v.resourceVersion }, `${v.resourceVersion} · ${clock.short(v.time)} · ${v.event} by ${by(v.by)}`));
      if (chosen && !all.some((v) => v.resourceVersion === chosen)) options.push(h("option", { value: chosen }, chosen));
      put(select, options);
      select.value = chosen;
    }
    this.thing.commandIs(this.thing.line("diff", { "--from": from, "--to": to }));
    if (from && to && `${from} ${to}` !== this.asked) this.load(from, to);
    if (!all.length) put(this.answer, empty("Nothing to compare", "No version with fields is on record."));
  }

  async load(from, to) {
    this.asked = `${from} ${to}`;
    this.loading?.abort();
    const loading = (this.loading = new AbortController());
    try {
      this.show(await ask("diff", { ...this.thing.question(), from, to }, loading.signal));
    } catch (error) {
      if (error.name !== "AbortError") put(this.answer, this.thing.trouble(error));
    }
  }

  close() {
    this.loading?.abort();
  }

  show(found) {
    const notes = (found.doubts ?? []).map((text) => h("p.gap-note", {}, text));
    if (found.replaced) notes.push(h("p.gap-note", {}, "Another object has the name: the uid is not the same."));
    if (!found.changes.length) {
      put(this.answer, notes, empty("Nothing differs", `Version ${found.from} and version ${found.to} have the same fields.`));
      return;
    }
    const groups = new Map();
    for (const c of found.changes) {
      const top = c.path.match(/^[^.[]+/)?.[0] ?? "";
      groups.set(top, [...(groups.get(top) ?? []), c]);
    }
    put(this.answer, notes, h("p.soft", {}, `${plural(found.changes.length, "field")} between version ${found.from} and version ${found.to}`),
      [...groups].map(([top, list]) => h("section.diff", {}, h("h2", {}, top), h("ul.changes", {}, list.map(changed)))));
  }
}
