// How things are called, and which colour they have.

import { h } from "./dom.js";

export const colours = {
  created: "--created", changed: "--changed", deleting: "--ended", gone: "--ended", found: "--found", kept: "--soft",
  turn: "--turn", outcome: "--outcome", gap: "--ended",
};

// resource is a kind without its group.
export const resource = (kind) => kind.split(".")[0];

// order is where a kind stands in a list: what people look for first comes first.
const firsts = ["deployments", "statefulsets", "daemonsets", "cronjobs", "jobs", "replicasets", "replicationcontrollers", "pods", "services", "persistentvolumeclaims", "configmaps", "secrets"];
const lasts = ["leases", "events"];

export function order(kind) {
  const name = resource(kind);
  if (lasts.includes(name)) return 1000;
  return firsts.includes(name) ? firsts.indexOf(name) : 100;
}

// chip is a small coloured word.
export const chip = (text, look = text) => h(`span.chip.is-${look}`, {}, text);

// value writes a value of a field: a text as it is, the rest as JSON.
export const value = (v) => (typeof v === "string" ? v : JSON.stringify(v));

export const plural = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

// by is who made a version.
export function by(hand) {
  if (hand.controller) return hand.controller;
  if (hand.manager) return hand.subresource ? `${hand.manager} (${hand.subresource})` : hand.manager;
  return "unknown";
}

// changed draws one field that differs.
export function changed(change) {
  const { path, was, is } = change;
  const sign = was === undefined ? "+" : is === undefined ? "−" : "~";
  const said = was === undefined ? "added" : is === undefined ? "removed" : "changed";
  return h("li.change", {}, h("span.sign", { role: "img", "aria-label": said }, sign), h("span.path", {}, path), h("span.values", {},
    was === undefined ? "" : h("del", {}, value(was)), was !== undefined && is !== undefined ? h("span.arrow", { "aria-label": "became" }, " → ") : "",
    is === undefined ? "" : h("ins", {}, value(is))));
}

// changes draws fields that differ; beyond a few they are opened by a button.
export function changes(list, few = 3) {
  if (!list?.length) return "";
  const rest = list.slice(few);
  const out = h("ul.changes", {}, list.slice(0, few).map(changed));
  if (rest.length) {
    const more = h("li", {}, h("button.plain.link", { type: "button", onclick: () => more.replaceWith(...rest.map(changed)) }, `and ${plural(rest.length, "more field")}`));
    out.append(more);
  }
  return out;
}

export const empty = (title, text, ...more) => h("div.empty", {}, h("h2", {}, title), h("p", {}, text), more);

// trouble says what went wrong, and what can be done.
export function trouble(error, { begin } = {}) {
  const titles = {
    away: "The bus does not answer", ended: "No program answers", before: "That is before the record begins", absent: "Not on record", asked: "That cannot be asked",
    slow: "No answer in time", crowded: "Too many live views", refused: "Refused", broken: "Something broke",
  };
  const again = ["away", "ended", "slow"].includes(error.code) ? h("p.soft", {}, "It is tried again every few seconds.") : "";
  const go = error.code === "before" && begin && error.begins ? h("button", { type: "button", onclick: () => begin(error.begins) }, "Go to where it begins") : "";
  return h("div.empty.trouble", { "data-trouble": error.code ?? "broken" }, h("h2", {}, titles[error.code] ?? titles.broken), h("p", {}, error.message), again, go);
}
