// The text to translate: a real textarea, and under it a mirror of the same text, which gives the textarea its height
// and is what lights shine on.

export class SourceView {
  constructor(field, mirror) {
    this.field = field;
    this.mirror = mirror;
    this.node = document.createTextNode("");
    mirror.append(this.node);
    this.mirrored();
  }

  get text() {
    return this.field.value;
  }

  set text(text) {
    this.field.value = text;
    this.mirrored();
  }

  /** Brings the mirror up to date; the space at its end gives an empty last line its height. */
  mirrored() {
    this.node.data = `${this.field.value} `;
  }

  /** Which character is at a point of the screen; -1 if none is. */
  offsetAt(x, y) {
    const box = this.field.closest(".sheet");
    box.classList.add("probing"); // the mirror instead of the textarea that covers it
    const place = placeAt(x, y);
    box.classList.remove("probing");
    return place?.node === this.node ? place.offset : -1;
  }

  range(start, end) {
    return rangeIn(this.node, start, end);
  }
}

/** The text node and the character in it at a point of the screen. */
export function placeAt(x, y) {
  if (document.caretPositionFromPoint) {
    const place = document.caretPositionFromPoint(x, y);
    return place && { node: place.offsetNode, offset: place.offset };
  }
  const range = document.caretRangeFromPoint?.(x, y);
  return range && { node: range.startContainer, offset: range.startOffset };
}

export function rangeIn(node, start, end) {
  const range = document.createRange();
  range.setStart(node, Math.min(start, node.length));
  range.setEnd(node, Math.min(end, node.length));
  return range;
}
