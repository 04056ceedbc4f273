// Jobs that have ended, by user and time.

import { el, text } from "./dom.js";
import { count, local } from "./format.js";
import { ask } from "./api.js";
import { now } from "./store.js";
import { JobTable, order, matcher } from "./jobtable.js";

const most = 10000;

export function show(main, route) {
  const value = (name, otherwise) => route.query.get(name) ?? otherwise;
  const user = el("input", { type: "text", "aria-label": "User", placeholder: "user", value: value("user", ""), size: "10", autocomplete: "off" });
  const since = el("input", { type: "datetime-local", "aria-label": "From", value: value("from", local(now() - 86400)) });
  const until = el("input", { type: "datetime-local", "aria-label": "Until", value: value("to", "") });
  const filter = el("input", { type: "search", "aria-label": "Filter jobs", placeholder: "Filter  ( / )", value: value("q", ""), "data-filter": true, oninput: () => { remember(); draw(); } });
  const total = el("output", { class: "muted", "aria-live": "polite" });
  let sort = value("sort", "-job"), jobs = [], asked = null, ready = false;
  const list = new JobTable("Jobs that have ended", { sorted: column => { sort = sort === column ? "-" + column : column; remember(); draw(); }, where: "Where, and when it ended", empty: () => asked && !ready ? "…" : filter.value.trim() ? "No job here matches the filter." : "No job has ended in this time." });
  const form = el("form", { class: "tools", onsubmit: e => { e.preventDefault(); remember(); load(); } },
    user, el("label", {}, "from ", since), el("label", {}, "until ", until), el("button", { type: "submit" }, "Search"), filter, total);
  main.append(el("h1", { tabindex: "-1" }, "History"), form, list.element);

  function remember() { route.remember({ user: user.value.trim(), from: since.value, to: until.value, q: filter.value.trim(), sort }); }

  function draw() {
    const matches = matcher(filter.value);
    const shown = (matches ? jobs.filter(matches) : jobs.slice()).sort(order(sort));
    list.set(shown, sort);
    text(total, `${count(shown.length, "job")}${jobs.length >= most ? `, the first ${most.toLocaleString("en")}: choose a shorter time` : ""}`);
  }

  async function load() {
    asked?.abort();
    const stop = asked = new AbortController();
    const query = new URLSearchParams({ limit: "2000" }), seconds = field => String(Math.floor(new Date(field.value).getTime() / 1000));
    if (user.value.trim()) query.set("user", user.value.trim());
    if (since.value) query.set("since", seconds(since));
    if (until.value) query.set("until", seconds(until));
    jobs = [];
    ready = false;
    text(total, "…");
    try {
      for (;;) {
        const page = await ask(`/v1/history?${query}`, { signal: stop.signal });
        for (const j of page.jobs) jobs.push({ ...j, account: j.account || "", partition: j.partition || "", qos: j.qos || "", reason: j.reason || "", why: j.why || "", node_list: j.node_list || "", parts: undefined, devices: undefined });
        draw();
        if (!page.next || jobs.length >= most) break;
        query.set("after", page.next);
      }
      ready = true;
      draw();
    } catch (e) {
      if (!stop.signal.aborted) text(total, e.message);
    }
  }

  load();
  return { filter, focus: list.element, close() { asked?.abort(); list.close(); } };
}
