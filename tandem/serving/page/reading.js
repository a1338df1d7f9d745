// Pointer and keys over text and translation: lights, alternatives, the way from one to the other.

import { announce } from "./notices.js";
import { readable } from "./translation_view.js";

export function setUpReading(page) {
  setUpPointer(page);
  setUpCaret(page);
  setUpKeys(page);
}

/** Words light up under the pointer; a click on a sentence opens its alternatives. */
function setUpPointer({ source, view, translating, lights, alternatives }) {
  let frame = 0;
  const once = (action) => (event) => {
    cancelAnimationFrame(frame);
    if (event.pointerType !== "touch") frame = requestAnimationFrame(() => action(event));
  };
  const overText = (event) => lightSource(source, lights, source.offsetAt(event.clientX, event.clientY));
  source.field.addEventListener("pointermove", once(overText));
  view.box.addEventListener("pointermove", once((event) => lightTarget(view, lights, event)));
  for (const box of [source.field, view.box]) {
    box.addEventListener("pointerleave", () => {
      cancelAnimationFrame(frame);
      if (!alternatives.unit) lights.clear();
    });
  }
  view.box.addEventListener("click", (event) => {
    const unit = view.unitOf(event.target);
    if (!unit || !readable(unit) || !getSelection().isCollapsed) return;
    lightTarget(view, lights, event);
    view.focus(unit);
    alternatives.open(unit, translating.pair);
  });
}

function lightSource(source, lights, offset) {
  const place = offset < 0 ? null : lights.unitAt(offset);
  if (place && readable(place.unit)) lights.show(place.unit, "source", offset - place.start);
  else lights.clear();
}

function lightTarget(view, lights, event) {
  const unit = view.unitOf(event.target);
  if (unit) lights.show(unit, "target", view.offsetAt(unit, event.clientX, event.clientY));
  else lights.clear();
}

/** The word at the caret lights up when the caret is moved, not while somebody types. */
function setUpCaret({ source, lights, translating }) {
  document.addEventListener("selectionchange", () => {
    const { field } = source;
    if (document.activeElement !== field || field.selectionStart !== field.selectionEnd) return;
    const current = translating.units.reduce((sum, unit) => sum + unit.raw.length, 0) === source.text.length;
    if (current && !translating.waiting) lightSource(source, lights, field.selectionStart);
  });
  source.field.addEventListener("blur", () => lights.clear());
}

function setUpKeys({ source, view, translating, lights, alternatives, copy }) {
  const words = new WordCursor(lights);
  source.field.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const place = lights.unitAt(source.field.selectionStart);
    const unit = place && readable(place.unit) ? place.unit : translating.units.findLast(readable);
    if (unit) view.focus(unit);
  });
  view.box.addEventListener("focusin", (event) => {
    const unit = view.unitOf(event.target);
    if (unit && event.target.matches(":focus-visible")) words.begin(unit);
  });
  view.box.addEventListener("focusout", () => {
    if (!alternatives.unit) lights.clear();
  });
  view.box.addEventListener("keydown", (event) => {
    const unit = view.unitOf(event.target);
    if (!unit || event.ctrlKey || event.metaKey || event.altKey) return;
    const actions = {
      ArrowDown: () => view.step(translating.units, unit, 1),
      ArrowUp: () => view.step(translating.units, unit, -1),
      ArrowRight: () => words.move(unit, 1),
      ArrowLeft: () => words.move(unit, -1),
      Enter: () => alternatives.open(unit, translating.pair),
      " ": () => alternatives.open(unit, translating.pair),
      Escape: () => source.field.focus(),
      c: copy,
    };
    if (!(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  });
}

/** Goes through the words of a sentence in the translation, and says which words belong to each. */
class WordCursor {
  #unit = null;
  #index = -1;

  constructor(lights) {
    this.lights = lights;
  }

  begin(unit) {
    this.#unit = unit;
    this.#index = -1;
    this.lights.show(unit, "target", -1);
  }

  async move(unit, by) {
    if (unit !== this.#unit) this.begin(unit);
    const alignment = await this.lights.alignment(unit);
    if (!alignment || unit !== this.#unit) return;
    const last = alignment.target.length - 1;
    this.#index = Math.max(0, Math.min(this.#index + by, last));
    const lit = await this.lights.show(unit, "target", alignment.target[this.#index][0]);
    if (!lit) return;
    const here = text(unit.translation, lit.target);
    announce(lit.source.length > 0 ? `${here}: ${text(unit.source, lit.source)}` : `${here}: no counterpart`);
  }
}

const text = (whole, ranges) => ranges.map(([start, end]) => whole.slice(start, end)).join(" ");
