// What is shown is what the address says: every view can be linked to, and the
// browser's way back leads back.

// known are the parts of the address.
//   ns, kind, name   an object, or a namespace; nothing is all namespaces
//   view             "health", or nothing
//   tab              of an object: past, why, compare, yaml, standing
//   at               the moment that is shown; nothing is now
//   span             how much time is shown: minutes, or "all"
//   show             of a namespace: the kind whose objects are listed
//   find             a part of their names
//   from, to         the versions that are compared
//   field, reports   of why
//   controller       of standing
const known = ["ns", "kind", "name", "view", "tab", "at", "span", "show", "find", "from", "to", "field", "reports", "controller"];

export function read(search = location.search) {
  const given = new URLSearchParams(search);
  const state = {};
  for (const name of known) if (given.get(name)) state[name] = given.get(name);
  return state;
}

export function href(state) {
  const out = new URLSearchParams();
  for (const name of known) if (state[name]) out.set(name, state[name]);
  const text = out.toString();
  return text ? `/?${text}` : "/";
}

// object is where an object is shown; what is not about it is left behind.
export function object(state, about, more = {}) {
  return { ns: about.namespace, kind: about.kind, name: about.name, span: state.span, ...more };
}

let moved = () => {};

// onMove has a function called with each new state.
export function onMove(call) {
  moved = call;
  addEventListener("popstate", () => call(read()));
}

// go shows another state. Small steps, such as of the slider, replace the last one,
// so that the way back is not long.
export function go(state, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", href(state));
  moved(read());
}
