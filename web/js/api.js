// Requests to the head, as the user who has signed in. The cookie goes with them by
// itself; the key lies where only pages of this very address find it.

const keyName = "muster-key";
let key = null;

function keep(value) {
  key = value;
  try {
    if (value === null) localStorage.removeItem(keyName);
    else localStorage.setItem(keyName, value);
  } catch { /* without storage the key lasts as long as the page */ }
}

function kept() {
  if (key === null) {
    try { key = localStorage.getItem(keyName); } catch { /* as above */ }
  }
  return key || "";
}

// Problem is why a request was not done; status 0 if nobody answered.
export class Problem extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// send sends a request and returns an answer that is good.
export async function send(path, { method = "GET", body, signal } = {}) {
  const headers = { "Muster-Page": kept() };
  if (method !== "GET") headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), credentials: "same-origin", cache: "no-store" });
  } catch (e) {
    if (signal?.aborted) throw e;
    throw new Problem(0, "the head does not answer");
  }
  if (answer.ok) return answer;
  let reason = `the head answers ${answer.status}`;
  try { reason = (await answer.json()).error || reason; } catch { /* no document */ }
  throw new Problem(answer.status, reason);
}

// ask sends a request and reads the document that answers it.
export async function ask(path, options) {
  const answer = await send(path, options);
  try {
    return await answer.json();
  } catch (e) {
    if (options?.signal?.aborted) throw e;
    throw new Problem(0, "the head's answer broke off");
  }
}

// signIn uses the one-time address that the page was opened with, if it was. Whoever
// reads over a shoulder, or in the browser's history, finds nothing that is still good.
export async function signIn() {
  const m = /^#ticket=([A-Za-z0-9]+)$/.exec(location.hash);
  if (!m) return;
  history.replaceState(null, "", location.pathname + "#/cluster");
  keep((await ask("/page/session", { method: "POST", body: { ticket: m[1] } })).key);
}

export async function signOut() {
  await ask("/page/session", { method: "DELETE" });
  keep(null);
}

// events reads server-sent events, and calls heard with the data of each, and alive when anything comes. It returns
// when the head ends them with a reason, and throws when they break off. Nothing for
// longer than a head is ever silent counts as broken.
const silence = 40000;

export async function events(signal, begun, heard, alive) {
  const stop = new AbortController();
  const end = () => stop.abort();
  signal.addEventListener("abort", end);
  let watch = setTimeout(end, silence);
  try {
    const answer = await send("/v1/events", { signal: stop.signal });
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    begun();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw new Problem(0, "the connection has ended");
      clearTimeout(watch);
      watch = setTimeout(end, silence);
      alive();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        let kind = "", data = "";
        for (const line of block.split("\n")) {
          if (line.startsWith("event: ")) kind = line.slice(7);
          else if (line.startsWith("data: ")) data += line.slice(6);
        }
        if (kind === "cut") throw new Problem(0, JSON.parse(data).error);
        if (data) heard(JSON.parse(data));
      }
    }
  } catch (e) {
    if (stop.signal.aborted && !signal.aborted) throw new Problem(0, "the head is silent");
    throw e;
  } finally {
    clearTimeout(watch);
    signal.removeEventListener("abort", end);
    stop.abort();
  }
}
