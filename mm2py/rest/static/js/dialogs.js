// Dialogs, which stay open until their values are accepted, and short messages about the outcome of changes.

import { h, icon, setAttribute, setText } from "./dom.js";

const TOAST_MS = 7_000;

export function toast(text, mood = "good") {
  const close = h("button", { type: "button", class: "quiet", "aria-label": "Close", text: "×" });
  const node = h("div", { class: "toast", "data-mood": mood }, icon(mood === "bad" ? "bad" : "ok"), h("span", { text }), close);
  close.addEventListener("click", () => node.remove());
  document.getElementById("toasts").append(node);
  // Errors stay until they are closed.
  if (mood !== "bad") setTimeout(() => node.remove(), TOAST_MS);
}

/** Show that a change is under way; the result ends it. */
export function underWay(text) {
  const node = h("div", { class: "toast", "data-mood": "busy" }, h("span", { class: "spinner", "aria-hidden": "true" }), h("span", { class: "toast-text", text: `${text}…` }));
  document.getElementById("toasts").append(node);
  return () => node.remove();
}

/** A dialog; true once it is answered, null if it is cancelled. `send` makes the change, and returns why not, or "". */
function ask(title, content, yes, mood, { inputs = [], check = () => "", send = () => "" } = {}) {
  return new Promise((resolve) => {
    const said = h("p", { class: "bad-text", role: "alert", id: "dialog-problem", hidden: true });
    const dialog = h("dialog", { "aria-label": title });
    const yesButton = h("button", { type: "submit", class: `primary ${mood}`, text: yes });
    const no = h("button", { type: "button", text: "Cancel", on: { click: () => dialog.close("no") } });
    const say = (text, field) => {
      setText(said, text);
      said.hidden = !text;
      for (const input of inputs) {
        setAttribute(input, "aria-invalid", text && input === field ? "true" : null);
        setAttribute(input, "aria-describedby", text && input === field ? said.id : null);
      }
      if (text) field?.focus();
    };
    const submit = async (event) => {
      event.preventDefault();
      if (yesButton.getAttribute("aria-busy")) return;
      const wrong = inputs.find((input) => !input.checkValidity());
      const text = wrong ? invalid(wrong) : check();
      say(text, wrong ?? inputs[0]);
      if (text) return;
      yesButton.setAttribute("aria-busy", "true");
      const refusal = await send();
      yesButton.removeAttribute("aria-busy");
      if (refusal) say(refusal, inputs[0]);
      else dialog.close("yes");
    };
    dialog.append(h("form", { novalidate: true, on: { submit, input: () => say("") } }, h("h2", { text: title }), ...content, said, h("div", { class: "dialog-end" }, no, yesButton)));
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes" || null);
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
    inputs[0]?.focus();
  });
}

/** What is wrong with a field, in words that are those of no browser. */
function invalid(input) {
  const name = input.dataset.name;
  if (input.validity.valueMissing) return `${name}: enter a value.`;
  if (input.validity.badInput) return `${name}: this is not a number.`;
  if (input.validity.rangeUnderflow) return `${name}: at least ${input.min}.`;
  if (input.validity.stepMismatch) return `${name}: a whole number.`;
  return `${name}: ${input.validationMessage}`;
}

const field = (label, name, attributes) => h("input", { type: "text", name, "data-name": label, autocomplete: "off", spellcheck: "false", autocapitalize: "none", ...attributes });
const labelled = (input, ...beside) => h("label", { class: "field" }, h("span", { text: input.dataset.name }), beside.length ? h("span", { class: "pair" }, input, ...beside) : input);
const faint = (text) => h("p", { class: "faint", text });

/** Ask for a yes; true or null. */
export const confirm = (title, text, yes, mood = "") => ask(title, [h("p", { text })], yes, mood);

/** Ask for values and send them: `fields` are {name, label, and attributes of its input}; `send` takes {name: text}. */
export function askText(title, texts, fields, yes, { mood = "", send }) {
  const inputs = fields.map(({ label, name, ...attributes }) => field(label, name, attributes));
  const values = () => Object.fromEntries(inputs.map((input) => [input.name, input.value.trim()]));
  return ask(title, [...texts.map(faint), ...inputs.map((input) => labelled(input))], yes, mood, { inputs, send: () => send(values()) });
}

const UNITS = { "MB/s": 1e6, "kB/s": 1e3, "B/s": 1 };

/** Ask for a rate limit, and send {bytes_per_s, records_per_s}. Empty fields are no limit. */
export function askLimit(title, before, send) {
  const unit = h("select", { "aria-label": "Unit" }, ...Object.keys(UNITS).map((one) => h("option", { value: one, text: one })));
  const wasBytes = before?.bytes_per_s ?? null;
  unit.value = wasBytes === null || wasBytes >= 1e6 ? "MB/s" : wasBytes >= 1e3 ? "kB/s" : "B/s";
  const rate = (label, name, value) => field(label, name, { type: "number", min: "0", step: "any", inputmode: "decimal", value: value ?? "", placeholder: "no limit" });
  const bytes = rate("Bytes", "bytes", wasBytes === null ? null : wasBytes / UNITS[unit.value]);
  const records = rate("Records", "records", before?.records_per_s);
  const number = (input, size = 1) => (input.value.trim() === "" ? null : Number(input.value) * size);
  const isNone = (input) => number(input) === 0;
  return ask(title, [
    faint("Takes effect within seconds and stays in force until it is removed, also across restarts of the daemon. Leave a field empty for no limit."),
    labelled(bytes, unit), labelled(records, h("span", { class: "unit", text: "records/s" })),
  ], "Set", "", {
    inputs: [bytes, records],
    check: () => (isNone(bytes) || isNone(records) ? "A limit of 0 would copy nothing: leave the field empty for no limit, or pause instead." : ""),
    send: () => send({ bytes_per_s: number(bytes, UNITS[unit.value]), records_per_s: number(records) }),
  });
}

/** Ask the user for credentials, and send {token} or {name, password}. */
export function askWho(message, send) {
  const [name, password, token] = [
    field("Name", "name", { autocomplete: "username" }), field("Password", "password", { type: "password", autocomplete: "current-password" }), field("Token", "token", { type: "password" }),
  ];
  return ask("Log in", [
    h("p", { class: message ? "bad-text" : "faint", text: message || "This daemon requires a login." }),
    labelled(name), labelled(password), h("p", { class: "or", text: "or" }), labelled(token),
  ], "Log in", "", {
    inputs: [name, password, token],
    check: () => (token.value || name.value ? "" : "Enter a name and a password, or a token."),
    send: () => send(token.value ? { token: token.value.trim() } : { name: name.value, password: password.value }),
  });
}
