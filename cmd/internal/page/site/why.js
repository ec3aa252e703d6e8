// Why an object changed: a graph of causes. Time goes from the left to the right, from
// where it began to what is explained; on a narrow screen the causes stand below what
// they led to.

import { ask } from "./api.js";
import * as clock from "./clock.js";
import { h, later, put, s } from "./dom.js";
import * as state from "./state.js";
import { by, changes, chip, resource } from "./words.js";

// explained is the note of a version that stands further to the left already.
const explained = "explained above";

export class Why {
  constructor(thing) {
    this.thing = thing;
    this.field = h("input", { type: "text", placeholder: "spec.replicas", "aria-label": "Only the last change of this field", spellcheck: "false", autocomplete: "off",
      oninput: later(400, () => this.go({ field: this.field.value.trim() })) });
    this.reports = h("input", { type: "checkbox", onchange: () => this.go({ reports: this.reports.checked ? "true" : "" }) });
    this.edges = s("svg.edges", { "aria-hidden": "true" });
    this.tree = h("ul.causes", { role: "tree", "aria-label": "Causes", onkeydown: (event) => this.key(event) });
    this.canvas = h("div.graph-inner", {}, this.edges, this.tree);
    this.graph = h("div.graph", {}, this.canvas);
    this.note = h("p.began");
    this.element = h("div", {}, h("div.tools", {}, h("label", {}, h("span.soft", {}, "of the field "), this.field), h("label", {}, this.reports, " follow reports of what is seen, too")), this.note, this.graph);
    this.resized = new ResizeObserver(() => this.connect());
    this.resized.observe(this.tree);
  }

  go(patch) {
    state.go({ ...this.thing.place, ...patch }, { replace: true });
  }

  close() {
    this.resized.disconnect();
    this.loading?.abort();
  }

  async update(place) {
    if (document.activeElement !== this.field) this.field.value = place.field ?? "";
    this.reports.checked = place.reports === "true";
    this.thing.commandIs(this.thing.line("why", { "--at": place.at, "--field": place.field, "--reports": place.reports === "true" }));
    this.loading?.abort();
    const loading = (this.loading = new AbortController());
    this.graph.setAttribute("aria-busy", "true");
    try {
      this.show(await ask("why", { ...this.thing.question(), at: place.at, field: place.field, reports: place.reports }, loading.signal));
    } catch (error) {
      if (error.name === "AbortError") return;
      put(this.note, this.thing.trouble(error));
      put(this.tree);
      put(this.edges);
    }
    this.graph.removeAttribute("aria-busy");
  }

  // lived explains the newest change when there is another one.
  lived() {
    if (!this.thing.place.at) this.update(this.thing.place);
  }

  show({ cause, began }) {
    this.began = `${began.object.kind} ${began.object.namespace ?? ""} ${began.object.name} ${began.version}`;
    put(this.tree, this.cause(cause, 1));
    const first = this.tree.querySelector(".cause");
    first.tabIndex = 0;
    const start = this.find(cause);
    put(this.note, start === cause ? "Nothing on record lies behind this change." : [h("strong", {}, "Began with "), `${resource(start.version.object.kind)}/${start.version.object.name} ${start.version.event} by ${by(start.version.by)}, ${clock.full(start.version.time)}`,
      h("span.soft", {}, `, ${clock.length(new Date(cause.version.time) - new Date(start.version.time))} before`)]);
    if (cause.last) {
      const { object, resourceVersion, time } = cause.last;
      this.note.append(h("span.soft", {}, ". Changed last by ", by(cause.last.by), " ", h("a", { href: state.href(state.object(this.thing.place, object, { at: resourceVersion })) }, `at ${clock.full(time)}`)));
    }
    this.connect();
    this.graph.scrollLeft = this.graph.scrollWidth; // what is explained stands at the right end
  }

  find(cause) {
    if (this.id(cause) === this.began && cause.note !== explained) return cause;
    for (const behind of cause.causes ?? []) {
      const found = this.find(behind);
      if (found) return found;
    }
    return cause.role ? undefined : cause;
  }

  id(cause) {
    const { object, resourceVersion } = cause.version;
    return `${object.kind} ${object.namespace ?? ""} ${object.name} ${resourceVersion}`;
  }

