// A text as a list of units: sentences that are translated, and stretches that wait for it. What did not change when
// the text did keeps its translation. Knows nothing of the page.

/** A sentence and the white space after it. All units together make up the text. */
export class Unit {
  constructor(source, space, translation) {
    this.source = source;
    this.space = space;
    /** null while it waits. */
    this.translation = translation;
    /** What is shown until the translation comes: pieces of the one before. */
    this.stale = [];
    /** Translations that were chosen by hand, by their sentence. */
    this.chosen = new Map();
    /** Words that belong together, once somebody asked. */
    this.alignment = null;
  }

  get waiting() {
    return this.translation === null;
  }

  get raw() {
    return this.source + this.space;
  }

  /** What the page shows for it. */
  get shown() {
    return this.waiting ? this.stale.join("") : this.translation + this.space;
  }

  copy(space = this.space) {
    const unit = new Unit(this.source, space, this.translation);
    unit.chosen = new Map(this.chosen);
    return unit;
  }
}

export const textOf = (units) => units.map((unit) => unit.raw).join("");
export const translationOf = (units) => units.map((unit) => unit.shown).join("");
export const characters = (text) => text.length - (text.match(/[\ud800-\udbff][\udc00-\udfff]/g) ?? []).length;

/**
 * The units that a new text replaces, and those that stand for it: { start, removed, added }.
 * `memory` knows lines that were translated before.
 */
export function reconcile(units, text, memory) {
  const { start, end, from, to } = changedRange(units, textOf(units), text);
  const removed = units.slice(start, end);
  const middle = text.slice(from, to);
  const added = unitsOf(middle, memory);
  const waiting = added.filter((unit) => unit.waiting);
  if (waiting.length === 1) {
    waiting[0].stale = removed.flatMap((unit) => (unit.waiting ? unit.stale : [unit.shown]));
  }
  const chosen = new Map(removed.flatMap((unit) => [...unit.chosen]));
  for (const unit of waiting) unit.chosen = chosen;
  return { start, removed, added };
}

/**
 * The units [start, end) that a change touches, and the part [from, to) of the new text in their place. Where a
 * sentence ends also depends on the word before and the word after it: a neighbour of a change is touched, unless a
 * line ends between them.
 */
function changedRange(units, before, after) {
  const prefix = commonPrefix(before, after);
  const fixed = before.length - commonSuffix(before, after, prefix);
  let start = 0;
  let from = 0;
  while (start < units.length) {
    const next = from + units[start].raw.length;
    if (next > prefix || !(lineEnds(before, next, from) || wordAfter(before, next) <= prefix)) break;
    from = next;
    start += 1;
  }
  if (before.length === after.length && prefix === before.length) return { start: 0, end: 0, from: 0, to: 0 };
  let end = units.length;
  let to = before.length;
  while (end > start) {
    const previous = to - units[end - 1].raw.length;
    if (previous < fixed || !(lineEnds(before, previous, fixed) || wordBefore(before, previous) >= fixed)) break;
    to = previous;
    end -= 1;
  }
  return { start, end, from, to: to + after.length - before.length };
}

function commonPrefix(one, other) {
  const most = Math.min(one.length, other.length);
  let length = 0;
  while (length < most && one.charCodeAt(length) === other.charCodeAt(length)) length += 1;
  return length;
}

function commonSuffix(one, other, prefix) {
  const most = Math.min(one.length, other.length) - prefix;
  let length = 0;
  while (length < most && one.charCodeAt(one.length - 1 - length) === other.charCodeAt(other.length - 1 - length)) {
    length += 1;
  }
  return length;
}

const isSpace = (text, index) => /\s/.test(text.charAt(index));

/** Whether the white space that ends at `place` has a line's end in it, not before `from`. */
function lineEnds(text, place, from) {
  for (let index = place - 1; index >= from && isSpace(text, index); index -= 1) if (text[index] === "\n") return true;
  return false;
}

/** Where the word after `place` has certainly ended; beyond the text if it may still grow. */
function wordAfter(text, place) {
  let index = place;
  while (index < text.length && isSpace(text, index)) index += 1;
  while (index < text.length && !isSpace(text, index)) index += 1;
  return index + 1;
}

/** Where the word before `place` begins; before the text if it may still grow. */
function wordBefore(text, place) {
  let index = place;
  while (index > 0 && isSpace(text, index - 1)) index -= 1;
  while (index > 0 && !isSpace(text, index - 1)) index -= 1;
  return index - 1;
}

/** Whole sentences as units: lines that the memory knows are translated, others wait, neighbours together. */
function unitsOf(text, memory) {
  const units = [];
  let waiting = "";
  const flush = () => {
    if (waiting) units.push(waitingUnit(waiting));
    waiting = "";
  };
  for (const line of text.match(/[^\n]*\n|[^\n]+$/g) ?? []) {
    const end = line.endsWith("\n") ? "\n" : "";
    const known = memory.recall(line.slice(0, line.length - end.length), end);
    if (known) {
      flush();
      units.push(...known);
    } else {
      waiting += line;
    }
  }
  flush();
  return units;
}

const waitingUnit = (text) => (text.trim() ? new Unit(text, "", null) : new Unit("", text, ""));

/** The first part of a waiting text that is asked for in one request: whole lines, about so many characters. */
export function portion(text, most) {
  if (text.length <= most) return text;
  const cut = text.lastIndexOf("\n", most - 1);
  return cut > 0 ? text.slice(0, cut + 1) : firstLine(text, most);
}

function firstLine(text, most) {
  const end = text.indexOf("\n", most);
  return end < 0 ? text : text.slice(0, end + 1);
}

/** Lines of a language pair that were translated, by their text; the oldest are forgotten. */
export class Memory {
  constructor(most = 5000) {
    this.most = most;
    this.lines = new Map();
  }

  recall(line, end) {
    const known = this.lines.get(line);
    return known?.map((unit, index) => unit.copy(index === known.length - 1 ? unit.space + end : unit.space));
  }

  remember(units) {
    let line = [];
    for (const [index, unit] of units.entries()) {
      line.push(unit);
      const cut = unit.space.indexOf("\n");
      if (cut < 0 && index < units.length - 1) continue;
      if (!line.some((part) => part.waiting || part.source.includes("\n"))) this.#keep(line, cut);
      line = [];
    }
  }

  #keep(line, cut) {
    const last = line[line.length - 1];
    const kept = [...line.slice(0, -1), last.copy(cut < 0 ? last.space : last.space.slice(0, cut))];
    const text = textOf(kept);
    if (!text.trim()) return;
    this.lines.delete(text);
    this.lines.set(text, kept);
    if (this.lines.size > this.most) this.lines.delete(this.lines.keys().next().value);
  }
}
