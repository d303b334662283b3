// A table that receives all of its rows each second and updates only what changed. Long ones are paged: thousands of
// rows cost no more than one page, and each row has the height that its text needs.

import { h, icon, setAttribute, setText } from "./dom.js";
import { NOTHING, plural } from "./format.js";
import { isStep } from "./place.js";

/** How long rows stay where they are although their values change: a row that jumps cannot be clicked. */
const SETTLED_MS = 3_000;

/**
 * Columns: {key, label, text(row), sort(row)?, numeric?, isWide?, mood(row)?, title(row)?, make(row)?, update(node, row)?}.
 * Those with `isWide` are left out where there is little room.
 * `make` returns the cell's own element, which `update` refreshes; without it the cell is `text`.
 * `detail` returns {node, update(row)} to show under an expanded row; `opens(row)` tells whether there is any.
 * `filters` are {name, label, options: [[value, text], …], accepts(row, value)}: one choice each. `bulk` are elements beside
 * them, for actions on all rows that match (`matching`). `onView(isStep)` is told when the user sorts, searches, filters or turns
 * a page; what is shown is `view`, which `restore` takes.
 */
export class Table {
  constructor({ name, caption, columns, key, sort, page = 50, empty, detail = null, opens = () => true, search = null, filters = [], bulk = [] }) {
    Object.assign(this, { name, columns, key, page, empty, detail, opens, search });
    this.usual = { key: sort[0], down: sort[1] === "down" };
    this.sorted = this.usual;
    this.onView = () => {};
    this.all = [];
    this.order = [];
    this.orderedAt = 0;
    this.at = 0;
    this.opened = new Set();
    this.kept = new Map();
    this.words = "";
    this.isHeld = false;
    this.filters = filters.map((filter) => ({ ...filter, select: this.choice(filter, caption) }));
    this.bulk = bulk;
    this.build(caption);
  }

  choice({ label, options }, caption) {
    const choose = () => this.turnTo(0);
    return h("select", { "aria-label": `${label} of ${caption.toLowerCase()}`, on: { change: choose } }, ...options.map(([value, text]) => h("option", { value, text })));
  }

  /** The rows that match the search and the filters, on all pages. */
  get matching() {
    return this.order;
  }

