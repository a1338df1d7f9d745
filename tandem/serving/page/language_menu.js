// Which languages the server translates, and the menus for them if there is a choice.

import { Refused, languages } from "./api.js";

const KEY = "tandem-pair";

export class Languages {
  #known = [];
  #models = [];

  /** `changed(pair)`: another was chosen; `swapped(pair)`: the same in the other direction. */
  constructor(changed, swapped) {
    this.pair = null;
    const [from, to] = ["source-language", "target-language"].map((id) => document.getElementById(id));
    Object.assign(this, { from, to });
    from.addEventListener("change", () => {
      const targets = this.#targets(from.value);
      const target = targets.includes(this.pair.target) ? this.pair.target : targets[0];
      this.#use({ source: from.value, target });
      changed(this.pair);
    });
    to.addEventListener("change", () => {
      this.#use({ source: this.pair.source, target: to.value });
      changed(this.pair);
    });
    document.getElementById("swap").addEventListener("click", () => {
      this.#use({ source: this.pair.target, target: this.pair.source });
      swapped(this.pair);
    });
  }

  async load(models) {
    this.#models = models;
    const told = await languages();
    this.#known = told.map((one) => ({ ...one, targets: one.targets.filter((code) => code !== one.code) }));
    const first = this.#known.find((one) => one.targets.length > 0);
    if (!first) throw new Refused("This server translates no languages.");
    const [source, target] = (keptPair() ?? "").split(" ");
    this.#use({ source: first.code, target: first.targets[0] });
    this.choose({ source, target });
  }

  /** Takes this pair if the server has it; says whether it is another than before. */
  choose({ source, target }) {
    const same = source === this.pair.source && target === this.pair.target;
    if (same || !this.#targets(source).includes(target)) return false;
    this.#use({ source, target });
    return true;
  }

  name(code) {
    return this.#known.find((one) => one.code === code)?.name ?? code;
  }

  /** A line about the model that translates a pair. */
  modelOf({ source, target }) {
    const model = this.#models.find((one) => one.source === source && one.target === target);
    if (!model) return "";
    return `Model ${model.name}, step ${new Intl.NumberFormat("en").format(model.step)}`;
  }

  #targets(code) {
    return this.#known.find((one) => one.code === code)?.targets ?? [];
  }

  #use(pair) {
    this.pair = pair;
    keepPair(pair);
    const [source, target] = [this.name(pair.source), this.name(pair.target)];
    document.title = `${source} to ${target} · Tandem`;
    document.getElementById("title").textContent = `${source} to ${target}`;
    const sources = this.#known.filter((one) => one.targets.length > 0).map((one) => one.code);
    this.#menu(this.from, sources, pair.source, "source-name", source);
    this.#menu(this.to, this.#targets(pair.source), pair.target, "target-name", target);
    document.getElementById("swap").hidden = !this.#targets(pair.target).includes(pair.source);
  }

  /** A menu where there is a choice, else a name. */
  #menu(menu, codes, code, label, name) {
    menu.hidden = codes.length < 2;
    const words = document.getElementById(label);
    words.textContent = name;
    words.classList.toggle("unseen", !menu.hidden);
    menu.replaceChildren(...codes.map((one) => new Option(this.name(one), one, false, one === code)));
  }
}

function keptPair() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function keepPair({ source, target }) {
  try {
    localStorage.setItem(KEY, `${source} ${target}`);
  } catch {
    // Storage is forbidden: the server's first pair the next time.
  }
}
