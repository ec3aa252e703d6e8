// A namespace, or all of them: the objects that were there at a moment, and what
// happened up to it.

import { ask, follow } from "./api.js";
import { Axis, fit, stretch, usual } from "./axis.js";
import * as clock from "./clock.js";
import * as command from "./command.js";
import { h, later, put } from "./dom.js";
import { Rows } from "./rows.js";
import * as state from "./state.js";
import { chip, colours, empty, order, plural, resource, trouble } from "./words.js";

const most = 2000; // happenings that are drawn
const leases = "leases.coordination.k8s.io";
const identity = (e) => `${e.stream}/${e.sequence}`;

export class Scene {
  constructor(about, place) {
    this.about = about;
    this.items = new Map(); // by kind, of the scene that is shown
    this.events = { items: [], whole: true };
    this.build();
    this.update(place);
  }

  build() {
    this.axis = new Axis({
      onMoment: (at) => state.go({ ...this.place, at }, { replace: true }),
      onSpan: (span) => state.go({ ...this.place, span }, { replace: true }),
    });
    this.title = h("h1");
    this.chips = h("div.kinds", { role: "group", "aria-label": "Kinds" });
    this.find = h("input", { type: "search", placeholder: "Part of a name", "aria-label": "Only objects with this in their name", oninput: later(120, () => state.go({ ...this.place, find: this.find.value }, { replace: true })) });
    this.count = h("span.soft", { role: "status" });
    this.doubts = h("div");
    this.objects = new Rows({
      label: "Objects", height: 44, identify: (it) => `${it.kind}/${it.namespace}/${it.name}`, draw: (it) => this.object(it),
      href: (it) => state.href(this.at(it)), open: (it) => state.go(this.at(it)),
    });
    this.happenings = new Rows({
      label: "What happened, newest first", height: 56, identify: identity, draw: (e) => this.happening(e),
      href: (e) => (e.object.name && e.object.kind ? state.href(this.of(e)) : undefined), open: (e) => this.enter(e),
    });
    this.until = h("p.soft.note");
    this.objectsBody = h("div.fill", {}, this.objects.element);
    this.eventsBody = h("div.fill", {}, this.happenings.element, this.until);
    this.command = h("div");
    this.element = h("div.view", {}, h("div.title", {}, this.title), this.axis.element, this.command,
      h("div.halves", {},
        h("section.panel", { "aria-label": "Objects" }, h("div.panel-head", {}, h("h2", {}, "Objects"), this.count, h("span.grow"), this.find), this.chips, this.doubts, this.objectsBody),
        h("section.panel", { "aria-label": "What happened" }, h("div.panel-head", {}, h("h2", {}, "What happened")), this.eventsBody)));
  }

  at(item) {
    return state.object(this.place, item, this.place.at ? { at: item.version } : {});
  }

  of(event) {
    return state.object(this.place, event.object, event.noun === "delta" ? { at: event.what.match(/@(\d+)/)?.[1] } : {});
  }

  enter(event) {
    if (event.object.name && event.object.kind) state.go(this.of(event));
    else state.go({ ...this.place, at: event.time }, { replace: true });
  }

  update(place) {
    const was = this.place;
    this.place = place;
    const ns = place.ns;
    put(this.title, ns ? [h("span.soft", {}, "Namespace "), ns] : "All namespaces");
    document.title = `${ns ?? "All namespaces"} · Millrace`;
    if (document.activeElement !== this.find) this.find.value = place.find ?? "";
    put(this.command, command.bar(command.line(this.about, ["get", place.show ?? "pods"], { "-n": ns, "-A": !ns, "--at": place.at })));
    const calmed = was && (was.show === leases) !== (place.show === leases);
    if (!was || was.ns !== place.ns || calmed) this.listen();
    if (!was || was.ns !== place.ns || was.at !== place.at) this.load();
    else this.list();
    const { from, to } = this.stretch();
    const shown = `${place.ns} ${this.calm()} ${this.span()} ${place.at && to < Date.now() - 1000 ? from : "now"} ${place.at ? "past" : "live"}`;
    const still = place.at && (this.shown === shown || this.shown === shown.replace(/past$/, "live")); // what is read has it all
    this.shown = shown;
    if (still || (was && this.asked === shown)) this.draw();
    else this.chronicle();
    this.asked = shown;
  }

  close() {
    this.feed?.close();
    clearTimeout(this.pending);
    clearTimeout(this.retry);
    clearTimeout(this.rereading);
    clearInterval(this.clock);
    this.loading?.abort();
    this.reading?.abort();
    this.axis.close();
    this.objects.close();
    this.happenings.close();
  }

  // listen follows what happens in the namespace from now on.
  listen() {
    this.feed?.close();
    clearInterval(this.clock);
    this.clock = setInterval(() => { if (!this.place.at) this.draw(); }, 1000);
    this.feed = follow({ namespace: this.place.ns, calm: this.calm() }, {
      happened: (events) => this.happened(events),
      missed: () => this.refresh(),
      state: (name) => dispatchEvent(new CustomEvent("pulse", { detail: name })),
    });
  }

