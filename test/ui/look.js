// What is looked for on every view; it gives a list of what is wrong.
(() => {
  const wrong = [];
  const name = (e) => `<${e.tagName.toLowerCase()} ${[...e.classList].join(".")}> “${(e.innerText ?? "").slice(0, 40)}”`;
  const seen = (e) => {
    const box = e.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && getComputedStyle(e).visibility !== "hidden" && !e.closest(".hidden, .skip") && box.width > 1;
  };

  // Contrast, as the Web Content Accessibility Guidelines have it (AA).
  const channels = (text) => {
    const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
    pen.fillStyle = text;
    pen.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => {
    const a = top[3] + below[3] * (1 - top[3]);
    return [0, 1, 2].map((i) => (a ? (top[i] * top[3] + below[i] * below[3] * (1 - top[3])) / a : 0)).concat(a);
  };
  const behind = (e) => {
    let colour = [0, 0, 0, 0];
    for (let at = e; at && colour[3] < 0.999; at = at.parentElement) colour = over(colour, channels(getComputedStyle(at).backgroundColor));
    return over(colour, [255, 255, 255, 1]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const checked = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  while (walker.nextNode()) {
    const e = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || checked.has(e) || !seen(e) || e.closest("script, noscript, option, dialog:not([open]), :disabled")) continue;
    checked.add(e);
    texts++;
    const look = getComputedStyle(e);
    const size = parseFloat(look.fontSize);
    const ground = behind(e);
    const [x, y] = [light(over(channels(look.color), ground)), light(ground)];
    const contrast = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
    if (contrast < (size >= 24 || (size >= 18.66 && look.fontWeight >= 700) ? 3 : 4.5)) wrong.push(`contrast ${contrast.toFixed(2)} of ${name(e)}`);
    if (size < 11.5) wrong.push(`${size} px of ${name(e)}`);
  }
  if (texts < 5) wrong.push(`there are ${texts} texts`);

  // What can be used has a name, and is on the keyboard's way.
  const controls = document.querySelectorAll("a[href], button, input, select, [role=listbox], [role=tree], [role=tablist], [role=tab], [role=dialog], summary");
  for (const e of controls) {
    if (!seen(e)) continue;
    const labels = [e.getAttribute("aria-label"), ...(e.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent), ...[...(e.labels ?? [])].map((l) => l.textContent), e.textContent, e.title];
    if (!labels.some((t) => t?.trim())) wrong.push(`no name: ${name(e)}`);
    const box = e.getBoundingClientRect();
    if (e.matches("button, select, input:not([type=checkbox])") && !e.matches(".link") && box.height < 22) wrong.push(`${Math.round(box.height)} px high: ${name(e)}`);
  }
  for (const e of document.querySelectorAll("[aria-controls], [aria-labelledby], [aria-activedescendant]")) {
    for (const attribute of ["aria-controls", "aria-labelledby", "aria-activedescendant"]) {
      const id = e.getAttribute(attribute);
      if (id && !document.getElementById(id)) wrong.push(`${attribute}=${id} is of nothing`);
    }
  }
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i))) wrong.push(`there are two #${id}`);

  // The page as a whole.
  if (!document.documentElement.lang) wrong.push("no language");
  if (document.querySelectorAll("h1").length !== 1) wrong.push(`${document.querySelectorAll("h1").length} first headings`);
  if (!document.title.includes("Millrace")) wrong.push(`it is called “${document.title}”`);
  if (document.documentElement.scrollWidth > innerWidth + 1) wrong.push(`${document.documentElement.scrollWidth} px wide on ${innerWidth}`);
  for (const e of document.querySelectorAll("main *")) {
    const box = e.getBoundingClientRect();
    if (seen(e) && box.right > innerWidth + 1 && !e.closest(".graph, .tabs, .command, .yaml, .kinds, .rows, .scroll, svg, input[type=range]") && !e.matches("input[type=range]")) wrong.push(`beyond the edge: ${name(e)}`);
  }
  return wrong.slice(0, 12).join("\n");
})();
