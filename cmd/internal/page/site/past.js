// The time line of an object: its versions and what was decided about it, newest
// first, with the gaps in between.

import * as clock from "./clock.js";
import { h, put } from "./dom.js";
import * as state from "./state.js";
import { by, changes, chip, empty, plural } from "./words.js";

export class Past {
  constructor(thing) {
    this.thing = thing;
    this.turns = true;
    this.box = h("input", { type: "checkbox", checked: true, onchange: () => { this.turns = this.box.checked; this.lived(); } });
    this.list = h("ol.past", { "aria-label": "Versions and turns, newest first" });
    this.foot = h("div.past-foot");
    this.element = h("div", {}, h("div.tools", {}, h("label", {}, this.box, " show turns and outcomes")), this.list, this.foot);
  }

  update() {
    this.thing.commandIs(this.thing.line("history", this.thing.limit > 50 ? { "--limit": this.thing.limit } : {}));
    this.lived();
  }

  lived() {
    const { life, error } = this.thing;
    if (error) {
      put(this.list);
      put(this.foot, this.thing.trouble(error));
      return;
    }
    if (!life) {
      put(this.foot, h("p.empty.soft", {}, "Looking at the record …"));
      return;
    }
    const entries = life.versions.map((v, i) => ({ at: v.time, rank: 0, draw: () => this.version(v, life.versions[i - 1]) }));
    for (const g of life.gaps ?? []) entries.push({ at: g.until, rank: 0, draw: () => this.gap(g) });
    if (this.turns) for (const d of life.decided) entries.push({ at: d.time, rank: d.noun === "turn" ? 1 : 2, draw: () => this.decided(d) });
    entries.sort((a, b) => new Date(b.at) - new Date(a.at) || b.rank - a.rank);
    put(this.list, entries.map((e) => e.draw()));
    put(this.foot, this.end(life));
    this.list.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }

  end(life) {
    const more = h("button", { type: "button", onclick: () => { more.disabled = true; this.thing.more(); } }, "Show older versions");
    if (life.doubts) return h("p.gap-note", {}, `What was before cannot be read: ${life.doubts.join("; ")}`);
    if (life.more) return this.thing.limit < 2000 ? more : h("p.soft", {}, "There are older versions; the command below shows them with --limit=0.");
    if (life.versions[0]?.event !== "created") return h("p.soft", {}, `The record of this kind begins at ${clock.full(life.begins)}; what was before is not kept.`);
    return life.versions.length ? "" : empty("Nothing is on record", "No version of this object is kept.");
  }

  version(v, before) {
    const here = this.thing.place.at === v.resourceVersion;
    const to = (tab, more) => state.href(state.object(this.thing.place, { kind: this.thing.place.kind, namespace: this.thing.place.ns, name: this.thing.place.name }, { tab, ...more }));
    const anew = before && before.uid !== v.uid ? h("p.soft", {}, "Another object has the name from here on.") : "";
    const links = [h("a", { href: to("why", { at: v.resourceVersion }) }, "Why?")];
    if (before && before.uid === v.uid && v.event !== "gone") links.push(h("a", { href: to("compare", { from: before.resourceVersion, to: v.resourceVersion }) }, "Compare"));
    if (v.event !== "gone") links.push(h("a", { href: to("yaml", { at: v.resourceVersion }) }, "As YAML"));
    return h(`li.past-item.is-${v.event}`, { "aria-current": here ? "true" : undefined, "data-version": v.resourceVersion },
      h("div.line", {}, h("time", { datetime: v.time, title: clock.full(v.time) }, clock.short(v.time)), chip(v.event), h("strong", {}, by(v.by)),
        h("span.soft", {}, `version ${v.resourceVersion}${v.generation ? `, generation ${v.generation}` : ""}`), h("span.links", {}, links)),
      v.by.because ? h("p.because", {}, v.by.because, h("span.soft", {}, ` (turn ${v.by.turn} of ${v.by.key})`)) : "",
      v.by.unknown ? h("p.soft", {}, v.by.unknown) : "", v.by.note ? h("p.soft", {}, v.by.note) : "", anew, changes(v.changes));
  }

  decided(d) {
    const what = d.what.replace(/^(act|tell|park): /, "");
    return h(`li.past-item.is-${d.failed ? "failed" : d.noun}`, {}, h("div.line", {}, h("time", { datetime: d.time, title: clock.full(d.time) }, clock.short(d.time)), chip(d.noun, d.failed ? "gone" : d.noun),
      h("strong", {}, d.who), h("span.soft", {}, d.noun === "turn" ? `turn ${d.sequence}, ${d.lane}` : d.lane)), h("p", {}, what));
  }

  gap(g) {
    return h("li.past-item.is-gap", {}, h("div.line", {}, chip("gap"), h("strong", {}, "Changes may be missing here")),
      h("p", {}, `Between ${g.since ? clock.full(g.since) : "an unknown time"} and ${clock.full(g.until)}: ${g.reason || "the reason is not known"}.`, g.from ? h("span.soft", {}, ` ${plural(g.to - g.from + 1, "message")} of the log lost.`) : ""));
  }
}
