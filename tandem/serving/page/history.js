// What was translated before, in this browser's storage only.

const KEY = "tandem-history";
const OFF = "tandem-history-off";
const MOST_ENTRIES = 50;
// Longer texts are files that somebody has; the browser's storage is small.
const MOST_CHARACTERS = 20000;

const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const names = new Intl.DisplayNames(["en"], { type: "language" });

export class History {
  #cleared = null;

  constructor(restored) {
    this.restored = restored;
    this.dialog = document.getElementById("history");
    this.list = document.getElementById("entries");
    this.session = newSession();
    const keep = document.getElementById("keep-history");
    const clear = document.getElementById("clear-history");
    keep.checked = this.kept;
    keep.addEventListener("change", () => {
      if (keep.checked) stored(() => localStorage.removeItem(OFF));
      else stored(() => localStorage.setItem(OFF, "1"));
    });
    clear.addEventListener("click", () => {
      const [before, after] = this.#cleared ? [null, this.#cleared] : [this.entries, []];
      this.#cleared = before;
      this.#write(after);
      this.#draw();
    });
    document.getElementById("open-history").addEventListener("click", () => {
      this.#cleared = null;
      this.#draw();
      this.dialog.showModal();
    });
  }

  get kept() {
    return stored(() => localStorage.getItem(OFF)) === null;
  }

  get entries() {
    try {
      const found = JSON.parse(stored(() => localStorage.getItem(KEY)) ?? "[]");
      return Array.isArray(found) ? found.filter(isEntry) : [];
    } catch {
      return [];
    }
  }

  /** The next text is another one, not a longer version of the last. */
  begin() {
    this.session = newSession();
  }

  /** Notes a text and its translation, in place of what it was a moment ago. */
  note(text, translation, pair) {
    if (!this.kept || !text.trim() || text.length > MOST_CHARACTERS) return;
    const last = this.entries.find((one) => one.session === this.session);
    if (last && !related(last.text, text)) this.begin();
    const entry = { session: this.session, when: Date.now(), text, translation, ...pair };
    const same = (one) => one.text === text && one.source === pair.source && one.target === pair.target;
    const others = this.entries.filter((one) => one.session !== this.session && !same(one));
    this.#write([entry, ...others].slice(0, MOST_ENTRIES));
  }

  #write(entries) {
    stored(() => localStorage.setItem(KEY, JSON.stringify(entries)));
  }

  #draw() {
    const entries = this.entries;
    this.list.replaceChildren(...entries.map((entry) => this.#row(entry)));
    document.getElementById("no-entries").hidden = entries.length > 0;
    const clear = document.getElementById("clear-history");
    clear.textContent = this.#cleared ? "Undo" : "Clear history";
    clear.disabled = entries.length === 0 && !this.#cleared;
  }

  #row(entry) {
    const row = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.append(
      line("text", entry.text, entry.source),
      line("result", entry.translation, entry.target),
      line("when", `${moment.format(entry.when)} · ${named(entry.source)} to ${named(entry.target)}`),
    );
    button.addEventListener("click", () => {
      this.dialog.close();
      this.restored(entry);
      this.session = entry.session;
    });
    row.append(button);
    return row;
  }
}

/** A language's name; its code, if that is none that the browser knows. */
function named(code) {
  try {
    return names.of(code);
  } catch {
    return code;
  }
}

function line(name, text, language) {
  const element = document.createElement("span");
  element.className = name;
  element.textContent = String(text).slice(0, 200);
  if (language) element.lang = language;
  return element;
}

/** Whether one text is likely a later state of the other: they begin or end alike. */
const related = (one, other) => one.slice(0, 8) === other.slice(0, 8) || one.slice(-8) === other.slice(-8);

const isEntry = (one) => typeof one?.text === "string" && typeof one.translation === "string" && one.when > 0;

const newSession = () => `${Date.now()}-${Math.random()}`;

/** Storage may be full or forbidden: then there is no history, and nothing else is lost. */
function stored(action) {
  try {
    return action();
  } catch {
    return null;
  }
}
