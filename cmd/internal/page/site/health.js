// Who is behind, and what was set aside.

import { ask } from "./api.js";
import * as clock from "./clock.js";
import * as command from "./command.js";
import { h, put } from "./dom.js";
import { plural, trouble } from "./words.js";

export class Health {
  constructor(about) {
    this.answer = h("div", { "aria-live": "polite" });
    this.element = h("div.view", {}, h("div.title", {}, h("h1", {}, "Health")), command.bar(command.line(about, ["lag"])), this.answer);
    this.load();
    document.title = "Health · Millrace";
  }

  update() {}

  close() {
    clearTimeout(this.again);
    this.loading?.abort();
  }

  async load() {
    const loading = (this.loading = new AbortController());
    try {
      this.show(await ask("lag", {}, loading.signal));
    } catch (error) {
      if (error.name === "AbortError") return;
      put(this.answer, trouble(error));
    }
    this.again = setTimeout(() => this.load(), 3000);
  }

  show({ lags, parked }) {
    const workers = lags.filter((l) => l.consumer);
    const behind = workers.filter((l) => l.behind > 0).sort((a, b) => b.behind - a.behind);
    put(this.answer, h("h2", {}, "Who is behind"),
      behind.length ? table(["Stream", "Who", "Behind", "Again", "Last delivery"], behind.map((l) => [l.stream, l.consumer, l.behind, l.again ?? 0, l.active ? clock.ago(l.active) : "never"]))
        : h("p", {}, `None: ${plural(workers.length, "consumer has", "consumers have")} answered everything.`),
      h("h2", {}, "What was set aside"),
      parked.length ? table(["Controller", "Key", "Since", "Reason", "Decided since"], parked.map((p) => [p.controller, `${p.key.namespace ? `${p.key.namespace}/` : ""}${p.key.name}`, clock.full(p.at), p.reason, p.since ?? ""]))
        : h("p", {}, "Nothing, as far as is kept."));
  }
}

const table = (head, rows) => h("div.scroll", { tabindex: "0", role: "region", "aria-label": head[0] }, h("table", {}, h("thead", {}, h("tr", {}, head.map((t) => h("th", { scope: "col" }, t)))), h("tbody", {}, rows.map((row) => h("tr", {}, row.map((t) => h("td", {}, String(t))))))));
