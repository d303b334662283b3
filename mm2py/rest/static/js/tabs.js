// Tabs, as the ARIA practices have them, each with a part of a page; the address says which one is shown, and how.

import { h, setAttribute, setText } from "./dom.js";
import { put } from "./place.js";

const STEPS = { ArrowRight: 1, ArrowLeft: -1 };

export class Tabs {
  /**
   * `parts` are {name: {nodes, label(line, flow), update(line, flow), shown?, isHidden?(flow), end?(), repaint?()}}, the usual
   * one first. What `shown` shows of itself (`view`, `restore`, `onView`) is in the address that `addressOf(name, view)` returns.
   */
  constructor(caption, parts, addressOf) {
    Object.assign(this, { parts, addressOf });
    [this.chosen] = Object.keys(parts);
    this.tabs = {};
    this.panels = {};
    for (const [name, { nodes, shown }] of Object.entries(parts)) {
      this.tabs[name] = h("a", { role: "tab", id: `tab-${name}`, "aria-controls": `panel-${name}`, href: addressOf(name) });
      this.panels[name] = h("div", { role: "tabpanel", id: `panel-${name}`, "aria-labelledby": `tab-${name}` }, ...nodes);
      if (shown) shown.onView = (isStep) => this.keep(name, isStep);
    }
    this.list = h("div", { role: "tablist", class: "tabs", "aria-label": caption, on: { keydown: (event) => this.move(event) } }, ...Object.values(this.tabs));
    this.node = h("div", { class: "panels" }, ...Object.values(this.panels));
  }

  get part() {
    return this.parts[this.chosen];
  }

  /** Write into the address what is shown now. */
  keep(name, isStep) {
    const wanted = this.addressOf(name, this.parts[name].shown.view);
    setAttribute(this.tabs[name], "href", wanted);
    if (name === this.chosen) put(wanted, isStep);
  }

  choose(name, query) {
    this.chosen = this.parts[name] ? name : Object.keys(this.parts)[0];
    const { shown } = this.part;
    shown?.restore(query);
    setAttribute(this.tabs[this.chosen], "href", this.addressOf(this.chosen, shown?.view));
    for (const [one, panel] of Object.entries(this.panels)) {
      const isChosen = one === this.chosen;
      panel.hidden = !isChosen;
      setAttribute(this.tabs[one], "aria-selected", String(isChosen));
      setAttribute(this.tabs[one], "tabindex", isChosen ? "0" : "-1");
    }
    this.isInSight = false;
  }

  move(event) {
    const names = Object.keys(this.tabs).filter((name) => !this.tabs[name].hidden);
    const at = event.key === "Home" ? 0 : event.key === "End" ? names.length - 1 : names.indexOf(this.chosen) + (STEPS[event.key] ?? NaN);
    if (Number.isNaN(at)) return;
    const next = this.tabs[names[(at + names.length) % names.length]];
    location.hash = next.getAttribute("href");
    next.focus();
    event.preventDefault();
  }

  update(line, flow) {
    for (const [name, part] of Object.entries(this.parts)) {
      setText(this.tabs[name], part.label(line, flow));
      this.tabs[name].hidden = name !== this.chosen && Boolean(part.isHidden?.(flow));
    }
    // On a phone the row of tabs is longer than the window.
    if (!this.isInSight) this.tabs[this.chosen].scrollIntoView({ block: "nearest", inline: "nearest" });
    this.isInSight = true;
    this.part.update(line, flow);
  }

  repaint() {
    for (const part of Object.values(this.parts)) part.repaint?.();
  }

  end() {
    for (const part of Object.values(this.parts)) part.end?.();
  }
}
