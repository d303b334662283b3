// Creating elements. Text is only ever set as text: names and errors come from Kafka, and may contain anything.

const SVG = "http://www.w3.org/2000/svg";

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    else if (name === "class") node.setAttribute("class", value);
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Set a node's text where it is another one, so that selections and screen readers are left in peace. */
export function setText(node, text) {
  const wanted = String(text ?? "");
  if (node.textContent !== wanted) node.textContent = wanted;
}

export function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) {
    if (node.hasAttribute(name)) node.removeAttribute(name);
  } else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

const ICONS = {
  run: "M8 5.5v13l10-6.5z",
  pause: "M8 5.5v13M16 5.5v13",
  stop: "M7 7h10v10H7z",
  restart: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4.5h-4.5",
  bad: "M12 4 3 19.5h18zM12 10v4.5M12 17.2v.1",
  ok: "M5 12.5l4.5 4.5L19 7.5",
  wait: "M12 7v5l3.5 2M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17z",
  drain: "M12 4v12M6.5 11 12 16.5 17.5 11M5 20h14",
  limit: "M4.5 17a8 8 0 1 1 15 0M12 14.5l4-5",
  open: "M9 6l6 6-6 6",
  light: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4",
  dark: "M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z",
  auto: "M12 3.5a8.5 8.5 0 1 0 0 17zM12 3.5a8.5 8.5 0 0 1 0 17",
  none: "M5 12h14",
};

export function icon(name, size = 16) {
  const path = s("path", { d: ICONS[name] ?? ICONS.none });
  return s("svg", { viewBox: "0 0 24 24", width: size, height: size, class: `icon icon-${name}`, "aria-hidden": "true" }, path);
}

export function setIcon(node, name) {
  const path = node.querySelector("path");
  setAttribute(path, "d", ICONS[name] ?? ICONS.none);
  setAttribute(node, "class", `icon icon-${name}`);
}
