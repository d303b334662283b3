// Where the page is and what it shows there, as the address says: #/flow/A->B/topics?sort=-lag&q=orders.

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The place as {parts, query}. */
export function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").map(decoded), query: new URLSearchParams(query) };
}

/** The address of a place; of a view only what is not as usual is part of it. */
export function address(parts, view = {}) {
  const query = new URLSearchParams(Object.entries(view).filter(([, value]) => value)).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

export const flowAddress = (flow, tab = "", view = {}) => address(["flow", flow, ...(tab ? [tab] : [])], view);

/** Change the address without going anywhere; a step is one that the browser's Back undoes. */
export function put(wanted, isStep) {
  if (location.hash !== wanted) history[isStep ? "pushState" : "replaceState"](null, "", wanted);
}

/** Whether a text that is typed begins or ends a search: a step, where each letter is none. */
export const isStep = (before, after) => (before === "") !== (after === "");
