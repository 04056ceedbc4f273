// What other policies would have made of the head's own jobs.

import { el, fill, table, bar, note, confirm } from "./dom.js";
import { count, clock, duration, percent } from "./format.js";
import { ask } from "./api.js";
import { store, subscribe } from "./store.js";

const measures = [
  ["mean_wait", "Mean wait", duration], ["median_wait", "Median wait", duration], ["p95_wait", "95 % wait less than", duration], ["mean_slowdown", "Mean slowdown", x => x.toFixed(2)],
  ["use", "GPU use", percent], ["core_use", "Core use", percent], ["makespan", "All done in", duration], ["unfinished", "Unfinished", String],
];
const better = { use: -1, core_use: -1 }; // more of these is better

export function show(main, route) {
  main.classList.add("flow");
  const body = el("div", {}, el("p", {}, "…"));
  const button = el("button", { type: "button", hidden: true, onclick: start }, "Work it out now");
  main.append(el("h1", { tabindex: "-1" }, "What if"), el("p", {}, "The jobs that this cluster had, played again under every policy. The first line is what was measured."), el("div", { class: "buttons" }, button), body);
  let closed = false, timer, last = "";

  async function start() {
    if (!await confirm("Play the last day and week again under every policy? The head does it in the background, when it has nothing else to do.", "Work it out")) return;
    try {
      await ask("/v1/whatif", { method: "POST", body: {} });
      note("begun");
      load();
    } catch (e) { note(e.message, true); }
  }

  async function load() {
    clearTimeout(timer);
    let wait = 60000;
    try {
      const answer = await ask("/v1/whatif");
      if (closed) return;
      const periods = answer.periods || [];
      if (periods.some(p => p.running)) wait = 2000;
      button.hidden = !store.cluster?.admin;
      const stamp = JSON.stringify(answer);
      if (stamp !== last) {
        last = stamp;
        const open = new Set([...body.querySelectorAll("details[open]")].map(d => d.dataset.key));
        fill(body, ...(periods.length ? periods.map(p => period(p, open)) : [el("p", {}, "Nothing was worked out yet. The head does it each night.")]));
      }
    } catch (e) {
      if (closed) return;
      if (last === "") fill(body, el("p", {}, e.status === 404 ? "This head does not work out what other policies would have done." : e.message));
    }
    timer = setTimeout(load, wait);
  }

  function period(p, open) {
    const title = { day: "The last day", week: "The last week" }[p.name] || p.name;
    const section = el("section", {}, el("h2", {}, title), el("p", { class: "muted" },
      `${count(p.jobs || 0, "job")}, ${clock(p.from)} to ${clock(p.to)}` + (p.made_at ? `; worked out at ${clock(p.made_at)}` : "") + (p.running ? `; being worked out, ${percent(p.progress || 0)} done` : "")));
    if (p.error) section.append(el("p", { class: "wrong" }, p.error));
    if (!p.made_at || !p.measured) return section;
    const done = (p.policies || []).filter(x => !x.error && x.figures).sort((a, b) => a.figures.mean_wait - b.figures.mean_wait);
    const all = [{ policy: "measured", figures: p.measured }, ...done];
    const top = Object.fromEntries(measures.map(([id]) => [id, Math.max(...all.map(x => x.figures[id] || 0))]));
    section.append(table(`${title}, by policy`, ["Policy", ...measures.map(m => ">" + m[1])], all.map(x => [
      x.policy === "measured" ? el("b", {}, "as it was") : x.in_force ? `${x.policy} (in force)` : x.policy,
      ...measures.map(([id, name, show]) => cell(id, name, show, x.figures[id] || 0, p.measured[id] || 0, top[id], x.policy === "measured")),
    ])));
    for (const text of p.notes || []) section.append(el("p", { class: "muted" }, text));
    for (const x of p.policies || []) if (x.error) section.append(el("p", { class: "wrong" }, `${x.policy}: ${x.error}`));
    for (const x of done) if (x.users?.length) section.append(users(p, x, open));
    return section;
  }

  // cell is a number with its bar, and a word on whether it is better than what was.
  function cell(id, name, show, value, was, top, isMeasured) {
    const change = was ? (value - was) / was : 0, sign = better[id] || 1;
    const word = isMeasured || Math.abs(change) < 0.01 ? "" : change * sign < 0 ? "better" : "worse";
    return el("span", { class: "figure", "data-word": word, title: word ? `${name}: ${word} by ${percent(Math.abs(change))}` : undefined }, show(value), el("span", { class: "sr" }, word ? `, ${word}` : ""), bar(top ? value / top : 0, isMeasured ? "was" : "plain"));
  }

  function users(p, x, open) {
    const key = `${p.name} ${x.policy}`, sorted = [...x.users].sort((a, b) => (a.mean_wait - a.mean_wait_measured) - (b.mean_wait - b.mean_wait_measured));
    return el("details", { "data-key": key, open: open.has(key) }, el("summary", {}, `Users under ${x.policy}`), table(`Users under ${x.policy}`, ["User", ">Jobs", ">Mean wait", ">As it was", "Change"], sorted.slice(0, 500).map(u => {
      const change = u.mean_wait - u.mean_wait_measured;
      return [u.user, String(u.jobs), duration(u.mean_wait), duration(u.mean_wait_measured), Math.abs(change) < 1 ? "none" : `${duration(Math.abs(change))} ${change < 0 ? "less" : "more"}`];
    })));
  }

  load();
  const leave = subscribe(() => { button.hidden = last === "" || !store.cluster?.admin; });
  return { close() { closed = true; clearTimeout(timer); leave(); } };
}
