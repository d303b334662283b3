// The daemon's own documents: as much of Markdown as they use, as elements, never as HTML.

import { h } from "./dom.js";

/** A heading's anchor, as code hosts make it. */
export const anchor = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}_\- ]/gu, "").replaceAll(" ", "-");

const STEP = /^\d+\. /;
const LISTS = ["list", "steps"];

const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*|\[([^\]]+)\]\(([^)]+)\)/g;

/** Text with code, emphasis and links. `lead` turns a link of the document into an address, or null. */
export function inline(text, lead) {
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(INLINE)) {
    if (match.index > at) parts.push(text.slice(at, match.index));
    const [whole, code, strong, weak, label, target] = match;
    if (code !== undefined) parts.push(h("code", { text: code }));
    else if (strong !== undefined) parts.push(h("strong", {}, ...inline(strong, lead)));
    else if (weak !== undefined) parts.push(h("em", {}, ...inline(weak, lead)));
    else {
      const href = lead(target);
      parts.push(href ? h("a", { href }, ...inline(label, lead)) : h("span", {}, ...inline(label, lead)));
    }
    at = match.index + whole.length;
  }
  if (at < text.length) parts.push(text.slice(at));
  return parts;
}

const cells = (line) => line.replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));

/** The blocks of a document: {kind, lines} for headings, tables, code, lists, numbered steps and paragraphs. */
export function blocks(text) {
  const found = [];
  let open = null;
  for (const line of text.split("\n")) {
    if (open?.kind === "code") {
      if (line.startsWith("```")) open = null;
      else open.lines.push(line);
      continue;
    }
    const kind = line.startsWith("```") ? "code" : line.startsWith("#") ? "heading" : line.startsWith("|") ? "table" : line.startsWith("- ") ? "list" : STEP.test(line) ? "steps" : "text";
    if (kind === "code") found.push(open = { kind, lines: [] });
    else if (line.trim() === "") open = null;
    else if (kind === "heading") {
      found.push({ kind, lines: [line] });
      open = null;
    } else if (open && (open.kind === kind || (kind === "text" && LISTS.includes(open.kind)))) {
      if (kind === "text" && LISTS.includes(open.kind)) open.lines.push(`${open.lines.pop()} ${line.trim()}`);
      else open.lines.push(line);
    } else found.push(open = { kind, lines: [line] });
  }
  return found;
}

function table(lines, lead) {
  const rows = lines.filter((line) => !/^\|[\s|:-]+\|$/.test(line)).map(cells);
  const row = (tag, values) => h("tr", {}, ...values.map((value) => h(tag, {}, ...inline(value, lead))));
  return h("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": "Table" },
    h("table", {}, h("thead", {}, row("th", rows[0])), h("tbody", {}, ...rows.slice(1).map((values) => row("td", values)))));
}

/** A block as an element. */
export function element({ kind, lines }, lead) {
  if (kind === "code") return h("pre", {}, h("code", { text: lines.join("\n") }));
  if (kind === "table") return table(lines, lead);
  if (kind === "list") return h("ul", {}, ...lines.map((line) => h("li", {}, ...inline(line.slice(2), lead))));
  if (kind === "steps") return h("ol", {}, ...lines.map((line) => h("li", {}, ...inline(line.replace(STEP, ""), lead))));
  if (kind === "text") return h("p", {}, ...inline(lines.join(" "), lead));
  const [, signs, title] = /^(#+) (.*)$/.exec(lines[0]) ?? [null, "##", lines[0]];
  return h(signs.length === 1 ? "h1" : signs.length === 2 ? "h2" : "h3", { "data-anchor": anchor(title), tabindex: "-1" }, ...inline(title, lead));
}
