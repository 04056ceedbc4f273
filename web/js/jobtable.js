// The table of jobs that the queue and the history show.

import { el, text, attribute, stateWord, colour } from "./dom.js";
import { duration, clock, jobName } from "./format.js";
import { Virtual } from "./virtual.js";
import { now, isActive, isOver } from "./store.js";

// columns of the table: how each is called, ordered and shown. narrow ones stay on a phone.
const columns = [
  { id: "job", title: "Job", by: j => j.job, show: jobName },
  { id: "name", title: "Name", by: j => j.name, show: j => j.name },
  { id: "user", title: "User", by: j => j.user, show: j => j.user },
  { id: "state", title: "State", by: j => stateOrder.indexOf(j.state), show: j => stateWord(j.state) },
  { id: "gpus", title: "GPUs", by: j => j.gpus, show: j => j.gpus || "", right: true },
  { id: "cores", title: "Cores", by: j => j.cores, show: j => j.cores, right: true },
  { id: "time", title: "Time", by: j => timeOf(j), show: j => duration(timeOf(j)), right: true },
  { id: "where", title: "Where, or why not yet", by: j => j.node_list || j.why || j.reason, show: whereOf },
];

const stateOrder = ["PENDING", "SUSPENDED", "COMPLETING", "RUNNING", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "CANCELLED", "COMPLETED"];

// timeOf is how long a job has waited, has run, or ran.
export function timeOf(j) {
  if (isOver(j)) return j.start_at ? j.end_at - j.start_at : 0;
  return now() - (isActive(j) && j.start_at ? j.start_at : j.submit_at);
}

function whereOf(j) {
  if (isActive(j)) return j.node_list;
  if (!isOver(j)) return j.why || j.reason || "";
  return [j.node_list, j.end_at ? `ended ${clock(j.end_at)}` : "", j.why].filter(Boolean).join(", ");
}

// standing is the order of a queue: who waits first, by priority; then who runs.
const standing = (a, b) => stateOrder.indexOf(a.state) - stateOrder.indexOf(b.state) || b.priority - a.priority || a.job - b.job;

// order makes a comparison of a column's name; -name is the other way round.
export function order(name) {
  const down = name.startsWith("-"), column = columns.find(c => c.id === name.replace("-", ""));
  if (!column) return standing;
  const sign = down ? -1 : 1;
  return (a, b) => {
    const x = column.by(a), y = column.by(b);
    return (x < y ? -sign : x > y ? sign : 0) || a.job - b.job;
  };
}

// matcher makes a filter of words, all of which must be in a job.
export function matcher(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return null;
  return j => {
    const all = `${jobName(j)}\n${j.name}\n${j.user}\n${j.account}\n${j.partition}\n${j.qos}\n${j.state}\n${j.node_list}\n${j.reason}\n${j.why}`.toLowerCase();
    return words.every(w => all.includes(w));
  };
}

// JobTable shows a list of jobs; sorted is called with a column's name, empty says what there
// is to say of no jobs, and where is how the last column is called.
export class JobTable {
  constructor(label, { sorted, seen, empty, where }) {
    this.jobs = [];
    this.chosen = 0; // the number of the active job
    this.heads = columns.map(c => el("div", { role: "columnheader", class: "c-" + c.id },
      el("button", { type: "button", onclick: () => sorted(c.id) }, c.id === "where" && where || c.title)));
    this.list = new Virtual({
      label, role: "grid", itemRole: "row",
      height: e => parseFloat(getComputedStyle(e).getPropertyValue("--row")),
      make: () => el("div", { role: "row", class: "row" }, ...columns.map(c => el("span", { role: "gridcell", class: "c-" + c.id }))),
      show: (e, i) => this.row(e, this.jobs[i]),
      open: i => { location.hash = `#/job/${jobName(this.jobs[i])}`; },
      moved: i => { this.chosen = this.jobs[i].job; },
      empty,
      seen: (first, last) => seen?.(this.jobs.slice(first, last)),
    });
    this.list.element.prepend(el("div", { role: "row", class: "row heads", "aria-rowindex": "1" }, ...this.heads));
    this.element = this.list.element;
  }

  row(e, j) {
    columns.forEach((c, k) => text(e.children[k], c.show(j)));
    attribute(e, "data-state", j.state);
    attribute(e, "data-user", colour(j.user));
    attribute(e.lastChild, "title", whereOf(j) || null);
  }

  set(jobs, sort) {
    this.jobs = jobs;
    const column = sort.replace("-", "");
    columns.forEach((c, k) => attribute(this.heads[k], "aria-sort", c.id !== column ? "none" : sort.startsWith("-") ? "descending" : "ascending"));
    const at = this.list.active >= 0 && jobs[this.list.active]?.job !== this.chosen ? jobs.findIndex(j => j.job === this.chosen) : this.list.active;
    this.list.set(jobs.length, at);
  }

  close() { this.list.close(); }
}