  cause(cause, level) {
    const { version, decision } = cause;
    const place = state.object(this.thing.place, version.object, { at: version.resourceVersion });
    const began = this.id(cause) === this.began && !cause.note, again = cause.note === explained;
    const card = h(`article.cause.is-${version.event}${began ? ".is-began" : ""}`, {
      role: "treeitem", tabindex: "-1", "aria-level": level, "aria-expanded": cause.causes?.length ? "true" : undefined, "data-cause": this.id(cause),
      "aria-label": `${cause.role ? `${cause.role}: ` : ""}${resource(version.object.kind)} ${version.object.name} ${version.event} by ${by(version.by)}${decision ? `, because: ${decision.because}` : ""}`,
    },
    h("header", {}, cause.role ? h("span.role", {}, cause.role) : h("span.role", {}, "what is explained"), began ? h("span.role.first", {}, "it began here") : ""),
    h("a.name", { href: state.href(place), tabindex: "-1" }, h("span.soft", {}, `${resource(version.object.kind)}/`), version.object.name),
    h("div.line", {}, chip(version.event), h("time.soft", { datetime: version.time, title: clock.full(version.time) }, clock.short(version.time)), h("span.soft", {}, `version ${version.resourceVersion}`)),
    again ? "" : h("p", {}, h("span.soft", {}, "by "), h("strong", {}, by(version.by)), decision ? h("span.soft", {}, `, turn ${decision.turn} of ${decision.key.namespace ? `${decision.key.namespace}/` : ""}${decision.key.name}`) : ""),
    decision ? h("p.because", {}, decision.because) : "", changes(telling(version.changes ?? [])), !again && version.by.unknown ? h("p.soft", {}, version.by.unknown) : "",
    !again && version.by.note ? h("p.soft", {}, version.by.note) : "", cause.note ? h("p.soft", {}, cause.note) : "", cause.like ? h("p.soft", {}, `and ${cause.like} more like it`) : "");
    return h("li", { role: "none" }, card, cause.causes?.length ? h("ul", { role: "group" }, cause.causes.map((behind) => this.cause(behind, level + 1))) : "");
  }

  // key moves through the tree as trees are moved through: to the causes, and back to
  // what they led to.
  key(event) {
    const all = [...this.tree.querySelectorAll(".cause")];
    const here = all.indexOf(document.activeElement);
    if (here < 0) return;
    const item = all[here].parentElement;
    const next = {
      ArrowDown: all[here + 1], ArrowUp: all[here - 1], Home: all[0], End: all.at(-1), ArrowLeft: item.querySelector(":scope > ul > li > .cause"),
      ArrowRight: item.parentElement.closest("li")?.querySelector(":scope > .cause"),
    }[event.key];
    if (event.key === "Enter") all[here].querySelector("a.name").click();
    else if (!next) return;
    event.preventDefault();
    if (!next) return;
    all[here].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  // connect draws a line from each cause to what it led to.
  connect() {
    const area = this.canvas.getBoundingClientRect();
    put(this.edges);
    if (!area.width || getComputedStyle(this.edges).display === "none") return;
    this.edges.setAttribute("width", this.canvas.scrollWidth);
    this.edges.setAttribute("height", this.canvas.scrollHeight);
    for (const item of this.tree.querySelectorAll("[role=group] > [role=none]")) {
      const from = item.firstElementChild.getBoundingClientRect();
      const to = item.parentElement.parentElement.firstElementChild.getBoundingClientRect();
      const [x1, y1, x2, y2] = [from.right - area.left, from.top + Math.min(60, from.height / 2) - area.top, to.left - area.left - 6, to.top + Math.min(60, to.height / 2) - area.top];
      const bend = (x2 - x1) / 2;
      this.edges.append(s("path", { d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` }), s("path.head", { d: `M${x2} ${y2 - 4}l7 4-7 4z` }));
    }
  }
}

// telling are the changes that say most: what is wanted before what is seen.
function telling(all) {
  const wanted = all.filter((c) => c.path.startsWith("spec"));
  return wanted.length ? wanted : all;
}
