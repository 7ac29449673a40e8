"use strict";
// Checks a certificate as ckptlab/course/certificate does, by the same rules, with nothing but the browser. Read from the bottom:
// something arrives (link, file), unpack gives its JSON, parse reads it strictly, check judges it, show says so in words.

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const RULES = read("rules"), TEXTS = read("texts");
const MOST_BYTES = 65536, MOST_FILE_BYTES = 16777216;
const utf8 = new TextEncoder(), letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

class Refused extends Error {
  constructor(reason, values = {}, state = "invalid") { super(reason); Object.assign(this, { reason, values, state }); }
}

// --- strict JSON with texts, true and false only: no number has two readings, no member stands twice ---
function parse(text) {
  let at = 0;
  const token = /[ \t\n\r]*("(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|true|false|[{}[\],:])[ \t\n\r]*/y;
  const next = () => {
    token.lastIndex = at;
    const found = token.exec(text);
    if (!found) throw new Refused("json");
    at = token.lastIndex;
    return found[1];
  };
  const value = (first, depth) => {
    if (depth > 20) throw new Refused("json");
    if (first[0] === '"') return string(first);
    if (first === "true" || first === "false") return first === "true";
    if (first === "[") return list(depth);
    if (first === "{") return members(depth);
    throw new Refused("json");
  };
  const string = (quoted) => {
    const found = JSON.parse(quoted);
    if (/[\ud800-\udfff]/u.test(found)) throw new Refused("json"); // half a surrogate pair
    return found;
  };
  const list = (depth) => {
    const items = [];
    let word = next();
    if (word === "]") return items;
    for (;;) {
      items.push(value(word, depth + 1));
      word = next();
      if (word === "]") return items;
      if (word !== ",") throw new Refused("json");
      word = next();
    }
  };
  const members = (depth) => {
    const found = new Map();
    let word = next();
    if (word === "}") return found;
    for (;;) {
      if (word[0] !== '"') throw new Refused("json");
      const name = string(word);
      if (found.has(name) || next() !== ":") throw new Refused("json");
      found.set(name, value(next(), depth + 1));
      word = next();
      if (word === "}") return found;
      if (word !== ",") throw new Refused("json");
      word = next();
    }
  };
  const document = value(next(), 0);
  if (at !== text.length) throw new Refused("json");
  return document;
}

// The canonical form (RFC 8785) of what parse gives: members in the order of UTF-16, which is JavaScript's own.
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (!(value instanceof Map)) return JSON.stringify(value);
  return `{${[...value.keys()].sort().map((name) => `${JSON.stringify(name)}:${canonical(value.get(name))}`).join(",")}}`;
}

// The first place where a value has not the shape of shape.py; null when it has.
function misfit(value, shape, where = "") {
  let pairs;
  if (Array.isArray(shape)) {
    if (!Array.isArray(value) || value.length !== shape.length) return where;
    pairs = shape.map((part, index) => [value[index], part, `${where}.${index}`]);
  } else if (typeof shape === "object") {
    if (!(value instanceof Map)) return where || "the document";
    const bare = (name) => name.replace(/\?$/, "");
    const known = Object.keys(shape).map(bare), needed = Object.keys(shape).filter((name) => !name.endsWith("?"));
    const odd = [...value.keys()].filter((name) => !known.includes(name)).concat(needed.filter((name) => !value.has(name)));
    if (odd.length) return `${where}.${odd.sort()[0]}`;
    pairs = Object.entries(shape).map(([name, part]) => [value.get(bare(name)), part, `${where}.${bare(name)}`]);
    pairs = pairs.filter(([item]) => item !== undefined);
  } else if (typeof shape === "string" && shape.startsWith("^")) {
    return typeof value === "string" && new RegExp(shape, "u").test(value) ? null : where;
  } else {
    return value === shape ? null : where;
  }
  for (const [item, part, at] of pairs) {
    const found = misfit(item, part, at);
    if (found !== null) return found;
  }
  return null;
}

// Base 58, where only one text stands for the bytes; null for any other.
function fromBase58(text) {
  let number = 0n;
  for (const letter of text) {
    const digit = letters.indexOf(letter);
    if (digit < 0) return null;
    number = number * 58n + BigInt(digit);
  }
  const bytes = [];
  for (; number > 0n; number >>= 8n) bytes.unshift(Number(number & 255n));
  for (let index = 0; text[index] === "1"; index += 1) bytes.unshift(0);
  return Uint8Array.from(bytes);
}

