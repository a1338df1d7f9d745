// Lights up the words of text and translation that belong together. The browser paints ranges of text
// (CSS.highlights): neither the textarea nor the sentences change for it.

import { align } from "./api.js";
import { rangeIn } from "./source_view.js";
import { readable } from "./translation_view.js";

// A pointer that only passes asks the server for nothing.
const PAUSE = 70;
const able = "highlights" in CSS;

export class Lights {
  #shown = null; // { unit, side, offset } that is lit
  #timer = 0;

  constructor(source, view, translating) {
    Object.assign(this, { source, view, translating });
  }

  /** Lights the words at a place of a unit: an offset in its sentence ("source") or translation ("target"). */
  async show(unit, side, offset) {
    if (!able || !readable(unit)) return null;
    const place = { unit, side, offset };
    this.#shown = place;
    clearTimeout(this.#timer);
    this.#paint("sentence", unit, whole(unit));
    if (!unit.alignment) {
      this.#paint("words", unit, { source: [], target: [] });
      await new Promise((resolve) => {
        this.#timer = setTimeout(resolve, PAUSE);
      });
      if (this.#shown !== place) return null;
    }
    const alignment = await this.alignment(unit);
    if (this.#shown !== place || !alignment) return null;
    const words = counterparts(alignment, side, offset);
    this.#paint("words", unit, words);
    return words;
  }

  /** Asks once for a sentence; without an answer there are no lights, and nothing else is lost. */
  alignment(unit) {
    unit.alignment ??= align({ q: unit.source, translation: unit.translation }, this.translating.pair).catch(() => {
      unit.alignment = null;
      return null;
    });
    return unit.alignment;
  }

  clear() {
    if (!this.#shown) return;
    this.#shown = null;
    clearTimeout(this.#timer);
    CSS.highlights.delete("sentence");
    CSS.highlights.delete("words");
  }

  /** The unit around a character of the text, and where it begins. */
  unitAt(offset) {
    let start = 0;
    for (const unit of this.translating.units) {
      if (offset < start + unit.raw.length || (offset === start + unit.source.length && unit.source)) {
        return { unit, start };
      }
      start += unit.raw.length;
    }
    return null;
  }

  #start(unit) {
    let start = 0;
    for (const one of this.translating.units) {
      if (one === unit) return start;
      start += one.raw.length;
    }
    return -1;
  }

  #paint(name, unit, { source, target }) {
    const start = this.#start(unit);
    const node = this.view.node(unit);
    if (start < 0 || !node) return;
    const ranges = [
      ...source.map(([from, to]) => this.source.range(start + from, start + to)),
      ...target.map(([from, to]) => rangeIn(node, from, to)),
    ];
    const light = new Highlight(...ranges);
    light.priority = name === "words" ? 1 : 0;
    CSS.highlights.set(name, light);
  }
}

const whole = (unit) => ({ source: [[0, unit.source.length]], target: [[0, unit.translation.length]] });

/** The word at an offset of one side with the words of the other that are linked to it; empty between words. */
export function counterparts(alignment, side, offset) {
  const other = side === "source" ? "target" : "source";
  const here = alignment[side].findIndex(([start, end]) => start <= offset && offset < end);
  if (here < 0) return { source: [], target: [] };
  const linked = alignment.links
    .map(([i, j]) => (side === "source" ? [i, j] : [j, i]))
    .filter(([from]) => from === here)
    .map(([, to]) => alignment[other][to]);
  return { [side]: [alignment[side][here]], [other]: linked };
}
