// Numbers and times, as people read them.

export function duration(s) {
  if (!(s >= 0)) return "–";
  s = Math.floor(s);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${String(Math.floor(s / 60) % 60).padStart(2, "0")} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s / 3600) % 24} h`;
}

// span is a duration that may be short: a figure, not a clock that goes on.
export function span(s) {
  if (s > 0 && s < 1) return `${Math.max(1, Math.round(s * 1000))} ms`;
  return s > 0 && s < 10 ? `${s.toFixed(1)} s` : duration(Math.round(s));
}

const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(n) {
  let u = 0;
  while (n >= 1024 && u < units.length - 1) { n /= 1024; u++; }
  return `${n >= 100 || u === 0 ? Math.round(n) : Number(n.toPrecision(3))} ${units[u]}`;
}

const two = n => String(n).padStart(2, "0");

// clock is an instant: of today its time, of other days its date too.
export function clock(seconds, now = Date.now() / 1000) {
  if (!seconds) return "–";
  const d = new Date(seconds * 1000), today = new Date(now * 1000);
  const time = `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
  return d.toDateString() === today.toDateString() ? time : `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${time}`;
}

// local is an instant as a field of a form has it.
export function local(seconds) {
  const d = new Date(seconds * 1000);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}T${two(d.getHours())}:${two(d.getMinutes())}`;
}

export const percent = x => `${(100 * x).toFixed(x < 0.1 && x > 0 ? 1 : 0)} %`;

export const count = (n, word, words = word + "s") => `${n.toLocaleString("en")} ${n === 1 ? word : words}`;

// jobName is how people call a job: 17, or 17_3 for a task of an array, 17_[3-9] for those that have not started.
export const jobName = j => j.array_tasks ? `${j.array_job}_[${j.array_tasks}]` : j.array_task === undefined ? String(j.job) : `${j.array_job}_${j.array_task}`;

// ordinal is 1st, 2nd, 3rd, 4th.
export const ordinal = n => n + (["th", "st", "nd", "rd"][n % 100 > 10 && n % 100 < 14 ? 0 : n % 10] || "th");
