// What a controller has made of an object: how far it has read, what it decided last,
// and when it looks again.

import { ask } from "./api.js";
import * as clock from "./clock.js";
import { h, put } from "./dom.js";
import * as state from "./state.js";
import { resource } from "./words.js";

export class Standing {
  constructor(thing) {
    this.thing = thing;
    this.select = h("select", { "aria-label": "Controller", onchange: () => state.go({ ...thing.place, controller: this.select.value }, { replace: true }) },
      thing.about.controllers.map((name) => h("option", { value: name }, name)));
    this.answer = h("div", { "aria-live": "polite" });
    this.element = h("div", {}, h("div.tools", {}, h("label", {}, h("span.soft", {}, "How does "), this.select, h("span.soft", {}, " stand with it?"))), this.answer);
  }

  // controller is the one that is asked about: else the one that decided last, or has the
  // kind in its name.
  controller() {
    const { controller } = this.thing.place;
    const one = resource(this.thing.place.kind).replace(/s$/, "");
    return controller ?? this.thing.life?.decided.find((d) => d.noun === "turn")?.who ?? this.thing.about.controllers.find((name) => name.startsWith(one)) ?? this.thing.about.controllers[0];
  }

  update() {
    this.lived();
  }

  async lived() {
    const controller = this.controller();
    if (!controller) {
      put(this.answer, h("p.empty", {}, "No controller has any turn on record."));
      return;
    }
    this.select.value = controller;
    this.thing.commandIs(this.thing.line("why-not", { "--controller": controller }));
    this.loading?.abort();
    const loading = (this.loading = new AbortController());
    try {
      this.show(await ask("standing", { ...this.thing.question(), controller }, loading.signal));
    } catch (error) {
      if (error.name !== "AbortError") put(this.answer, this.thing.trouble(error));
    }
  }

  close() {
    this.loading?.abort();
  }

  show(found) {
    const rows = [["The object", found.object ? `${found.object.event}, version ${found.object.resourceVersion}, ${clock.full(found.object.time)}` : "none is on record"], ["Has it looked?", looked(found)]];
    for (const t of found.turns ?? []) rows.push([`Its last turn (${t.lane})`, [h("strong", {}, t.because), h("div.soft", {}, `turn ${t.turn}, ${clock.full(t.at)}, ${t.commands} commands`), outcome(t)]]);
    if (!found.turns?.length) rows.push(["Its turns", "None is on record: it has never wanted anything of this key, as far as is kept."]);
    rows.push(["Looks again", found.wake ? `at ${clock.full(found.wake.at)}: ${found.wake.because}` : "with the next change of anything that it reads"]);
    put(this.answer, h("dl.facts", {}, rows.map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])));
  }
}

function looked({ looked: look, object }) {
  if (!look) return "It does not read this kind.";
  if (object && look.answered >= look.position) return "Yes, and all that it was asked has been answered.";
  if (!look.pending) return `Up to message ${look.answered}, and nothing waits for it.`;
  return `Up to message ${look.answered}; the object's newest is ${look.position}, and ${look.pending} wait for an answer.`;
}

function outcome(turn) {
  if (turn.trouble) return h("div.gap-note", {}, turn.trouble);
  if (turn.lane === "park") return h("div.gap-note", {}, "Set aside.");
  if (!turn.outcome) return h("div.soft", {}, "No outcome yet: it is with the writer, or will be stored again.");
  const counts = Object.entries(turn.outcome.results ?? {}).map(([status, n]) => `${n} ${status}`).join(", ");
  return [h("div.soft", {}, `outcome at ${clock.full(turn.outcome.at)}: ${counts}`), turn.outcome.failure ? h("div.gap-note", {}, turn.outcome.failure) : ""];
}
