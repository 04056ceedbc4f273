// The queue: jobs that wait, with what for, and those that run.

import { el, text } from "./dom.js";
import { count } from "./format.js";
import { ask } from "./api.js";
import { store, subscribe, told, isOver, isActive } from "./store.js";
import { JobTable, order, matcher } from "./jobtable.js";

const sets = [
  ["", "Not ended", j => !isOver(j)], ["waiting", "Waiting", j => !isOver(j) && !isActive(j)], ["running", "Running", isActive], ["ended", "Ended lately", isOver], ["mine", "Mine", j => j.user === store.cluster?.user],
];

// What the policy says of a job is asked for when the job is in sight, and again after a
// while; jobs that are not shown cost nothing.
const again = 10000, most = 60;

export function show(main, route) {
  let drawn = 0, timer, asking = false;
  const filter = el("input", { type: "search", "aria-label": "Filter jobs", placeholder: "Filter: user, name, node, reason  ( / )", value: route.query.get("q") || "", "data-filter": true, oninput: change });
  const choice = el("select", { "aria-label": "Which jobs", onchange: change }, ...sets.map(([id, title]) => el("option", { value: id, selected: id === (route.query.get("show") || "") }, title)));
  const total = el("output", { class: "muted", "aria-live": "polite" });
  let sort = route.query.get("sort") || "";
  const jobs = new JobTable("Jobs", { sorted: column => { sort = sort === column ? "-" + column : sort === "-" + column ? "" : column; change(); }, seen: wonder, empty: () => filter.value.trim() ? "No job here matches the filter." : choice.value ? "There is no such job." : "No job waits or runs. muster submit gives the cluster one; those that have ended are in the history." });
  main.append(el("h1", { tabindex: "-1" }, "Queue"), el("div", { class: "tools" }, filter, choice, el("a", { class: "button", href: "#/submit" }, "Submit a job"), total), jobs.element);

  function change() {
    route.remember({ q: filter.value.trim(), show: choice.value, sort });
    draw();
  }

  function draw() {
    clearTimeout(timer);
    timer = undefined;
    drawn = performance.now();
    const wanted = sets.find(s => s[0] === choice.value)[2], matches = matcher(filter.value);
    const list = [];
    for (const j of store.jobs.values()) if (wanted(j) && (!matches || matches(j))) list.push(j);
    list.sort(order(sort));
    jobs.set(list, sort);
    const c = store.counts;
    text(total, `${count(list.length, "job")} shown; ${c.pending.toLocaleString("en")} waiting, ${c.active.toLocaleString("en")} running`);
  }

  // Sorting many jobs for each of many changes would keep the page busy with nothing else.
  function soon() {
    if (timer) return;
    const wait = Math.min(150, store.jobs.size / 50) - (performance.now() - drawn);
    if (wait <= 0) draw();
    else timer = setTimeout(draw, wait);
  }

  async function wonder(inSight) {
    if (asking || store.connection !== "live") return;
    const due = inSight.filter(j => j.state === "PENDING" && j.reason === "Resources" && Date.now() - j.asked > again).slice(0, most);
    if (due.length === 0) return;
    asking = true;
    for (const j of due) j.asked = Date.now();
    try {
      told(due, (await ask("/v1/jobs?job=" + due.map(j => j.job).join(","))).jobs);
    } catch { /* the next time */ } finally { asking = false; }
  }

  draw();
  const leave = subscribe(soon);
  const clock = setInterval(soon, 1000); // times go on
  return { filter, focus: jobs.element, close() { leave(); clearInterval(clock); clearTimeout(timer); jobs.close(); } };
}
