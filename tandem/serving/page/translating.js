// Keeps the translation of a text up to date: asks for what is missing, one request at a time, and gives up those that
// are no longer wanted.

import { Unreachable, stream } from "./api.js";
import { Memory, Unit, portion, reconcile } from "./sentences.js";

// A request this long is answered soon, whatever the length of the text.
const MOST_CHARACTERS = 8000;

export class Translating {
  #memories = new Map();
  #current = null; // { unit, controller } of the request under way
  #stopped = false;

  /**
   * `changed(start, removed, added)`: units were replaced; `updated(unit)`: what one shows is another;
   * `state(name, error)`: "working", "done", or "failed" and why.
   */
  constructor({ changed, updated, state }) {
    this.units = [];
    this.pair = null;
    Object.assign(this, { changed, updated, state });
  }

  get waitingCharacters() {
    return this.units.reduce((sum, unit) => sum + (unit.waiting ? unit.source.length : 0), 0);
  }

  get waiting() {
    return this.units.some((unit) => unit.waiting);
  }

  /** Another pair of languages: everything is to be translated anew. */
  use(pair) {
    this.#splice({ start: 0, removed: this.units, added: [] });
    this.#current?.controller.abort();
    this.pair = pair;
  }

  /** Another text. */
  update(text) {
    this.#splice(reconcile(this.units, text, this.#memory));
    if (this.#current && !this.units.includes(this.#current.unit)) this.#current.controller.abort();
    this.resume();
  }

  /** Goes on with what waits; also after a failure. */
  async resume() {
    this.#stopped = false;
    if (this.#current) return;
    if (!this.waiting) {
      this.state("done");
      return;
    }
    this.state("working");
    await this.#work();
  }

  /** Another translation of a sentence, chosen by hand. */
  choose(unit, translation) {
    unit.translation = translation;
    unit.chosen = new Map([[unit.source, translation]]);
    unit.alignment = null;
    this.updated(unit);
    this.#memory.remember(this.units);
    this.state("done");
  }

  get #memory() {
    const name = `${this.pair.source} ${this.pair.target}`;
    if (!this.#memories.has(name)) this.#memories.set(name, new Memory());
    return this.#memories.get(name);
  }

  async #work() {
    let unit;
    while ((unit = this.units.find((one) => one.waiting)) && !this.#stopped) {
      const controller = new AbortController();
      this.#current = { unit, controller };
      try {
        await this.#translate(unit, controller.signal);
      } catch (error) {
        if (!controller.signal.aborted) {
          this.#stopped = true;
          this.state("failed", error);
        }
      } finally {
        this.#current = null;
      }
    }
    this.#memory.remember(this.units);
    if (!this.waiting) this.state("done");
  }

  /** Asks for the beginning of a waiting unit; each sentence that comes takes its place before the rest. */
  async #translate(unit, signal) {
    const text = portion(unit.source, MOST_CHARACTERS);
    const end = unit.source.length - text.length;
    for await (const sentences of stream(text, this.pair, signal)) {
      if (signal.aborted) return;
      this.#arrived(unit, sentences);
    }
    if (unit.source.length !== end) throw new Unreachable();
  }

  #arrived(unit, sentences) {
    const added = sentences.map(({ source, translation, space }) => {
      const length = source.length + space.length;
      const kept = unit.source.slice(0, source.length);
      const one = new Unit(kept, unit.source.slice(source.length, length), unit.chosen.get(kept) ?? translation);
      if (unit.chosen.has(kept)) one.chosen.set(kept, one.translation);
      unit.source = unit.source.slice(length);
      return one;
    });
    unit.stale = unit.source ? unit.stale.slice(sentences.length) : [];
    const start = this.units.indexOf(unit);
    if (unit.source) {
      this.#splice({ start, removed: [], added });
      this.updated(unit);
    } else {
      this.#splice({ start, removed: [unit], added });
    }
    this.state("working");
  }

  #splice({ start, removed, added }) {
    if (removed.length === 0 && added.length === 0) return;
    this.units = [...this.units.slice(0, start), ...added, ...this.units.slice(start + removed.length)];
    this.changed(start, removed, added);
  }
}
