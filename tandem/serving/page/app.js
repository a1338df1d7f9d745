// The page: puts its parts together and says which event leads to what.

import { Alternatives } from "./alternatives.js";
import { Refused, Unreachable, apiKey, health, settings } from "./api.js";
import { setUpColours, setUpDialogs } from "./chrome.js";
import { Files } from "./files.js";
import { History } from "./history.js";
import { Languages } from "./language_menu.js";
import { Lights } from "./lights.js";
import { Notice, Working, announce, flash } from "./notices.js";
import { characters, textOf, translationOf } from "./sentences.js";
import { SourceView } from "./source_view.js";
import { Translating } from "./translating.js";
import { TranslationView } from "./translation_view.js";
import { setUpReading } from "./reading.js";

// Long enough that a word is typed without a request for each letter, short enough to feel immediate.
const TYPING_PAUSE = 250;
// A text is history, and its translation worth a word to screen readers, when nobody types any more.
const REST = 2000;
const LONGEST_WAIT = 15000;
const KEY_STATUS = [400, 401, 403];

const element = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");

const source = new SourceView(element("source"), element("mirror"));
const view = new TranslationView(element("translation"));
const notice = new Notice();
const working = new Working();
const files = new Files({ read: opened, failed: (sentence) => notice.show(sentence) });
const history = new History(restored);
const languages = new Languages(changedPair, swapped);
const translating = new Translating({
  changed(start, removed, added) {
    lights.clear();
    if (removed.includes(alternatives.unit)) alternatives.close();
    view.replace(start, removed, added, translating.units);
    element("empty").hidden = source.text !== "";
  },
  updated: (unit) => view.refresh(unit),
  state: changedState,
});
const lights = new Lights(source, view, translating);
const alternatives = new Alternatives(element("alternatives"), view, {
  taken(unit, translation) {
    translating.choose(unit, translation);
    view.focus(unit);
    announce("Taken.");
  },
  failed: (error) => failed(error),
});

let limit = 0;
let pauseTimer = 0;
let restTimer = 0;
let retryTimer = 0;
let failures = 0;

// The text, and its translation.

source.field.addEventListener("input", (event) => {
  source.mirrored();
  lights.clear();
  alternatives.close();
  count();
  if (!source.text) history.begin();
  clearTimeout(restTimer);
  clearTimeout(pauseTimer);
  changedState("typing");
  const atOnce = !source.text || event.inputType?.startsWith("insertFrom");
  if (atOnce) update();
  else pauseTimer = setTimeout(update, TYPING_PAUSE);
});

/** Has the text translated, unless it is too long. */
function update() {
  clearTimeout(pauseTimer);
  clearTimeout(retryTimer);
  if (!translating.pair) return;
  const surplus = limit > 0 ? characters(source.text) - limit : 0;
  if (surplus > 0) {
    notice.show(
      `The text is ${number.format(surplus)} characters longer than the ${number.format(limit)} that this server ` +
        "takes. Shorten it, or translate a file with the command tandem translate.",
    );
    return;
  }
  notice.clear();
  translating.update(source.text);
}

function setText(text) {
  source.text = text;
  count();
  update();
}

function count() {
  const length = characters(source.text);
  const left = limit - length;
  element("count-number").textContent = number.format(limit > 0 ? left : length);
  element("count-left").hidden = limit === 0;
  element("count").classList.toggle("over", limit > 0 && left < 0);
  element("clear").hidden = length === 0;
  document.body.dataset.length = length < 240 ? "short" : length < 1500 ? "medium" : "long";
}

function changedState(state, error) {
  const complete = state === "done" && source.text.trim() !== "";
  element("copy").disabled = !complete;
  element("save").disabled = !complete;
  if (state === "typing") return;
  if (state === "working") {
    working.show(translating.waitingCharacters);
    return;
  }
  working.clear();
  if (state === "failed") {
    failed(error);
    return;
  }
  failures = 0;
  notice.clear();
  clearTimeout(restTimer);
  if (complete) restTimer = setTimeout(rested, REST);
}

