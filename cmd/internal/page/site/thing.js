// One object: its past, why it changed, what differs between versions, how it was,
// and what controllers make of it.

import { ask, follow } from "./api.js";
import { Axis, fit, stretch } from "./axis.js";
import * as clock from "./clock.js";
import * as command from "./command.js";
import { Compare } from "./compare.js";
import { h, put } from "./dom.js";
import { Past } from "./past.js";
import { Standing } from "./standing.js";
import * as state from "./state.js";
import { Why } from "./why.js";
import { by, chip, colours, resource, trouble } from "./words.js";
import { Written } from "./written.js";

// tabs by name: what they are called, and what shows them.
export const tabs = [["past", "Time line", Past], ["why", "Why", Why], ["compare", "Compare", Compare], ["yaml", "As YAML", Written], ["standing", "Controllers", Standing]];

export class Thing {
  constructor(about, place) {
    this.about = about;
    this.limit = 50;
    this.build();
    this.update(place);
  }

  build() {
    this.axis = new Axis({
      onMoment: (at) => state.go({ ...this.place, at }, { replace: true }),
      onSpan: (span) => state.go({ ...this.place, span }, { replace: true }),
    });
    this.title = h("div.title");
    this.command = h("div");
    this.tabs = h("div.tabs", { role: "tablist", "aria-label": "Views of the object", onkeydown: (event) => this.key(event) }, tabs.map(([name, text], i) =>
      h("button", { type: "button", role: "tab", id: `tab-${name}`, "data-tab": name, "aria-controls": "tabpanel", "aria-keyshortcuts": String(i + 1), onclick: () => this.turn(name) }, text)));
    this.panel = h("section.tabpanel", { role: "tabpanel", id: "tabpanel", tabindex: "-1" });
    this.element = h("div.view", {}, this.title, this.axis.element, this.tabs, this.command, this.panel);
  }

  key(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const at = tabs.findIndex(([name]) => name === this.tab());
    this.turn(tabs[(at + by + tabs.length) % tabs.length][0]);
    this.tabs.querySelector("[aria-selected=true]").focus();
    event.preventDefault();
  }

  turn(tab) {
    state.go({ ...this.place, tab: tab === "past" ? undefined : tab });
  }

  tab() {
    return tabs.some(([name]) => name === this.place.tab) ? this.place.tab : "past";
  }

  // question is what every question about the object begins with.
  question() {
    return { kind: this.place.kind, namespace: this.place.ns, name: this.place.name };
  }

  // line is a command about the object.
  line(word, flags = {}) {
    return command.line(this.about, [word, `${this.place.kind}/${this.place.name}`], { "-n": this.place.ns, ...flags });
  }

  same(was) {
    return was && was.kind === this.place.kind && was.ns === this.place.ns && was.name === this.place.name;
  }

  update(place) {
    const was = this.place;
    this.place = place;
    if (!this.same(was)) {
      this.life = undefined;
      this.limit = 50;
      this.listen();
      this.load();
    }
    this.head();
    if (!this.shown || this.shown.name !== this.tab() || !this.same(was)) this.mount();
    else this.shown.view.update(place);
    this.draw();
  }

  mount() {
    this.shown?.view.close?.();
    const [name, text, View] = tabs.find(([one]) => one === this.tab());
    for (const button of this.tabs.children) {
      const on = button.dataset.tab === name;
      button.setAttribute("aria-selected", String(on));
      button.tabIndex = on ? 0 : -1;
    }
    this.panel.setAttribute("aria-labelledby", `tab-${name}`);
    this.shown = { name, view: new View(this) };
    put(this.panel, this.shown.view.element);
    this.shown.view.update(this.place);
    document.title = `${text} · ${resource(this.place.kind)}/${this.place.name} · Millrace`;
  }

  commandIs(text) {
    put(this.command, command.bar(text));
  }

