// The translation on the page: an element for each sentence, of which one is in the order of tabs; arrows reach the
// others. Text is only ever put in as text.

import { placeAt } from "./source_view.js";

export class TranslationView {
  #elements = new Map(); // unit -> { sentence, gap }
  #units = new WeakMap(); // element -> unit
  #stop = null; // the unit that Tab reaches

  constructor(box) {
    this.box = box;
  }

  replace(start, removed, added, units) {
    const next = units[start + added.length];
    const anchor = next ? this.#elements.get(next).sentence : null;
    for (const unit of removed) this.#drop(unit);
    const fragment = document.createDocumentFragment();
    for (const unit of added) fragment.append(...this.#make(unit));
    this.box.insertBefore(fragment, anchor);
    if (!this.#elements.has(this.#stop)) this.#tabTo(units.find(readable));
  }

  /** Shows what the unit now says. */
  refresh(unit) {
    const { sentence, gap } = this.#elements.get(unit);
    sentence.textContent = unit.waiting ? unit.shown : unit.translation;
    gap.data = unit.waiting ? "" : unit.space;
  }

  element(unit) {
    return this.#elements.get(unit)?.sentence;
  }

  unitOf(element) {
    return this.#units.get(element.closest?.(".sentence")) ?? null;
  }

  /** The text that lights shine on. */
  node(unit) {
    return this.element(unit)?.firstChild ?? null;
  }

  offsetAt(unit, x, y) {
    const place = placeAt(x, y);
    return place && place.node === this.node(unit) ? place.offset : -1;
  }

  focus(unit) {
    this.#tabTo(unit);
    this.element(unit)?.focus();
  }

  /** Focuses the next sentence that has words, or the one before. */
  step(units, from, by) {
    let index = units.indexOf(from) + by;
    while (units[index] && !readable(units[index])) index += by;
    if (units[index]) this.focus(units[index]);
  }

  #tabTo(unit) {
    if (this.#elements.has(this.#stop)) this.element(this.#stop).tabIndex = -1;
    this.#stop = unit ?? null;
    if (unit) this.element(unit).tabIndex = 0;
  }

  #make(unit) {
    const sentence = document.createElement("span");
    const gap = document.createTextNode("");
    this.#elements.set(unit, { sentence, gap });
    this.#units.set(sentence, unit);
    if (unit.waiting) {
      sentence.className = "waiting";
    } else if (readable(unit)) {
      sentence.className = "sentence";
      sentence.tabIndex = -1;
      sentence.setAttribute("role", "button");
      sentence.setAttribute("aria-haspopup", "listbox");
    }
    this.refresh(unit);
    return [sentence, gap];
  }

  #drop(unit) {
    const { sentence, gap } = this.#elements.get(unit);
    sentence.remove();
    gap.remove();
    this.#elements.delete(unit);
  }
}

/** Whether it is a sentence with a translation, not white space and not waiting. */
export const readable = (unit) => Boolean(unit.translation);