const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
const sha256 = async (text) => new Uint8Array(await crypto.subtle.digest("SHA-256", utf8.encode(text)));
const without = (map, name) => new Map([...map].filter(([key]) => key !== name));

function publicKey(did) {
  const data = fromBase58(did.replace("did:key:z", ""));
  if (!data || data.length !== 34 || data[0] !== 0xed || data[1] !== 0x01) throw new Refused("key");
  const key = data.slice(2), plain = key.slice();
  plain[31] &= 0x7f;
  if (RULES.weak.includes(hex(plain))) throw new Refused("key"); // one signature would fit many documents
  return key;
}

// Whether the key that a document's proof names has signed it (eddsa-jcs-2022); who may sign what is asked in check.
async function isSigned(document) {
  const proof = document.get("proof"), [did, fragment] = proof.get("verificationMethod").split("#");
  const key = publicKey(did), signature = fromBase58(proof.get("proofValue").slice(1));
  if (did !== `did:key:${fragment}`) throw new Refused("key");
  const hashes = await Promise.all([without(proof, "proofValue"), without(document, "proof")].map((part) => sha256(canonical(part))));
  const message = new Uint8Array([...hashes[0], ...hashes[1]]);
  let imported;
  try {
    imported = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
  } catch (error) {
    if (error.name === "NotSupportedError") throw new Refused("browser", {}, "cannot");
    throw new Refused("key");
  }
  return signature.length === 64 && crypto.subtle.verify("Ed25519", imported, signature, message);
}

async function shortId(document) {
  const digest = await sha256(canonical(without(document, "proof")));
  const number = BigInt(`0x${hex(digest)}`) >> 156n; // the first 100 bits
  const found = Array.from({ length: 20 }, (_, index) => "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[Number((number >> BigInt(95 - 5 * index)) & 31n)]);
  return found.join("").replace(/(.{4})(?=.)/g, "$1-");
}

// Milliseconds of a time; a day that no month has is refused, where browsers take the 31st of February for a day in March.
function moment(text) {
  const found = Date.parse(text);
  if (Number.isNaN(found) || new Date(found).toISOString() !== text.replace("Z", ".000Z")) throw new Refused("shape", { place: text });
  return found;
}

// The verdict on a certificate's JSON: {state, reason, values, document, id}. `now` in milliseconds.
async function check(text, now = Date.now()) {
  try {
    if (!globalThis.crypto || !crypto.subtle) throw new Refused("insecure", {}, "cannot");
    if (utf8.encode(text).length > MOST_BYTES) throw new Refused("large");
    const document = parse(text), place = misfit(document, RULES.shape);
    if (place !== null) throw new Refused("shape", { place: place.replace(/^\./, "").slice(0, 80) });
    if (!(await isSigned(document))) throw new Refused("signature");
    const issuer = document.get("issuer"), until = document.get("validUntil");
    if (document.get("proof").get("verificationMethod").split("#")[0] !== issuer.get("id")) throw new Refused("issuer");
    const begins = moment(document.get("validFrom")), ends = until === undefined ? Infinity : moment(until);
    const fits = now <= ends && begins <= now + 600000; // two clocks may differ by ten minutes
    const state = !fits ? "expired" : issuer.get("name") === RULES.selfIssued ? "self" : "unknown";
    return { state, document, id: await shortId(document) };
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return { state: error.state, reason: error.reason, values: error.values };
  }
}

// --- from a link or a file to JSON ---
async function inflate(fragment) {
  if (!/^[0-9A-Za-z_-]+$/.test(fragment)) throw new Refused("none");
  const parts = [];
  let size = 0;
  try {
    const packed = Uint8Array.from(atob(fragment.replace(/-/g, "+").replace(/_/g, "/")), (letter) => letter.charCodeAt(0));
    const reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      size += part.value.length;
      if (size > MOST_BYTES) { reader.cancel(); throw new Refused("large"); }
      parts.push(part.value);
    }
  } catch (error) {
    throw error instanceof Refused ? error : new Refused("damaged");
  }
  return decode(new Uint8Array(await new Blob(parts).arrayBuffer()));
}

function decode(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Refused("json");
  }
}

const only = (found) => {
  if (found.length !== 1) throw new Refused(found.length ? "two" : "dropped");
  return found[0];
};

function crc32(bytes) {
  let crc = -1;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (0xedb88320 & -(crc & 1));
  }
  return ~crc >>> 0;
}