  listen() {
    this.feed?.close();
    clearInterval(this.clock);
    this.clock = setInterval(() => { if (!this.place.at) this.draw(); }, 1000);
    const again = () => {
      clearTimeout(this.pending);
      this.pending = setTimeout(() => this.load(), 300);
    };
    this.feed = follow({ namespace: this.place.ns, name: this.place.name }, {
      happened: (events) => { if (events.some((e) => e.noun !== "delta" || e.object.kind === this.life?.object.kind)) again(); },
      missed: again, state: (name) => dispatchEvent(new CustomEvent("pulse", { detail: name })),
    });
  }

  close() {
    this.feed?.close();
    clearInterval(this.clock);
    clearTimeout(this.pending);
    clearTimeout(this.retry);
    this.loading?.abort();
    this.shown?.view.close?.();
    this.axis.close();
  }

  more() {
    this.limit = Math.min(2000, this.limit * 4);
    return this.load();
  }

  // load asks for the past of the object, on which everything here rests.
  async load() {
    this.loading?.abort();
    clearTimeout(this.retry);
    const loading = (this.loading = new AbortController());
    await this.feed.heard;
    if (loading.signal.aborted) return;
    try {
      this.life = await ask("history", { ...this.question(), limit: this.limit }, loading.signal);
      this.error = undefined;
    } catch (error) {
      if (error.name === "AbortError") return;
      this.error = error;
      if (["away", "ended", "slow"].includes(error.code)) this.retry = setTimeout(() => this.load(), 3000);
    }
    this.head();
    this.draw();
    this.shown?.view.lived?.();
  }

  // moment is when what is shown was: a version is asked for by its number.
  when(at = this.place.at) {
    if (at === undefined) return undefined;
    if (!/^\d+$/.test(at)) return at;
    return this.life?.versions.find((v) => v.resourceVersion === at)?.time;
  }

  head() {
    const { ns, name } = this.place;
    const kind = this.life?.object.kind ?? this.place.kind;
    const last = this.life?.versions.at(-1);
    const there = last && (last.event === "gone" ? [chip("gone"), h("span.soft", {}, ` since ${clock.short(last.time)}`)] : last.event === "deleting" ? chip("being deleted", "deleting") : chip("there", "created"));
    put(this.title, h("nav.crumbs", { "aria-label": "Where this is" },
      h("a", { href: state.href({ ns, span: this.place.span }) }, ns ?? "All namespaces"), " / ", h("a", { href: state.href({ ns, show: kind, span: this.place.span }) }, resource(kind))),
    h("h1", {}, name), there ?? "", last ? h("span.soft", {}, `version ${last.resourceVersion}${last.generation ? `, generation ${last.generation}` : ""}`) : "");
  }

  draw() {
    if (!this.life) {
      if (this.error) this.axis.show({ ...stretch("60", undefined, undefined, Date.now()), marks: [], lanes: ["versions"], moment: undefined, span: "60" });
      return;
    }
    const { versions, decided, gaps = [] } = this.life;
    const span = this.place.span ?? "fit";
    const begins = versions[0]?.time ?? this.about.begins;
    const marks = versions.map((v) => ({ at: v.time, moment: v.resourceVersion, lane: 0, colour: colours[v.event], text: `${v.event} by ${by(v.by)}` }));
    for (const d of decided) marks.push({ at: d.time, lane: d.noun === "turn" ? 1 : 2, colour: colours[d.noun], text: `${d.who}: ${d.what}` });
    const whole = stretch(span, this.when(), new Date(begins).getTime() - 1000, Date.now());
    this.axis.show({
      ...(span === "fit" ? fit(whole, marks) : whole), marks, lanes: ["versions", "turns", "outcomes"], span,
      gaps: gaps.map((g) => ({ lane: 0, from: new Date(g.since ?? begins).getTime(), to: new Date(g.until).getTime() })), moment: this.place.at, when: this.when(),
    });
  }

  // trouble draws an error about the object.
  trouble(error) {
    return trouble(error, { begin: (at) => state.go({ ...this.place, at }, { replace: true }) });
  }
}
