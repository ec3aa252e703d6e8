// Elements are made here, and text is only ever put on them as text: nothing that the
// record says can become markup.

const svgNames = "http://www.w3.org/2000/svg";

// h makes an element: "div.a.b", properties, children. Children may be nested lists,
// texts, and nothing.
export function h(spec, props, ...children) {
  const [tag, ...classes] = spec.split(".");
  return fill(document.createElement(tag), classes, props, children);
}

// s makes an element of a drawing.
export function s(spec, props, ...children) {
  const [tag, ...classes] = spec.split(".");
  return fill(document.createElementNS(svgNames, tag), classes, props, children);
}

function fill(element, classes, props, children) {
  if (classes.length) element.classList.add(...classes);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...texts(children));
  return element;
}

const texts = (children) => children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false && c !== "");

// put replaces what an element has.
export function put(element, ...children) {
  element.replaceChildren(...texts(children));
  return element;
}

const paths = {
  sun: "M12 4V2m0 20v-2m8-8h2M2 12h2m13.7-5.7 1.4-1.400M4.9 19.100l1.4-1.400m0-11.400L4.9 4.900m14.2 14.2-1.4-1.400M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8",
  moon: "M20 14.500A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5",
  half: "M12 3a9 9 0 1 0 0 18V3m0 0a9 9 0 0 1 0 18",
  copy: "M9 9h11v11H9zM15 9V4H4v11h5",
  back: "M15 6l-6 6 6 6",
  on: "M9 6l6 6-6 6",
};

// icon is a drawing that says nothing by itself: the element that has it has a label.
export function icon(name) {
  return s("svg.glyph", { viewBox: "0 0 24 24", "aria-hidden": "true" }, s("path", { d: paths[name] }));
}

// say tells those who do not see the page.
export function say(text) {
  put(document.getElementById("said"), text);
}

// later calls a function once things have been quiet for some milliseconds.
export function later(wait, call) {
  let timer;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...args), wait);
  };
}
