// The axis of time: what happened when, what may be missing, and the moment that is
// shown. The picture is for those who see it; the slider below it is for everybody.

import { h, icon, put } from "./dom.js";
import * as clock from "./clock.js";

const laneHeight = 18;
const head = 20;
const fine = 1000; // steps of the slider

// spans are how much time is shown: minutes, or from the first to the last that
// happened, or all that the record has.
export const spans = [["fit", "what happened"], ["5", "5 minutes"], ["15", "15 minutes"], ["60", "1 hour"], ["360", "6 hours"], ["1440", "1 day"], ["10080", "1 week"], ["all", "everything"]];

export class Axis {
  // onMoment is called with a moment, or undefined for now; onSpan with one of spans.
  constructor({ onMoment, onSpan }) {
    this.onMoment = onMoment;
    this.marks = [];
    this.canvas = h("canvas", { "aria-hidden": "true", onclick: (event) => this.click(event), onpointermove: (event) => this.hover(event), onpointerleave: () => this.leave() });
    this.labels = h("div.lane-labels", { "aria-hidden": "true" });
    this.tip = h("div.tip", { hidden: true, "aria-hidden": "true" });
    this.range = h("input", { type: "range", min: 0, max: fine, step: 1, disabled: true, "aria-label": "Moment that is shown", oninput: () => this.slide() });
    this.said = h("output.moment");
    this.now = h("button", { type: "button", "aria-keyshortcuts": "n", onclick: () => this.onMoment(undefined) }, "Now");
    this.select = h("select", { "aria-label": "How much time is shown", onchange: () => onSpan(this.select.value) }, spans.map(([value, text]) => h("option", { value }, text)));
    const step = (by, name, label, key) => h("button.icon", { type: "button", "aria-label": label, "aria-keyshortcuts": key, title: label, onclick: () => this.step(by) }, icon(name));
    this.element = h("section.axis", { "aria-label": "Time" },
      h("div.axis-head", {}, this.said, h("span.grow"), step(-1, "back", "The change before", "["), step(1, "on", "The next change", "]"), this.now, this.select),
      h("div.axis-body", {}, this.labels, h("div.axis-plot", {}, this.canvas, this.range, this.tip)));
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.canvas);
    this.dark = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.draw();
    this.dark.addEventListener("change", this.redraw);
    addEventListener("themechange", this.redraw);
  }

  close() {
    this.resized.disconnect();
    this.dark.removeEventListener("change", this.redraw);
    removeEventListener("themechange", this.redraw);
  }

  // show takes what there is to draw: from and to in milliseconds; marks with their
  // time ("at"), the moment that they stand for, lane and colour; gaps; the lanes by
  // name; and what is shown: its moment, as the address has it, and when that was.
  // Both are undefined for now.
  show({ from, to, marks, gaps = [], lanes, moment, when = moment, span }) {
    Object.assign(this, { from, to: Math.max(to, from + 1), gaps, lanes, moment });
    this.when = when === undefined ? undefined : new Date(when).getTime();
    this.marks = marks.map((m) => ({ ...m, x: new Date(m.at).getTime() })).sort((a, b) => a.x - b.x);
    this.range.disabled = false; // from now on there is time to move in
    this.select.value = span;
    this.now.setAttribute("aria-pressed", String(moment === undefined));
    put(this.labels, lanes.map((name) => h("div", { title: name }, name)));
    const at = this.when ?? this.to;
    if (document.activeElement !== this.range || !this.sliding) this.range.value = Math.round(((at - this.from) / (this.to - this.from)) * fine);
    const text = moment === undefined ? "now" : `${clock.full(at)}, ${clock.ago(at)}`;
    this.range.setAttribute("aria-valuetext", text);
    put(this.said, h("span.soft", {}, moment === undefined ? "As it is " : "As it was at "), h("strong", {}, moment === undefined ? "now" : clock.short(at)), moment === undefined ? "" : h("span.soft", {}, ` ${clock.ago(at)}`));
    this.draw();
  }

  slide() {
    this.sliding = true;
    clearTimeout(this.slid);
    this.slid = setTimeout(() => { this.sliding = false; }, 400);
    const value = Number(this.range.value);
    this.choose(value >= fine ? undefined : this.from + (value / fine) * (this.to - this.from));
  }

  choose(at) {
    if (at === undefined || at >= Date.now()) this.onMoment(undefined);
    else this.onMoment(new Date(Math.max(at, this.from)).toISOString());
  }

  // step goes to the change before the moment, or behind it. Behind the last is now.
  step(by) {
    const stops = this.marks.filter((m) => m.moment !== undefined);
    const here = stops.findIndex((m) => m.moment === this.moment);
    let next;
    if (here >= 0) next = stops[here + by];
    else if (by < 0) next = stops.findLast((m) => m.x < (this.when ?? Infinity));
    else next = stops.find((m) => m.x > (this.when ?? Infinity));
    if (next) this.onMoment(next.moment);
    else if (by > 0) this.onMoment(undefined);
  }

  place(at) {
    return ((at - this.from) / (this.to - this.from)) * this.width;
  }

  click(event) {
    if (!this.lanes) return;
    const near = this.near(event);
    if (near?.moment !== undefined) this.onMoment(near.moment);
    else this.choose(this.from + (event.offsetX / this.width) * (this.to - this.from));
  }

  near(event) {
    const lane = Math.floor((event.offsetY - head) / laneHeight);
    let best;
    for (const m of this.marks) {
      const off = Math.abs(this.place(m.x) - event.offsetX);
      if (m.lane === lane && off < 7 && (!best || off < best.off)) best = { ...m, off };
    }
    return best;
  }

  hover(event) {
    const near = this.near(event);
    this.tip.hidden = !near;
    if (!near) return;
    put(this.tip, h("strong", {}, clock.short(near.at)), " ", near.text ?? "");
    this.tip.style.left = `${Math.min(event.offsetX, Math.max(0, this.width - 220))}px`;
    this.tip.style.top = `${head + (near.lane + 1) * laneHeight}px`;
  }

  leave() {
    this.tip.hidden = true;
  }

  draw() {
    if (!this.lanes || !this.canvas.isConnected) return;
    const scale = devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    const height = head + Math.max(1, this.lanes.length) * laneHeight;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = this.width * scale;
    this.canvas.height = height * scale;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    this.drawTicks(pen, height);
    for (const gap of this.gaps) this.drawGap(pen, gap, colour("--ended"));
    for (const m of this.marks) {
      pen.fillStyle = colour(m.colour);
      pen.globalAlpha = this.when !== undefined && m.x > this.when ? 0.35 : 1;
      const y = head + m.lane * laneHeight + laneHeight / 2;
      pen.beginPath();
      pen.roundRect(this.place(m.x) - 2, y - 5, 4, 10, 2);
      pen.fill();
    }
    pen.globalAlpha = 1;
    this.drawMoment(pen, height, colour("--water"));
  }

  drawTicks(pen, height) {
    pen.font = "11px system-ui, sans-serif";
    const { at, step } = clock.ticks(this.from, this.to, Math.max(2, this.width / 110));
    for (const t of at) {
      const x = Math.round(this.place(t)) + 0.5;
      pen.strokeStyle = colour("--line");
      pen.beginPath();
      pen.moveTo(x, head - 4);
      pen.lineTo(x, height);
      pen.stroke();
      pen.fillStyle = colour("--soft");
      pen.fillText(clock.tick(t, step), x + 3, 11);
    }
    pen.strokeStyle = colour("--line");
    for (let i = 0; i <= this.lanes.length; i++) {
      pen.beginPath();
      pen.moveTo(0, head + i * laneHeight + 0.5);
      pen.lineTo(this.width, head + i * laneHeight + 0.5);
      pen.stroke();
    }
  }

  // drawGap hatches the stretch in which changes may be missing.
  drawGap(pen, gap, colour) {
    const left = Math.max(0, this.place(gap.from));
    const right = Math.max(left + 3, Math.min(this.width, this.place(gap.to)));
    const top = head + gap.lane * laneHeight;
    pen.save();
    pen.beginPath();
    pen.rect(left, top + 1, right - left, laneHeight - 1);
    pen.clip();
    pen.strokeStyle = colour;
    pen.globalAlpha = 0.7;
    for (let x = left - laneHeight; x < right; x += 5) {
      pen.beginPath();
      pen.moveTo(x, top + laneHeight);
      pen.lineTo(x + laneHeight, top);
      pen.stroke();
    }
    pen.restore();
  }

  drawMoment(pen, height, colour) {
    const x = this.when === undefined ? this.width - 1 : this.place(this.when);
    pen.strokeStyle = colour;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(x, head - 4);
    pen.lineTo(x, height);
    pen.stroke();
    pen.lineWidth = 1;
  }
}