function rested() {
  keep();
  if (document.activeElement === source.field) announce("Translation ready. Control Enter goes to it.");
}

/** Puts the text into the history, if its translation is whole. */
function keep() {
  const complete = textOf(translating.units) === source.text && !translating.waiting;
  if (complete) history.note(source.text, translationOf(translating.units), translating.pair);
}
addEventListener("pagehide", keep);

// Faults: said in a sentence, tried again where that may help; what was there stays.

function failed(error) {
  clearTimeout(retryTimer);
  if (error instanceof Unreachable) {
    const wait = Math.min(1000 * 2 ** failures, LONGEST_WAIT);
    failures += 1;
    notice.show("The server does not answer. Your text is kept, and the page keeps trying.", retry);
    retryTimer = setTimeout(retry, wait);
  } else if (error instanceof Refused) {
    if (KEY_STATUS.includes(error.status) && /key/i.test(error.message)) {
      askForKey();
      notice.show(error.status === 403 ? "This key is not one of the server's. Enter another above." : "Enter the API key above.");
      return;
    }
    notice.show(asSentence(error.message), retry);
    if (error.retryAfter > 0) retryTimer = setTimeout(retry, error.retryAfter * 1000);
  } else {
    notice.show(`The page made a mistake (${error}). Reload it; the text is in the history.`);
    throw error;
  }
}

/** The server's sentences begin without a capital, as clauses do that follow a program's name. */
const asSentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

async function retry() {
  clearTimeout(retryTimer);
  try {
    await health();
  } catch (error) {
    failed(error);
    return;
  }
  if (translating.pair) update();
  else begin();
}

function askForKey() {
  element("key").hidden = false;
  element("key-field").focus();
}

element("key").addEventListener("submit", (event) => {
  event.preventDefault();
  apiKey.set(element("key-field").value.trim());
  element("key-field").value = "";
  element("key").hidden = true;
  source.field.focus();
  retry();
});

// Languages, history, files, clipboard.

function changedPair(pair) {
  source.field.lang = pair.source;
  view.box.lang = pair.target;
  element("alternatives").lang = pair.target;
  element("model").textContent = languages.modelOf(pair);
  translating.use(pair);
  update();
}

/** The translation becomes the text, in the other direction. */
function swapped(pair) {
  keep();
  source.text = translationOf(translating.units);
  history.begin();
  count();
  changedPair(pair);
}

function restored(entry) {
  keep();
  source.text = entry.text;
  files.name = "";
  count();
  if (languages.choose(entry)) changedPair(languages.pair);
  else update();
  source.field.focus();
}

function opened(text) {
  keep();
  history.begin();
  setText(text);
  announce(`${files.name} opened.`);
}

element("clear").addEventListener("click", () => {
  keep();
  history.begin();
  files.name = "";
  setText("");
  source.field.focus();
});
element("save").addEventListener("click", () => files.save(translationOf(translating.units), translating.pair.target));
element("copy").addEventListener("click", copy);

async function copy() {
  const text = translationOf(translating.units);
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyByCommand(text); // no clipboard for pages without TLS on another machine
  }
  flash(element("copy"), "Copied");
}

function copyByCommand(text) {
  const field = document.createElement("textarea");
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
}

// The beginning.

async function begin() {
  try {
    const told = await settings();
    limit = told.charLimit > 0 ? told.charLimit : 0;
    await languages.load(told.models ?? []);
    if (told.keyRequired && !apiKey.get()) askForKey();
  } catch (error) {
    failed(error);
    return;
  }
  count();
  failures = 0;
  changedPair(languages.pair);
}

setUpColours();
setUpDialogs();
setUpReading({ source, view, translating, lights, alternatives, copy });
count();
begin();
