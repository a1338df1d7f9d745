// The list of other translations of a sentence: opened at the sentence, one of them takes its place.

import { alternatives } from "./api.js";

const COUNT = 4;

export class Alternatives {
  #unit = null;
  #list;

  /** `taken(unit, translation)`: one was chosen; `failed(error)`: there is no list. */
  constructor(list, view, { taken, failed }) {
    this.#list = list;
    Object.assign(this, { view, taken, failed });
    list.addEventListener("keydown", (event) => this.#pressed(event));
    list.addEventListener("click", (event) => this.#take(event.target.closest("[role=option]")));
    document.addEventListener("pointerdown", (event) => {
      if (!list.contains(event.target)) this.close();
    });
  }

  get unit() {
    return this.#unit;
  }

  async open(unit, pair) {
    this.close();
    this.#unit = unit;
    const element = this.view.element(unit);
    element.setAttribute("aria-expanded", "true");
    this.#fill([waitingRow()]);
    this.#place(element);
    let found;
    try {
      found = await alternatives(unit.source, pair, COUNT);
    } catch (error) {
      if (this.#unit !== unit) return;
      this.close();
      this.failed(error);
      return;
    }
    if (this.#unit !== unit) return;
    const different = [...new Set([unit.translation, ...found])];
    this.#fill(different.map((text) => optionRow(text, unit.translation)));
    this.#place(element);
    this.#list.firstChild.focus({ preventScroll: true });
    this.#list.scrollIntoView({ block: "nearest" });
  }

  close(refocus = false) {
    if (!this.#unit) return;
    const element = this.view.element(this.#unit);
    element?.removeAttribute("aria-expanded");
    this.#unit = null;
    this.#list.hidden = true;
    this.#list.replaceChildren();
    if (refocus) element?.focus();
  }

  #fill(rows) {
    this.#list.replaceChildren(...rows);
    this.#list.hidden = false;
  }

  /** Under the last line of the sentence. */
  #place(element) {
    const lines = element.getClientRects();
    const top = this.#list.offsetParent.getBoundingClientRect().top;
    this.#list.style.top = `${lines[lines.length - 1].bottom - top + 6}px`;
  }

  #pressed(event) {
    const rows = [...this.#list.querySelectorAll("[role=option]")];
    const here = rows.indexOf(document.activeElement);
    const to = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to !== undefined) rows[Math.max(0, Math.min(to, rows.length - 1))]?.focus();
    else if (event.key === "Enter" || event.key === " ") this.#take(rows[here]);
    else if (event.key === "Escape") this.close(true);
    else if (event.key === "Tab") this.close(true);
    else return;
    if (event.key !== "Tab") event.preventDefault();
    event.stopPropagation();
  }

  #take(row) {
    if (!row) return;
    const unit = this.#unit;
    this.close();
    this.taken(unit, row.textContent);
  }
}

function waitingRow() {
  const row = document.createElement("div");
  row.className = "asking";
  row.textContent = "Looking for other translations";
  return row;
}

/** A translation to choose, with the words that the present one does not have set apart. */
function optionRow(text, present) {
  const row = document.createElement("div");
  row.setAttribute("role", "option");
  row.setAttribute("aria-selected", String(text === present));
  row.tabIndex = -1;
  for (const [piece, differs] of compared(text, present)) {
    const part = document.createElement(differs ? "b" : "span");
    part.textContent = piece;
    row.append(part);
  }
  return row;
}

/** Pieces of a text, each with whether another text lacks it: by the longest common subsequence of their words. */
export function compared(text, other) {
  const [mine, theirs] = [text, other].map((one) => one.match(/\s+|[\p{L}\p{N}]+|./gsu) ?? []);
  const lengths = Array.from({ length: mine.length + 1 }, () => new Uint16Array(theirs.length + 1));
  for (let i = mine.length - 1; i >= 0; i -= 1) {
    for (let j = theirs.length - 1; j >= 0; j -= 1) {
      lengths[i][j] =
        mine[i] === theirs[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const pieces = [];
  let j = 0;
  for (let i = 0; i < mine.length; i += 1) {
    while (j < theirs.length && mine[i] !== theirs[j] && lengths[i][j + 1] >= lengths[i + 1][j]) j += 1;
    const same = j < theirs.length && mine[i] === theirs[j];
    if (same) j += 1;
    const last = pieces[pieces.length - 1];
    const differs = !same && mine[i].trim() !== "";
    if (last && last[1] === differs) last[0] += mine[i];
    else pieces.push([mine[i], differs]);
  }
  return pieces;
}