// colour gives one of the theme's as a drawing takes it. A custom property is not
// resolved by itself; the colour of an element that has it is.
const resolved = new Map();

function colour(name) {
  const key = `${document.documentElement.dataset.theme ?? ""} ${matchMedia("(prefers-color-scheme: dark)").matches} ${name}`;
  if (!resolved.has(key)) {
    const probe = h("i");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    resolved.set(key, getComputedStyle(probe).color);
    probe.remove();
  }
  return resolved.get(key);
}

// stretch is what the axis shows: so many minutes up to now, or around the moment
// where that is longer ago.
export function stretch(span, when, begins, now) {
  const first = begins ? new Date(begins).getTime() : now - 36e5;
  if (span === "all" || span === "fit") return { from: Math.min(first, now - 1000), to: now };
  const size = Number(span) * 6e4;
  const at = when === undefined ? now : new Date(when).getTime();
  const to = at >= now - size ? now : at + size / 2;
  return { from: Math.max(to - size, Math.min(first, to - 1000)), to };
}

// fit narrows a stretch to what happened within it, with some room at both ends. The
// right end is now all the same: nothing has happened since.
export function fit({ from, to }, marks) {
  if (!marks.length) return { from, to };
  const times = marks.map((m) => new Date(m.at).getTime());
  const [first, last] = [times.reduce((a, b) => Math.min(a, b)), times.reduce((a, b) => Math.max(a, b))];
  const room = Math.max(500, (last - first) * 0.03);
  return { from: Math.max(from, first - room), to: Math.min(to, last + room) };
}

// usual is the span to begin with: what happened in a young record, or else an hour.
export const usual = (begins, now) => (begins && now - new Date(begins).getTime() < 36e5 ? "fit" : "60");