  build(caption) {
    this.heads = new Map();
    const head = h("tr", {}, ...this.columns.map((column) => this.head(column)));
    this.body = h("tbody");
    this.table = h("table", { class: `data ${this.name}` }, h("caption", { class: "unseen", text: caption }), h("thead", {}, head), this.body);
    this.box = h("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": caption }, this.table);
    this.box.addEventListener("pointerenter", () => { this.isHeld = true; });
    this.box.addEventListener("pointerleave", () => { this.isHeld = false; });
    this.said = h("p", { class: "empty" });
    this.count = h("span", { class: "count" });
    this.pages = h("span", { class: "pages" });
    this.before = h("button", { type: "button", text: "Back", on: { click: () => this.turn(-1) } });
    this.after = h("button", { type: "button", text: "Next", on: { click: () => this.turn(1) } });
    this.pager = h("div", { class: "pager" }, this.before, this.pages, this.after);
    this.node = h("div", { class: "table-whole" }, this.tools(caption), this.box, this.said, this.pager);
  }

  tools(caption) {
    const tools = h("div", { class: this.search ? "tools" : "tools plain" });
    if (this.search) {
      this.input = h("input", {
        type: "search", placeholder: this.search.label, "aria-keyshortcuts": "/", title: "Press / to search", "aria-label": `${this.search.label} in ${caption}`, autocomplete: "off", spellcheck: "false",
        on: { input: () => this.searchFor(this.input.value) },
      });
      tools.append(this.input);
    }
    tools.append(...this.filters.map((filter) => filter.select));
    // On a narrow screen rows are cards, without headers to click on.
    const sortable = this.columns.filter((column) => column.sort);
    this.select = h("select", { "aria-label": `Sort ${caption} by`, on: { change: () => this.sortBy(this.select.value, null) } },
      ...sortable.map((column) => h("option", { value: column.key, text: `Sort by ${column.label.toLowerCase()}` })));
    this.select.value = this.sorted.key;
    tools.append(h("span", { class: "narrow-only" }, this.select), ...this.bulk, this.count);
    return tools;
  }

  head(column) {
    const cell = h("th", { scope: "col", class: classOf(column) });
    if (column.sort) {
      const button = h("button", { type: "button", text: column.label, on: { click: () => this.sortBy(column.key, column) } });
      cell.append(button);
      this.heads.set(column.key, cell);
    } else cell.append(column.label ? column.label : h("span", { class: "unseen", text: "Actions" }));
    return cell;
  }

  sortBy(key, clicked) {
    const column = this.columns.find((one) => one.key === key);
    const down = clicked && this.sorted.key === key ? !this.sorted.down : Boolean(column.numeric);
    this.sorted = { key, down };
    this.select.value = key;
    this.turnTo(0);
  }

  searchFor(text) {
    const before = this.words;
    this.words = text.trim().toLowerCase();
    this.turnTo(0, isStep(before, this.words));
  }

  turn(by) {
    this.turnTo(this.at + by);
    this.box.scrollIntoView({ block: "nearest" });
  }

  turnTo(at, isOneStep = true) {
    this.at = at;
    this.draw(true);
    this.onView(isOneStep);
  }

  /** How it is shown, as {name: text}; empty texts where that is as usual. */
  get view() {
    const { key, down } = this.sorted;
    const isUsual = key === this.usual.key && down === this.usual.down;
    const chosen = this.filters.map(({ name, select }) => [name, select.value]);
    return { sort: isUsual ? "" : `${down ? "-" : ""}${key}`, q: this.words, ...Object.fromEntries(chosen), page: this.at ? String(this.at + 1) : "" };
  }

  /** Show it as *view*, URLSearchParams, says. */
  restore(view) {
    const [, sign, key] = /^(-?)(.*)$/.exec(view.get("sort") ?? "");
    const found = this.columns.some((column) => column.key === key && column.sort) ? { key, down: sign === "-" } : this.usual;
    this.sorted = found;
    this.select.value = found.key;
    const words = (this.search ? view.get("q") ?? "" : "").trim().toLowerCase();
    if (this.input && words !== this.words) this.input.value = words;
    this.words = words;
    for (const { name, select } of this.filters) {
      const wanted = view.get(name) ?? "";
      select.value = [...select.options].some((option) => option.value === wanted) ? wanted : "";
    }
    this.at = Math.max(0, (Number.parseInt(view.get("page") ?? "1", 10) || 1) - 1);
    if (this.all.length) this.draw(true);
  }

  update(rows) {
    this.all = rows;
    this.draw(false);
  }

  draw(isAsked) {
    this.arrange(isAsked);
    const last = Math.max(0, Math.ceil(this.order.length / this.page) - 1);
    this.at = Math.min(Math.max(0, this.at), last);
    const shown = this.order.slice(this.at * this.page, (this.at + 1) * this.page);
    this.place(shown);
    for (const [key, cell] of this.heads) {
      setAttribute(cell, "aria-sort", key === this.sorted.key ? (this.sorted.down ? "descending" : "ascending") : null);
    }
    const isEmpty = this.order.length === 0;
    this.box.hidden = isEmpty;
    this.said.hidden = !isEmpty;
    if (isEmpty) setText(this.said, this.all.length ? "Nothing matches." : typeof this.empty === "function" ? this.empty() : this.empty);
    setText(this.count, this.order.length === this.all.length ? plural(this.all.length, "row") : `${this.order.length} of ${plural(this.all.length, "row")}`);
    this.count.hidden = !this.search && last === 0;
    this.pager.hidden = last === 0;
    setText(this.pages, `Page ${this.at + 1} of ${last + 1}`);
    this.before.disabled = this.at === 0;
    this.after.disabled = this.at === last;
  }

  accepts(row) {
    if (this.words && !this.search.text(row).toLowerCase().includes(this.words)) return false;
    return this.filters.every(({ select, accepts }) => !select.value || accepts(row, select.value));
  }

  /** Choose and order rows: at once if the user asked for it, else when they have stood for a while. */
  arrange(isAsked) {
    const found = new Map();
    for (const row of this.all) if (this.accepts(row)) found.set(this.key(row), row);
    const isHeld = this.isHeld || this.box.contains(document.activeElement);
    const isDue = isAsked || (!isHeld && performance.now() - this.orderedAt > SETTLED_MS);
    if (!isDue && this.order.length) {
      const stay = this.order.map((row) => found.get(this.key(row))).filter(Boolean);
      const known = new Set(stay.map(this.key));
      this.order = [...stay, ...[...found.values()].filter((row) => !known.has(this.key(row)))];
      return;
    }
    this.orderedAt = performance.now();
    const { sort } = this.columns.find((column) => column.key === this.sorted.key);
    const sign = this.sorted.down ? -1 : 1;
    this.order = [...found.values()].map((row) => [sort(row), row]).sort((a, b) => compare(a[0], b[0], sign) || compare(this.key(a[1]), this.key(b[1]), 1)).map((pair) => pair[1]);
  }

  place(shown) {
    const wanted = [];
    for (const row of shown) {
      const kept = this.keep(row);
      wanted.push(kept.node);
      if (kept.under) wanted.push(kept.under.node);
    }
    const keys = new Set(shown.map(this.key));
    for (const [key, kept] of this.kept) {
      if (!keys.has(key)) {
        kept.node.remove();
        kept.under?.node.remove();
        this.kept.delete(key);
      }
    }
    let at = this.body.firstChild;
    for (const node of wanted) {
      if (node === at) at = at.nextSibling;
      else this.body.insertBefore(node, at);
    }
    while (at) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  }

  keep(row) {
    const key = this.key(row);
    let kept = this.kept.get(key);
    if (!kept) {
      kept = this.make(row);
      this.kept.set(key, kept);
    }
    kept.row = row;
    this.columns.forEach((column, at) => {
      const cell = kept.cells[at];
      if (column.update) column.update(cell.firstChild, row);
      else if (!column.make) {
        const text = column.text(row);
        setText(cell.firstChild, text);
        // Cards on a phone omit unknown values.
        if (at > 0) setAttribute(cell, "data-unknown", text === NOTHING);
      }
      if (column.mood) setAttribute(cell, "data-mood", column.mood(row));
      if (column.title) setAttribute(cell, "title", column.title(row));
    });
    this.unfold(kept, key, row);
    return kept;
  }

  make(row) {
    const cells = this.columns.map((column) => h("td", { class: classOf(column), "data-label": column.label },
      column.make ? column.make(row) : h("span")));
    const node = h("tr", {}, ...cells);
    const kept = { node, cells, row, under: null, button: null };
    if (this.detail) {
      kept.button = h("button", { type: "button", class: "opener", "aria-label": `Details of ${this.key(row)}`, on: { click: () => this.toggle(this.key(kept.row)) } }, icon("open", 14));
      cells[0].classList.add("opens");
      cells[0].append(kept.button);
      cells[0].prepend(cells[0].firstChild);
    }
    return kept;
  }

  toggle(key) {
    if (this.opened.has(key)) this.opened.delete(key);
    else this.opened.add(key);
    this.draw(false);
  }

  unfold(kept, key, row) {
    if (!this.detail) return;
    const canOpen = this.opens(row);
    const isOpen = canOpen && this.opened.has(key);
    kept.button.disabled = !canOpen;
    setAttribute(kept.button, "aria-expanded", String(isOpen));
    setAttribute(kept.node, "data-open", isOpen ? "yes" : null);
    if (isOpen && !kept.under) {
      const made = this.detail(row);
      kept.under = { ...made, node: h("tr", { class: "under" }, h("td", { colspan: this.columns.length }, made.node)) };
    } else if (!isOpen && kept.under) {
      kept.under.node.remove();
      kept.under = null;
    }
    kept.under?.update(row);
  }
}

const classOf = ({ numeric, isWide }) => [numeric && "number", isWide && "wide-only"].filter(Boolean).join(" ") || null;

/** Nothing comes last, whichever way the rest is sorted. */
function compare(a, b, sign) {
  const isNoA = a === null || a === undefined;
  const isNoB = b === null || b === undefined;
  if (isNoA || isNoB) return Number(isNoA) - Number(isNoB);
  if (typeof a === "string" || typeof b === "string") return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  return sign * (a - b);
}

/** A word with a sign: colour is never the only thing that tells states apart. */
export function pill({ word, sign, mood }) {
  return h("span", { class: "pill", "data-mood": mood }, icon(sign, 13), h("span", { text: word }));
}

export function setPill(node, { word, sign, mood }) {
  if (node.lastChild.textContent === word && node.dataset.mood === mood) return;
  node.replaceWith(pill({ word, sign, mood }));
}
