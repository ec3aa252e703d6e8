// Moments, as people read them. The record has nanoseconds; a Date has milliseconds,
// so a moment that is asked about is passed on as it was written.

const pad = (n, width = 2) => String(n).padStart(width, "0");

export const time = (at) => {
  const d = new Date(at);
  return `${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}.${pad(d.getMilliseconds(), 3)}`;
};

export const day = (at) => {
  const d = new Date(at);
  return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())}`;
};

export const full = (at) => `${day(at)} ${time(at)}`;

// short leaves the day out where it is today's.
export const short = (at) => (day(at) === day(Date.now()) ? time(at) : full(at));

const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

// length is a stretch of time in its largest unit.
export function length(milliseconds) {
  const seconds = Math.abs(milliseconds) / 1000;
  for (const [name, size] of units) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${name}`;
  }
  return `${Math.round(milliseconds)} ms`;
}

export function ago(at, now = Date.now()) {
  const past = now - new Date(at);
  return past < 1000 ? "just now" : `${length(past)} ago`;
}

// the same moment for a URL and a command: RFC 3339, with all its digits.
export const stamp = (at) => (typeof at === "string" ? at : new Date(at).toISOString());

const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5, 1728e5, 6048e5];

// ticks are round moments within a stretch, at most so many.
export function ticks(from, to, most) {
  const step = steps.find((size) => (to - from) / size <= most) ?? steps.at(-1);
  const shift = new Date(from).getTimezoneOffset() * 60000;
  const out = [];
  for (let t = Math.ceil((from - shift) / step) * step + shift; t <= to; t += step) out.push(t);
  return { at: out, step };
}

export function tick(at, step) {
  if (step >= 864e5) return day(at);
  if (step >= 6e4) return time(at).slice(0, 5);
  return step >= 1e3 ? time(at).slice(0, 8) : time(at).slice(3);
}
