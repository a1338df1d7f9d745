// What the page says about itself: faults, work under way, and a few words for screen readers.

const SHOW_WORK_AFTER = 350;
const SLOW_AFTER = 8000;

const element = (id) => document.getElementById(id);

/** A fault in a sentence, with a button if trying again makes sense. */
export class Notice {
  #retry = null;

  constructor() {
    this.box = element("notice");
    this.box.querySelector("button").addEventListener("click", () => this.#retry?.());
  }

  show(sentence, retry = null) {
    this.#retry = retry;
    const words = this.box.querySelector("p");
    if (words.textContent !== sentence) words.textContent = sentence; // the same again is not read out again
    this.box.querySelector("button").hidden = !retry;
    this.box.hidden = false;
  }

  clear() {
    this.box.hidden = true;
    this.box.querySelector("p").textContent = "";
  }
}

/** Shows that the server is at work, once that takes long enough to notice. */
export class Working {
  #timers = [];
  #total = 0;

  constructor() {
    this.line = element("progress");
    this.words = element("working");
    this.region = element("translation");
  }

  /** Work that is under way, with so many characters to go. */
  show(left) {
    this.#total = Math.max(this.#total, left);
    this.line.firstChild.style.transform = `scaleX(${this.#total ? 1 - left / this.#total : 0})`;
    if (this.#timers.length > 0) return;
    this.region.setAttribute("aria-busy", "true");
    this.#timers = [
      setTimeout(() => {
        this.line.hidden = false;
        this.words.textContent = "Translating";
      }, SHOW_WORK_AFTER),
      setTimeout(() => {
        this.words.textContent = "Still translating: the server is slow";
      }, SLOW_AFTER),
    ];
  }

  clear() {
    this.#timers.forEach(clearTimeout);
    this.#timers = [];
    this.#total = 0;
    this.region.removeAttribute("aria-busy");
    this.line.hidden = true;
    this.words.textContent = "";
  }
}

/** Says something to screen readers, politely. */
export function announce(sentence) {
  element("status").textContent = sentence;
}

/** A button's words are others for a moment. */
export function flash(button, words) {
  button.dataset.words ??= button.textContent;
  button.textContent = words;
  announce(words);
  clearTimeout(button.timer);
  button.timer = setTimeout(() => {
    button.textContent = button.dataset.words;
  }, 1600);
}