  refresh() {
    if (this.place.at) return;
    this.load();
    this.chronicle();
  }

  // happened takes in what has just happened. The objects are asked for again, of the
  // kinds that changed, and the less often the longer that takes.
  happened(events) {
    if (this.place.at) {
      this.shown = undefined; // what was read lacks this
      return;
    }
    this.meanwhile?.push(...events);
    this.add(events);
    this.draw();
    for (const e of events) if (e.noun === "delta") (this.dirty ??= new Set()).add(e.object.kind);
    this.soon();
  }

  // add puts what is new before what is known: an answer and what is heard overlap.
  add(events) {
    const known = new Set(this.events.items.map(identity));
    this.events.items = [...events.filter((e) => !known.has(identity(e))).toReversed(), ...this.events.items].slice(0, most);
  }

  // soon asks again for the kinds that changed, once nothing else is being asked.
  soon() {
    if (!this.dirty || this.pending) return;
    this.pending = setTimeout(() => {
      this.pending = undefined;
      if (this.loading) return; // it calls soon when it is done
      const kinds = [...(this.dirty ?? [])];
      this.dirty = undefined;
      if (!this.place.at && kinds.length) this.load(kinds);
    }, Math.max(300, 4 * (this.took ?? 0)));
  }

  async load(kinds) {
    this.loading?.abort();
    clearTimeout(this.retry);
    const loading = (this.loading = new AbortController());
    this.objectsBody.setAttribute("aria-busy", "true");
    await this.feed.heard;
    if (loading.signal.aborted) return;
    const begun = performance.now();
    try {
      const found = await ask("state", { namespace: this.place.ns, at: this.place.at, kind: kinds ?? [] }, loading.signal);
      if (!kinds) this.items.clear();
      for (const group of found.kinds) this.items.set(group.kind, group);
      this.took = performance.now() - begun;
      this.list();
    } catch (error) {
      if (error.name === "AbortError") return;
      put(this.objectsBody, trouble(error, { begin: (at) => state.go({ ...this.place, at }) }));
      put(this.chips);
      if (["away", "ended", "slow"].includes(error.code)) this.retry = setTimeout(() => this.load(), 3000);
    }
    this.loading = undefined;
    this.objectsBody.removeAttribute("aria-busy");
    this.soon();
  }

  // list shows the objects of the kind that is chosen, or of all.
  list() {
    const groups = [...this.items.values()].sort((a, b) => order(a.kind) - order(b.kind) || a.kind.localeCompare(b.kind));
    const counted = groups.filter((g) => g.items.length);
    const total = counted.reduce((sum, g) => sum + g.items.length, 0);
    const pick = (show, text, n) => h("button.pick", { type: "button", "aria-pressed": String((this.place.show ?? "") === show), onclick: () => state.go({ ...this.place, show }, { replace: true }) }, text, h("span.count", {}, n.toLocaleString("en")));
    put(this.chips, pick("", "all", total), counted.map((g) => pick(g.kind, resource(g.kind), g.items.length)));
    const wanted = this.place.find?.toLowerCase();
    const rows = [];
    for (const g of groups) {
      if (this.place.show && g.kind !== this.place.show) continue;
      for (const it of g.items) if (!wanted || it.name.toLowerCase().includes(wanted)) rows.push({ ...it, kind: g.kind });
    }
    put(this.count, plural(rows.length, "object"));
    this.doubt(groups);
    if (rows.length) {
      if (this.objects.element.parentNode !== this.objectsBody) put(this.objectsBody, this.objects.element);
      this.objects.show(rows);
      return;
    }
    put(this.objectsBody, this.nothing(groups, wanted));
  }

  nothing(groups, wanted) {
    const late = groups.filter((g) => g.begins);
    if (late.length && groups.every((g) => g.begins || !g.sequence)) { // of the others nothing has ever been said
      const first = late.map((g) => g.begins).sort()[0];
      return trouble({ code: "before", message: `The record begins at ${clock.full(first)}: what was before is not kept.`, begins: first }, { begin: (at) => state.go({ ...this.place, at }) });
    }
    if (wanted) return empty("Nothing has that name", `No object ${this.place.at ? "of that moment" : "that is there"} has “${this.place.find}” in its name.`);
    if (!groups.length) return empty("Nothing is on record yet", "When the watcher has seen the first objects, they are shown here.");
    return empty("Nothing is there", this.place.at ? "At that moment there were no objects here." : "There are no objects here now. What has been is shown at earlier moments.");
  }

  // doubt says which answers may not be whole.
  doubt(groups) {
    const told = groups.flatMap((g) => (g.doubts ?? []).map((text) => [g.kind, text]));
    const late = groups.filter((g) => g.begins);
    const some = late.length && late.length < groups.length ? h("li", {}, `Not on record yet at that moment: ${late.map((g) => resource(g.kind)).join(", ")}.`) : "";
    put(this.doubts, told.length || some ? h("details.doubt", {}, h("summary", {}, "This may not be all"), h("ul", {}, told.map(([kind, text]) => h("li", {}, h("strong", {}, resource(kind)), " ", text)), some)) : "");
  }

