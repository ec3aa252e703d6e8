// The answers of the program that has served this page.

// Trouble is an answer that is none.
export class Trouble extends Error {
  constructor(code, text, more) {
    super(text);
    this.code = code;
    this.begins = more?.begins;
  }
}

// ask asks one question. Values that are undefined or "" are left out, lists are
// repeated.
export async function ask(what, values = {}, signal) {
  let answer;
  let found;
  try {
    answer = await fetch(`/api/${what}?${query(values)}`, { signal, headers: { accept: "application/json" } });
    found = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error; // also in the middle of an answer
    if (answer && error.name === "SyntaxError") throw new Trouble("broken", `The answer cannot be read (${answer.status}).`);
    throw new Trouble("ended", "The program that serves this page does not answer: has it ended?");
  }
  if (!answer.ok) throw new Trouble(found.code, found.error, found);
  return found;
}

export function query(values) {
  const out = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of [value].flat()) if (one !== undefined && one !== null && one !== "") out.append(name, one);
  }
  return out;
}

// follow hands over what happens until close is called. A page that is not visible follows
// nothing: browsers give a site few connections. What is asked after heard misses nothing
// from then on; where the server cannot be heard it is not waited for, and missed is called
// once it is, as it is after each break.
export function follow(values, { happened, missed, state }) {
  let source;
  let ended = false;
  let again;
  let late = false;
  let begin;
  const heard = new Promise((resolve) => { begin = resolve; });
  const goOn = () => {
    late = true;
    begin();
  };
  setTimeout(goOn, 500);
  const close = () => {
    source?.close();
    source = undefined;
    clearTimeout(again);
  };
  const open = () => {
    close();
    if (ended || document.hidden) return;
    source = new EventSource(`/api/live?${query(values)}`);
    source.addEventListener("begun", () => {
      state("live");
      if (late) missed();
      goOn(); // a page that begins again has missed something
    });
    source.addEventListener("happened", (event) => happened(JSON.parse(event.data)));
    source.addEventListener("missed", () => missed());
    const lost = () => {
      state("away");
      goOn();
      close();
      again = setTimeout(open, 3000);
    };
    source.addEventListener("trouble", lost);
    source.addEventListener("error", lost);
  };
  document.addEventListener("visibilitychange", open);
  open();
  return {
    heard,
    close() {
      ended = true;
      document.removeEventListener("visibilitychange", open);
      close();
    },
  };
}
