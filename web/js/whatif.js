// What other policies would have made of the head's own jobs.

import { el, fill, table, bar, note, confirm } from "./dom.js";
import { count, clock, duration, percent, span } from "./format.js";
import { ask } from "./api.js";
import { store, subscribe } from "./store.js";

const measures = [
  ["mean_wait_s", "Mean wait", span], ["median_wait_s", "Median wait", span], ["p95_wait_s", "95 % wait less than", span], ["mean_slowdown", "Mean slowdown", x => x.toFixed(2)],
  ["use", "GPU use", percent], ["core_use", "Core use", percent], ["makespan_s", "All done in", span], ["unfinished", "Unfinished", String],
];
const impossible = ["impossible", "Impossible", String];
const better = { use: -1, core_use: -1 }; // more of these is better

export function show(main, route) {
  main.classList.add("flow");
  const body = el("div", {}, el("p", {}, "…"));
  const button = el("button", { type: "button", hidden: true, onclick: start }, "Simulate now");
  main.append(el("h1", { tabindex: "-1" }, "What if"),
    el("p", {}, "The jobs that this cluster had, simulated under every policy. The first line of a table is what was measured; all others are simulated, that of the policy in force too."), el("div", { class: "buttons" }, button), body);
  let closed = false, timer, last = "";

  async function start() {
    if (!await confirm("Simulate the last day and week under every policy? A process of its own does it, at the lowest priority.", "Simulate")) return;
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
        fill(body, ...periods.map(p => period(p, open, answer.next_at)));
      }
    } catch (e) {
      if (closed) return;
      if (last === "") fill(body, el("p", {}, e.status === 404 ? "This head does not work out what other policies would have done." : e.message));
    }
    timer = setTimeout(load, wait);
  }

  function period(p, open, next) {
    const title = { day: "The last day", week: "The last week" }[p.name] || p.name;
    const section = el("section", {}, el("h2", {}, title));
    const going = p.running ? `being simulated, ${percent(p.progress || 0)} done` : "";
    if (p.made_at) section.append(el("p", { class: "muted" }, [`${count(p.jobs || 0, "job")}, ${clock(p.from_at)} to ${clock(p.to_at)}`, `simulated at ${clock(p.made_at)}`, going].filter(Boolean).join("; ")));
    else section.append(el("p", { class: "muted" }, going ? `Now ${going}.` : `Not simulated yet. ${next ? `The head does it at ${clock(next)}, and each night.` : "The head does it when an administrator asks for it."}`));
    if (p.error) section.append(el("p", { class: "wrong" }, p.error));
    if (!p.made_at || !p.measured) return section;
    const simulated = (p.policies || []).filter(x => !x.error && x.figures), inForce = simulated.find(x => x.in_force);
    // A policy that cannot run some jobs is not the better for their waits being left out: it
    // stands behind the others.
    const others = simulated.filter(x => x !== inForce).sort((a, b) => Math.sign(a.figures.impossible || 0) - Math.sign(b.figures.impossible || 0) || a.figures.mean_wait_s - b.figures.mean_wait_s);
    const rows = [{ policy: "measured", figures: p.measured }];
    // Policies that decide alike are one line.
    for (const x of [...(inForce ? [inForce] : []), ...others]) {
      const same = rows.slice(1).find(r => JSON.stringify([r.figures, r.users]) === JSON.stringify([x.figures, x.users]));
      if (same) same.same.push(x.policy);
      else rows.push(Object.assign(x, { same: [] }));
    }
    const shown = simulated.some(x => x.figures.impossible) ? [...measures, impossible] : measures;
    const top = Object.fromEntries(shown.map(([id]) => [id, Math.max(...rows.map(x => x.figures[id] || 0))]));
    if (inForce && p.prediction_error) section.append(accuracy(inForce.policy, p.prediction_error));
    section.append(table(`${title}, by policy`, ["Policy", ...shown.map(m => ">" + m[1])], rows.map((x, i) => [
      i === 0 ? el("b", {}, "measured") : el("span", { class: "policies" }, (x === inForce ? `${x.policy}, in force` : x.policy) + (x.same.length ? `; the same: ${x.same.join(", ")}` : "")),
      ...shown.map(([id, name, show]) => cell(show(x.figures[id] || 0), x.figures[id] || 0, top[id], i === 0 ? "was" : "plain", i === 0 || x === inForce ? "" : verdict(id, name, x, inForce?.figures || p.measured, p.prediction_error))),
    ])));
    for (const x of rows.slice(1)) if (x.figures.impossible) section.append(el("p", { class: "muted" }, `${[x.policy, ...x.same].join(", ")}: without the ${count(x.figures.impossible, "job")} that it could never start; its other figures cannot be compared.`));
    for (const text of p.notes || []) section.append(el("p", { class: "muted" }, text));
    for (const x of p.policies || []) if (x.error) section.append(el("p", { class: "wrong" }, `${x.policy}: ${x.error}`));
    for (const x of rows.slice(1)) if (x.users?.length) section.append(users(p, x, open));
    return section;
  }

  // accuracy says how far the simulation is from what happened.
  function accuracy(policy, e) {
    const off = e.mean_wait_s, wait = Math.abs(off) < 0.0005 ? "as measured" : `${span(Math.abs(off))} ${off > 0 ? "longer" : "shorter"} than measured`;
    return el("p", {}, `How far to believe it: in the simulation of ${policy} the mean wait is ${wait}, and ${percent(e.started_together)} of the jobs start within a second of when they did. Smaller differences mean nothing; larger ones are marked as better or worse than ${policy}, simulated.`);
  }

  // verdict is a word on whether a figure is better than that of the policy in force, and by
  // how much; none where the difference is within the error of the simulation.
  function verdict(id, name, x, base, error) {
    const value = x.figures[id] || 0, was = base[id] || 0, change = value - was;
    if (x.figures.impossible || Math.abs(change) <= Math.max(Math.abs(error?.[id] || 0), 0.01 * Math.abs(was))) return "";
    const word = change * (better[id] || 1) < 0 ? "better" : "worse";
    return was ? `${word}: ${name} by ${percent(Math.abs(change / was))}` : word;
  }

  // cell is a number with its bar.
  function cell(said, value, top, kind, verdict) {
    const word = verdict.split(":")[0];
    return el("span", { class: "figure", "data-word": word, title: verdict || undefined }, said, el("span", { class: "sr" }, word ? `, ${word}` : ""), bar(top ? value / top : 0, kind));
  }

  function users(p, x, open) {
    const key = `${p.name} ${x.policy}`, sorted = [...x.users].sort((a, b) => (a.mean_wait_s - a.mean_wait_measured_s) - (b.mean_wait_s - b.mean_wait_measured_s));
    return el("details", { "data-key": key, open: open.has(key) }, el("summary", {}, `Users under ${[x.policy, ...x.same].join(", ")}`), table(`Users under ${x.policy}`, ["User", ">Jobs", ">Mean wait", ">Measured", "Change"], sorted.slice(0, 500).map(u => {
      const change = u.mean_wait_s - u.mean_wait_measured_s;
      return [u.user, String(u.jobs), span(u.mean_wait_s), span(u.mean_wait_measured_s), Math.abs(change) < 1 ? "none" : `${duration(Math.abs(change))} ${change < 0 ? "less" : "more"}`];
    })), x.users_left_out ? el("p", { class: "muted" }, `and ${count(x.users_left_out, "user")} with few jobs`) : null);
  }

  load();
  const leave = subscribe(() => { button.hidden = last === "" || !store.cluster?.admin; });
  return { close() { closed = true; clearTimeout(timer); leave(); } };
}
