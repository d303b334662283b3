// The REST client, with the user's credentials.

const base = new URL(".", location.href.split("#")[0]);
const KEY = "mm2py-authorization";

let authorization = null;
try {
  authorization = sessionStorage.getItem(KEY);
} catch { /* storage may be off: a reload asks again */ }

export class Refused extends Error {
  constructor(status, message, problems = []) {
    super(message);
    this.status = status;
    this.problems = problems;
  }
}

export function setAuthorization(header) {
  authorization = header;
  try {
    if (header) sessionStorage.setItem(KEY, header);
    else sessionStorage.removeItem(KEY);
  } catch { /* see above */ }
}

export const hasAuthorization = () => authorization !== null;
export const bearer = (token) => `Bearer ${token}`;

export function basic(name, password) {
  const utf8 = new TextEncoder().encode(`${name}:${password}`);
  return `Basic ${btoa(String.fromCharCode(...utf8))}`;
}

export function flowPath(flow, ...rest) {
  // A further source connector of a pair is written A->B (NAME).
  const [, source, target, connector] = /^(.+?)->(.+?)(?: \((.+)\))?$/s.exec(flow).map((part) => encodeURIComponent(part ?? ""));
  const parts = [`from:${source}`, connector ? `to:${target};connector=${connector}` : `to:${target}`];
  return [...parts, ...rest.map(encodeURIComponent)].join("/");
}

/** Fetch with our credentials. What we send ourselves is never mixed with what the browser remembers. */
export function send(path, options = {}) {
  const headers = { "X-Requested-With": "mm2py", ...options.headers };
  if (authorization) headers.Authorization = authorization;
  // With the dot, what looks like a scheme (from:A) stays a path.
  return fetch(new URL(`./${path}`, base), {
    cache: "no-store",
    redirect: "error",
    ...options,
    headers,
    credentials: authorization ? "omit" : "same-origin",
  });
}

/** Ask for JSON. Throws Refused with the daemon's own words, or what the network said. */
export async function ask(method, path, body) {
  const options = { method, headers: { Accept: "application/json" } };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["Content-Type"] = "application/json";
  }
  let response;
  try {
    response = await send(path, { ...options, signal: AbortSignal.timeout(60_000) });
  } catch (error) {
    throw new Refused(0, error.name === "TimeoutError" ? "the daemon did not respond in time" : "the daemon cannot be reached");
  }
  return read(response);
}

export async function read(response) {
  const text = await response.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch { /* an error page of a proxy, perhaps */ }
  if (response.ok) return value;
  const message = value?.message ?? `the daemon answered ${response.status} ${response.statusText}`.trim();
  throw new Refused(response.status, message, value?.problems ?? []);
}
