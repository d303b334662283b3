// Dialogs, and short messages about their outcome.

import { h, icon } from "./dom.js";

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

function open(dialog, resolve, read) {
  dialog.addEventListener("close", () => {
    resolve(dialog.returnValue === "yes" ? read() : null);
    dialog.remove();
  });
  document.body.append(dialog);
  dialog.showModal();
}

function frame(title, content, yes, mood) {
  const dialog = h("dialog", { "aria-label": title });
  const send = h("button", { type: "submit", class: `primary ${mood}`, text: yes });
  const no = h("button", { type: "button", text: "Cancel", on: { click: () => dialog.close("no") } });
  const form = h("form", { on: { submit: (event) => { event.preventDefault(); dialog.close("yes"); } } },
    h("h2", { text: title }), ...content, h("div", { class: "dialog-end" }, no, send));
  dialog.append(form);
  return { dialog, send };
}

/** Ask for a yes; true or null. */
export function confirm(title, text, yes, mood = "") {
  return new Promise((resolve) => {
    const { dialog } = frame(title, [h("p", { text })], yes, mood);
    open(dialog, resolve, () => true);
  });
}

/** Ask for texts; {name: text} or null. `fields` are {name, label, value, type}. */
export function askText(title, texts, fields, yes, mood = "") {
  return new Promise((resolve) => {
    const inputs = fields.map(({ name, value, type = "text" }) => h("input", { type, name, value, min: type === "number" ? "0" : null, autocomplete: "off", spellcheck: "false", autocapitalize: "none" }));
    const { dialog } = frame(title, [
      ...texts.map((text) => h("p", { class: "faint", text })),
      ...fields.map(({ label }, at) => h("label", { class: "field" }, h("span", { text: label }), inputs[at])),
    ], yes, mood);
    open(dialog, resolve, () => Object.fromEntries(inputs.map((input) => [input.name, input.value.trim()])));
    inputs[0].focus();
  });
}

const UNITS = { "MB/s": 1e6, "kB/s": 1e3, "B/s": 1 };

/** Ask for a rate limit; {bytes_per_s, records_per_s} or null. Empty fields are no limit. */
export function askLimit(title, before) {
  return new Promise((resolve) => {
    const unit = h("select", { "aria-label": "Unit" }, ...Object.keys(UNITS).map((one) => h("option", { value: one, text: one })));
    const wasBytes = before?.bytes_per_s ?? null;
    unit.value = wasBytes === null || wasBytes >= 1e6 ? "MB/s" : wasBytes >= 1e3 ? "kB/s" : "B/s";
    const field = (value, name) => h("input", { type: "number", min: "0", step: "any", inputmode: "decimal", name, value: value ?? "", placeholder: "no limit" });
    const bytes = field(wasBytes === null ? null : wasBytes / UNITS[unit.value], "bytes");
    const records = field(before?.records_per_s ?? null, "records");
    const number = (input) => (input.value.trim() === "" ? null : Number(input.value));
    const { dialog } = frame(title, [
      h("p", { class: "faint", text: "Takes effect within seconds and stays in force until it is removed, also across restarts of the daemon. Leave a field empty for no limit." }),
      h("label", { class: "field" }, h("span", { text: "Bytes" }), h("span", { class: "pair" }, bytes, unit)),
      h("label", { class: "field" }, h("span", { text: "Records" }), h("span", { class: "pair" }, records, h("span", { class: "unit", text: "records/s" }))),
    ], "Set", "");
    open(dialog, resolve, () => ({
      bytes_per_s: number(bytes) === null ? null : number(bytes) * UNITS[unit.value],
      records_per_s: number(records),
    }));
  });
}

/** Ask the user for credentials; {token} or {name, password}, null if the dialog is cancelled. */
export function askWho(message) {
  return new Promise((resolve) => {
    const input = (type, name, complete) => h("input", { type, name, autocomplete: complete, spellcheck: "false", autocapitalize: "none" });
    const [name, password, token] = [input("text", "name", "username"), input("password", "password", "current-password"), input("password", "token", "off")];
    const { dialog } = frame("Log in", [
      h("p", { class: message ? "bad-text" : "faint", role: message ? "alert" : null, text: message || "This daemon requires a login." }),
      h("label", { class: "field" }, h("span", { text: "Name" }), name),
      h("label", { class: "field" }, h("span", { text: "Password" }), password),
      h("p", { class: "or", text: "or" }),
      h("label", { class: "field" }, h("span", { text: "Token" }), token),
    ], "Log in", "");
    open(dialog, resolve, () => (token.value ? { token: token.value.trim() } : { name: name.value, password: password.value }));
  });
}