function pngTexts(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length), found = [], keyword = "openbadgecredential\0";
  const latin = (begin, end) => String.fromCharCode(...bytes.subarray(begin, end));
  for (let at = 8; at + 12 <= bytes.length; ) {
    const size = view.getUint32(at), begin = at + 8;
    if (begin + size + 4 > bytes.length || crc32(bytes.subarray(at + 4, begin + size)) !== view.getUint32(begin + size)) throw new Refused("damaged");
    if (latin(at + 4, begin) === "iTXt" && latin(begin, begin + 20) === keyword) {
      if (latin(begin + 20, begin + 24) !== "\0\0\0\0") throw new Refused("damaged");
      found.push(bytes.subarray(begin + 24, begin + size));
    }
    at = begin + size + 4;
  }
  return found;
}

// The certificates in an SVG. Where an opening has no closing behind it, no later one has: the search is over.
function svgTexts(bytes, text) {
  const opening = /<openbadges:credential\b[^<>]*>[ \t\r\n]*<!\[CDATA\[/g, closing = /\]\]>[ \t\r\n]*<\/openbadges:credential>/g, found = [];
  for (let begin; (begin = opening.exec(text)); opening.lastIndex = closing.lastIndex) {
    const from = (closing.lastIndex = opening.lastIndex), end = closing.exec(text);
    if (!end) break;
    found.push(bytes.subarray(from, end.index));
  }
  return found;
}

