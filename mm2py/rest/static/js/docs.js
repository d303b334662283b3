// What the daemon's documents say: a whole one, or what they say of one event. They come with the daemon.

import { send } from "./api.js";
import { h } from "./dom.js";
import { sentence } from "./format.js";
import { blocks, element } from "./markdown.js";

/** The pages for a night: what an event or an alert leads to. */
const DOCUMENTS = ["runbooks", "events", "faults", "recovering", "failing-over", "sizing", "deploying", "monitoring", "remote-topics"];
const texts = new Map();

async function read(name) {
  if (!texts.has(name)) {
    const response = await send(`static/docs/${name}.md`);
    if (!response.ok) throw new Error(`the daemon answered ${response.status}`);
    texts.set(name, await response.text());
  }
  return blocks(texts.get(name));
}

export const runbook = (event) => `#/docs/event/${encodeURIComponent(event)}`;

/** Links within a document and between those that are here; others than these and the web's lead nowhere. */
const lead = (name) => (target) => {
  if (/^https?:/.test(target)) return target;
  const [file, anchor = ""] = target.split("#");
  const other = file === "" ? name : file.replace(/\.md$/, "");
  return DOCUMENTS.includes(other) ? `#/docs/${other}/${encodeURIComponent(anchor)}` : null;
};

/** Sections, each a heading of the second level and what is below it. */
function sections(all) {
  const found = [];
  for (const block of all) {
    if (block.kind === "heading" && block.lines[0].startsWith("## ")) found.push([block]);
    else if (found.length) found[found.length - 1].push(block);
  }
  return found;
}

/** What both documents say of an event: its line in the table of all events, and the runbooks that name it. */
async function ofEvent(name) {
  const [books, events] = await Promise.all([read("runbooks"), read("events")]);
  const quoted = `\`${name}\``;
  const lines = events.filter((block) => block.kind === "table").flatMap((block) => block.lines).filter((line) => line.split("|")[1]?.includes(quoted));
  const said = lines.flatMap((line) => line.split(/(?<!\\)\|/).slice(2, -1)).map((text) => text.trim()).filter(Boolean)
    .map((text, at) => element({ kind: "text", lines: [at === 0 ? `**What happened.** ${text}` : `**What to do.** ${text}`] }, lead("events")));
  const title = `## mm2py${name.replaceAll("_", "")}`;
  const chosen = sections(books).filter(([head, ...rest]) => head.lines[0].toLowerCase() === title || rest.some((block) => block.lines.join(" ").includes(quoted)));
  return [
    h("h1", { text: sentence(name) }),
    h("section", { class: "card document" }, ...(said.length ? said : [h("p", { class: "faint", text: "The documents do not name this event." })])),
    ...chosen.map((section) => h("section", { class: "card document" }, h("p", { class: "faint", text: "Runbook" }), ...section.map((block) => element(block, lead("runbooks"))))),
    h("p", {}, h("a", { href: "#/docs/runbooks", text: "All runbooks" })),
  ];
}

export class Docs {
  constructor(name, place) {
    this.name = name;
    this.content = h("div", { class: "page" }, h("p", { class: "loading", text: "Loading…" }));
    this.node = h("div", { class: "page" }, h("p", { class: "crumbs" }, h("a", { href: "#/events", text: "All events" })), this.content);
    this.title = { word: "", mood: "", text: name === "event" ? sentence(place) : sentence(name.replaceAll("-", "_")) };
    this.show(place);
  }

  async show(place) {
    try {
      if (this.name === "event") this.content.replaceChildren(...await ofEvent(place));
      else this.content.replaceChildren(h("section", { class: "card document" }, ...(await read(this.name)).map((block) => element(block, lead(this.name)))));
    } catch (error) {
      this.content.replaceChildren(h("p", { class: "bad-text", text: `This cannot be shown: ${error.message}` }));
    }
    this.seek(place);
  }

  choose({ parts }) {
    this.seek(parts[2] ?? "");
  }

  seek(place) {
    if (this.name === "event" || !place) return;
    const found = [...this.content.querySelectorAll("[data-anchor]")].find((node) => node.dataset.anchor === place);
    found?.scrollIntoView();
    found?.focus({ preventScroll: true });
  }

  begin() {}

  end() {}

  update() {}

  repaint() {}
}

/** The name of a document that is here, else of the one with the runbooks. */
export const documentNamed = (name) => (name === "event" || DOCUMENTS.includes(name) ? name : DOCUMENTS[0]);
