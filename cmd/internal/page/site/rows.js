// A list of any length, of which only what is seen is on the page. It is one stop of
// the keyboard: arrows, Page Up and Down, Home and End move within it, Enter opens.

import { h, put } from "./dom.js";

let lists = 0;

export class Rows {
  // draw makes the children of a row from an item; href is where it leads, or
  // nothing; identify tells items apart when they are replaced.
  constructor({ label, height, draw, href, open, identify }) {
    Object.assign(this, { height, draw, href, open, identify });
    this.items = [];
    this.at = -1;
    this.prefix = `row${++lists}-`;
    this.inner = h("div.rows-inner", { role: "presentation" });
    this.element = h("div.rows", {
      role: "listbox", tabindex: "0", "aria-label": label,
      onscroll: () => this.paint(), onkeydown: (event) => this.key(event),
      onfocus: () => this.enter(),
    }, this.inner);
    this.seen = new ResizeObserver(() => this.paint());
    this.seen.observe(this.element);
  }

  close() {
    this.seen.disconnect();
  }

  // enter selects the first item if the focus is in the list and none is selected.
  enter() {
    if (this.at < 0 && this.items.length) this.select(0);
  }

  // show replaces the items. Who has scrolled down stays where he is when items are
  // added above; what is selected stays selected. A user who is in the list when its
  // first items come, or when the selected one goes, has entered it anew: no second
  // focus will tell.
  show(items, { keep = true } = {}) {
    const top = Math.floor(this.element.scrollTop / this.height);
    const anchor = keep && top > 0 ? this.identify(this.items[top] ?? {}) : undefined;
    const chosen = this.at >= 0 && this.items[this.at] ? this.identify(this.items[this.at]) : undefined;
    this.items = items;
    this.at = chosen === undefined ? -1 : items.findIndex((item) => this.identify(item) === chosen);
    this.inner.style.height = `${items.length * this.height}px`;
    if (!keep) this.element.scrollTop = 0;
    else if (anchor !== undefined) {
      const now = items.findIndex((item) => this.identify(item) === anchor);
      if (now >= 0) this.element.scrollTop += (now - top) * this.height;
    }
    this.paint(true);
    if (document.activeElement === this.element) this.enter();
  }

  paint(anew) {
    const from = Math.max(0, Math.floor(this.element.scrollTop / this.height) - 4);
    const to = Math.min(this.items.length, Math.ceil((this.element.scrollTop + this.element.clientHeight) / this.height) + 4);
    if (!anew && from === this.from && to === this.to) return;
    [this.from, this.to] = [from, to];
    const rows = [];
    for (let i = from; i < to; i++) rows.push(this.row(i));
    put(this.inner, rows);
    this.mark();
  }

  row(i) {
    const item = this.items[i];
    const row = h("a.row", {
      role: "option", id: this.prefix + i, tabindex: "-1", href: this.href?.(item), "aria-setsize": this.items.length, "aria-posinset": i + 1,
      "aria-selected": String(i === this.at),
      onclick: (event) => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return; // in another tab
        event.preventDefault();
        this.select(i);
        this.open(item);
      },
    }, this.draw(item, i));
    row.style.top = `${i * this.height}px`;
    row.style.height = `${this.height}px`;
    return row;
  }

  mark() {
    const there = this.at >= this.from && this.at < this.to;
    if (there) this.element.setAttribute("aria-activedescendant", this.prefix + this.at);
    else this.element.removeAttribute("aria-activedescendant");
  }

  select(i) {
    this.at = Math.max(0, Math.min(this.items.length - 1, i));
    const top = this.at * this.height;
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (top + this.height > scrollTop + clientHeight) this.element.scrollTop = top + this.height - clientHeight;
    this.paint(true);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const moves = { ArrowDown: this.at + 1, ArrowUp: this.at - 1, PageDown: this.at + page, PageUp: this.at - page, Home: 0, End: this.items.length - 1 };
    if (!this.items.length || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key in moves) this.select(moves[event.key]);
    else if (event.key === "Enter" && this.items[this.at]) this.open(this.items[this.at]);
    else return;
    event.preventDefault();
  }
}