function unpack(bytes) {
  if (bytes.length > MOST_FILE_BYTES) throw new Refused("large");
  if (hex(bytes.subarray(0, 8)) === "89504e470d0a1a0a") return decode(only(pngTexts(bytes)));
  const text = new TextDecoder("latin1").decode(bytes); // a letter a byte, to search in
  if (/^\s*\{/.test(text)) return decode(bytes);
  const page = /^<!doctype html>[^]*<script type="application\/json" id="credential">([^<]+)<\/script>/.exec(text); // one like this
  const begin = page && page[0].lastIndexOf(page[1]);
  if (page) return decode(bytes.subarray(begin, begin + page[1].length));
  if (!text.includes("<svg")) throw new Refused("none");
  return decode(only(svgTexts(bytes, text)));
}

// --- what a person sees ---
let language = "en", last = { state: "waiting" };
const element = (id) => document.getElementById(id);

// A text in a language, or null where it has none; a value that depends on the language is a function of its code.
function text(name, values, code) {
  const found = TEXTS[code].texts[name];
  if (found === undefined) return null;
  return found.replace(/\{(\w+)\}/g, (whole, key) => (!(key in values) ? whole : typeof values[key] === "function" ? values[key](code) : values[key]));
}

// A text as languages.py tells it: in the language once it is reviewed, in English with a draft beside it, or in English alone.
// What stands within it, by the name `inner`, makes a draft of it too.
function say(name, values = {}, inner = name) {
  const own = text(name, values, language), english = { text: text(name, values, "en"), lang: "en" };
  if (own === null || language === "en") return english;
  return [name, inner].some((one) => TEXTS[language].drafts.includes(one)) ? { ...english, draft: own } : { text: own, lang: language };
}

const reason = (name, values) => (code) => text(`reason.${name}`, values, code) || text(`reason.${name}`, values, "en");
const day = (time) => (code) => { // by the language's own table: browsers know neither Igbo nor Somali
  const [y, month, d] = time.slice(0, 10).split("-").map(Number), parts = { y, d, MMMM: TEXTS[code].months.split("|")[month - 1] };
  return TEXTS[code].pattern.replace(/MMMM|d|y/g, (part) => parts[part]);
};

// Shows what was said, each language marked as such; or the certificate's own text, which is in nobody knows which.
function put(parent, said) {
  const own = typeof said === "string";
  parent.textContent = own ? said : said.text; // never as HTML: names and courses are strangers' texts
  parent.lang = own ? "" : said.lang;
  if (!own && said.draft) {
    const mark = parent.appendChild(document.createElement("span")), draft = document.createElement("span");
    mark.className = "draft";
    mark.textContent = `${text("draft", {}, "en")}: `;
    draft.lang = language;
    draft.textContent = said.draft;
    mark.append(draft);
  }
}

function add(parent, tag, said, kind = "") {
  const made = parent.appendChild(document.createElement(tag));
  put(made, said);
  made.className = kind;
}

function show(verdict) {
  last = verdict;
  Object.assign(document.querySelector("title"), { textContent: say("title").text, lang: say("title").lang });
  for (const labelled of document.querySelectorAll("[data-text]")) put(labelled, say(labelled.dataset.text));
  element("verdict").dataset.state = verdict.state;
  put(element("headline"), say(`${verdict.state}.headline`));
  put(element("why"), say(`${verdict.state}.why`, { reason: reason(verdict.reason, verdict.values || {}) }, `reason.${verdict.reason}`));
  element("about").hidden = !verdict.document;
  for (const id of ["facts", "not"]) element(id).replaceChildren();
  if (verdict.document) showFacts(verdict);
}

function showFacts({ document: certificate, id }) {
  const at = (place) => place.split(".").reduce((value, part) => (value instanceof Map ? value.get(part) : value && value[part]), certificate);
  const name = at("credentialSubject.identifier.0.identityHash"), own = at("issuer.name") === RULES.selfIssued;
  const achievement = at("credentialSubject.achievement"), until = at("validUntil");
  const rows = [
    ["name", name === undefined ? say("name.none") : name, "name"],
    ["course", say("course.version", { course: achievement.get("name"), version: achievement.get("version") })],
    ["result", say("result.percent", { percent: at("credentialSubject.result.0.value") })],
    ["rule", achievement.get("criteria").get("narrative")],
    ["when", say("when.issuer", { date: day(at("validFrom")) })],
    ...(until === undefined ? [] : [["until", { text: day(until)(language), lang: language }]]),
    ["evidence", at("evidence.0.narrative")],
    ["evidence.id", at("evidence.0.id"), "code"],
    ["issuer", own ? at("issuer.name") : say("issuer.called", { name: at("issuer.name") })],
    ["key", at("issuer.id"), "code"],
    ["id", id, "code"],
  ];
  for (const [label, said, kind] of rows) {
    add(element("facts"), "dt", say(label));
    add(element("facts"), "dd", said, kind);
  }
  put(element("trust"), say(own ? "trust.self" : "trust.unknown"));
  for (const name of ["who", "alone", "attempts", "revoked", "official"]) add(element("not"), "li", say(`not.${name}`));
  compare();
}

function compare() {
  const bare = (text) => text.toUpperCase().replace(/[\s-]/g, "").replace(/[IL]/g, "1").replace(/O/g, "0");
  const typed = bare(element("typed").value), id = last.id || "";
  if (typed === "" || id === "") { element("compared").textContent = ""; return; }
  const groups = [0, 1, 2, 3, 4].filter((group) => typed.slice(4 * group, 4 * group + 4) !== bare(id).slice(4 * group, 4 * group + 4));
  const answer = !/^[0-9A-HJKMNP-TV-Z]{20}$/.test(typed) ? "no.id" : !groups.length ? "same" : groups.length === 1 ? "typing" : "other";
  put(element("compared"), say(answer, { id, group: groups[0] + 1 }));
}

// Checks are shown in the order in which they were asked for, however long each takes.
let turn = 0;
async function judge(getText) {
  const mine = (turn += 1);
  show({ state: "working" });
  let verdict;
  try {
    verdict = await check(await getText());
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    verdict = { state: error.state, reason: error.reason, values: error.values };
  }
  if (mine === turn) show(verdict);
}

const judgeFile = (file) => judge(async () => {
  if (file.size > MOST_FILE_BYTES) throw new Refused("large");
  const data = await file.arrayBuffer().catch(() => { throw new Refused("damaged"); }); // a folder, a file that is gone
  return unpack(new Uint8Array(data));
});

function arrive() {
  const fragment = location.hash.slice(1), baked = element("credential").textContent.trim();
  if (fragment) judge(() => inflate(fragment));
  else if (baked) judge(async () => baked);
  else show({ state: "waiting" });
}

const names = Object.keys(TEXTS);
for (const name of names) {
  add(element("language"), "option", TEXTS[name].name);
  Object.assign(element("language").lastChild, { value: name, lang: name });
}
element("languages").hidden = names.length < 2;
language = names.find((name) => navigator.language.startsWith(name)) || "en";
element("language").value = language;
element("language").addEventListener("change", () => { language = element("language").value; show(last); });
element("file").addEventListener("change", () => { if (element("file").files.length) judgeFile(element("file").files[0]); });
element("typed").addEventListener("input", compare);
addEventListener("hashchange", arrive);
addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("over"); });
addEventListener("dragleave", () => document.body.classList.remove("over"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  if (event.dataTransfer.files.length) judgeFile(event.dataTransfer.files[0]);
});
arrive();
