// Requests to the server that this page came from, and what can go wrong with them.

/** The server said no, and why: a sentence for people. */
export class Refused extends Error {
  constructor(sentence, status = 0, retryAfter = 0) {
    super(sentence);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** Nobody answers, or the answer broke off. */
export class Unreachable extends Error {}

// A proxy's word for a server that is not there.
const GATEWAY = [502, 504];
const KEY = "tandem-api-key";

export const apiKey = {
  get: () => storage(() => sessionStorage.getItem(KEY)) ?? apiKey.held,
  set: (key) => {
    apiKey.held = key;
    storage(() => sessionStorage.setItem(KEY, key));
  },
  held: null,
};

function storage(action) {
  try {
    return action();
  } catch {
    return null;
  }
}

async function ask(path, body, signal) {
  const key = apiKey.get();
  const sent = body && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(key ? { ...body, api_key: key } : body),
  };
  let answer;
  try {
    answer = await fetch(path, { ...sent, signal, cache: "no-store" });
  } catch (error) {
    throw broken(error);
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => null);
  if (typeof told?.error !== "string" && GATEWAY.includes(answer.status)) throw new Unreachable();
  const wait = Number(answer.headers.get("Retry-After")) || 0;
  throw new Refused(told?.error ?? `The server answered with status ${answer.status}.`, answer.status, wait);
}

const broken = (error) => (error.name === "AbortError" ? error : new Unreachable());

async function json(path, body, signal) {
  const answer = await ask(path, body, signal);
  try {
    return await answer.json();
  } catch (error) {
    throw broken(error);
  }
}

export const settings = () => json("frontend/settings");
export const languages = () => json("languages");
export const health = () => json("health");
export const align = (sentence, pair) => json("align", { ...sentence, ...pair });

/** The best translations of a sentence, the first before the others. */
export async function alternatives(sentence, pair, count) {
  const told = await json("translate", { q: sentence, ...pair, format: "text", alternatives: count });
  return [told.translatedText, ...(told.alternatives ?? [])];
}

/** The sentences of a text with their translations, in order; as many at a time as have come. */
export async function* stream(text, pair, signal) {
  const answer = await ask("translate/stream", { q: text, ...pair }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value = "" } = await reader.read().catch((error) => {
      throw broken(error);
    });
    const lines = (rest + value).split("\n");
    rest = done ? "" : lines.pop();
    const told = lines.filter(Boolean).map(parsed);
    const fault = told.find((line) => "error" in line);
    const sentences = told.filter((line) => !("error" in line));
    if (sentences.length > 0) yield sentences;
    if (fault) throw new Refused(fault.error);
    if (done) return;
  }
}

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    throw new Unreachable(); // cut off in the middle of a line
  }
}