  async chronicle() {
    this.reading?.abort();
    const reading = (this.reading = new AbortController());
    await this.feed.heard;
    if (reading.signal.aborted) return;
    const meanwhile = (this.meanwhile = []); // the answer may lack what happens now
    const { from, to } = this.stretch();
    try {
      const until = this.place.at && to < Date.now() ? new Date(to).toISOString() : undefined;
      this.events = await ask("chronicle", { namespace: this.place.ns, from: new Date(from).toISOString(), to: until, limit: most, calm: this.calm() }, reading.signal);
      this.meanwhile = undefined;
      if (!until) this.add(meanwhile);
      this.draw();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.meanwhile = undefined;
      put(this.eventsBody, trouble(error));
      clearTimeout(this.rereading);
      if (["away", "ended", "slow"].includes(error.code)) this.rereading = setTimeout(() => this.chronicle(), 3000);
    }
  }

  // calm leaves out the leases, by which programs only say again and again that they
  // are there.
  calm() {
    return this.place.show === leases ? undefined : "true";
  }

  span() {
    return this.place.span ?? (this.about.recording ? "fit" : usual(this.about.begins, Date.now()));
  }

  stretch() {
    return stretch(this.span(), this.place.at, this.about.begins, Date.now());
  }

  // draw shows what happened, on the axis and as a list.
  draw() {
    const { lanes, place } = this.lanes();
    const marks = [];
    const gaps = [];
    for (const e of this.events.items) {
      if (e.gap) gaps.push({ lane: place(e), from: e.gap.since ? new Date(e.gap.since).getTime() : 0, to: new Date(e.gap.until).getTime() });
      else marks.push({ at: e.time, moment: clock.stamp(e.time), lane: place(e), colour: colours[e.event ?? e.noun], text: `${e.object.name} ${e.event ?? e.what}` });
    }
    const whole = this.stretch();
    this.axis.show({ ...(this.span() === "fit" ? fit(whole, marks) : whole), marks, gaps, lanes, moment: this.place.at, span: this.span() });
    const shown = this.events.items.filter((e) => this.wanted(e));
    if (this.happenings.element.parentNode !== this.eventsBody) put(this.eventsBody, this.happenings.element, this.until);
    this.happenings.element.hidden = !shown.length;
    this.happenings.show(shown);
    if (!shown.length) put(this.until, this.place.at ? "Nothing happened here in this time before the moment." : "Nothing has happened here in this time.");
    else put(this.until, this.events.whole ? "" : `These are the newest ${plural(this.events.items.length, "event")}, since ${clock.short(this.events.since)}. A shorter time shows those before.`);
  }

  // wanted tells what the list shows: up to the moment, and of the kind that is chosen.
  wanted(e) {
    const { at, show } = this.place;
    if (at && e.time > at && new Date(e.time) > new Date(at)) return false;
    return !show || e.object.kind === show;
  }

  // lanes are the kinds of which most happened, the rest together, and what was
  // decided and done.
  lanes() {
    const counts = new Map();
    for (const e of this.events.items) {
      if (e.noun === "delta" || e.noun === "gap") counts.set(e.object.kind, (counts.get(e.object.kind) ?? 0) + 1);
    }
    const kinds = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a) || a.localeCompare(b));
    const own = kinds.slice(0, kinds.length > 6 ? 5 : 6);
    const lanes = [...own.map(resource), ...(kinds.length > own.length ? ["others"] : []), "turns", "outcomes"];
    const place = (e) => {
      if (e.noun === "turn") return lanes.length - 2;
      if (e.noun === "outcome") return lanes.length - 1;
      const at = own.indexOf(e.object.kind);
      return at >= 0 ? at : own.length;
    };
    return { lanes, place };
  }

  object(it) {
    return [
      h(`span.dot.level-${it.deleting ? "bad" : it.level || "none"}`, { "aria-hidden": "true" }),
      h("span.what", {}, h("span.name", { title: it.name }, it.name), h("span.soft.kind", {}, resource(it.kind), this.place.ns || !it.namespace ? "" : ` in ${it.namespace}`)),
      h("span.status", {}, it.deleting ? "being deleted" : it.status ?? ""), h("time.soft.when", { datetime: it.since, title: `${clock.full(it.since)}, by ${it.by ?? "unknown"}, version ${it.version}` }, clock.short(it.since).slice(0, -4)),
    ];
  }

  happening(e) {
    const what = e.noun === "delta" ? e.what.replace(/^generation /, "gen. ") : e.what;
    return [
      h("time.soft", { datetime: e.time, title: clock.full(e.time) }, clock.time(e.time)), chip(e.event ?? e.noun, e.failed ? "gone" : e.event ?? e.noun),
      h("span.what", {}, h("span.name", { title: e.about }, e.object.kind ? `${resource(e.object.kind)}/` : "", e.object.name || e.about), h("span.soft.kind", { title: e.what }, e.who ? `${e.who} · ` : "", what)),
    ];
  }
}
