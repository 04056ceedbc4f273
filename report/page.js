"use strict";
(() => {

// ---- words: the same as Number, Percent, Duration and timeTick in Go ----

const group = s => s.replace(/^\d+/, d => d.replace(/\B(?=(\d{3})+$)/g, ","));
const trimZeros = s => s.includes(".") ? s.replace(/\.?0+$/, "") : s;
const sign = x => x < 0 ? "-" : "";
const significant = (x, n) => Number(x.toPrecision(n));

function number(x) {
  if (x === null || Number.isNaN(x)) return "–";
  const a = Math.abs(x);
  if (a === Infinity) return sign(x) + "∞";
  if (Number.isInteger(x) && a < 1e15) return sign(x) + group(a.toFixed(0));
  if (a >= 1e15 || a < 1e-4) {
    const [mantissa, exponent] = a.toExponential(3).split("e");
    return sign(x) + trimZeros(mantissa) + "e" + exponent.replace("+", "");
  }
  return sign(x) + group(trimZeros(a.toFixed(Math.max(0, 3 - Math.floor(Math.log10(a))))));
}

function percent(x) {
  if (x === null || !Number.isFinite(x)) return "–";
  const p = x * 100, a = Math.abs(p);
  if (a >= 999.95) return sign(p) + group(a.toFixed(0)) + " %";
  if (a >= 0.1 || a === 0) return sign(p) + a.toFixed(1) + " %";
  return number(significant(p, 2)) + " %";
}

function duration(x) {
  if (x === null || !Number.isFinite(x)) return "–";
  const s = Math.abs(x), minus = sign(x);
  const pair = (n, size, big, small) => `${minus}${Math.floor(n / size)} ${big} ${String(n % size).padStart(2, "0")} ${small}`;
  if (s === 0) return "0 s";
  if (s < 0.9995e-3) return minus + number(significant(s * 1e6, 3)) + " µs";
  if (s < 0.9995) return minus + number(significant(s * 1e3, 3)) + " ms";
  if (s < 9.95) return minus + number(significant(s, 2)) + " s";
  const seconds = Math.round(s), minutes = Math.round(s / 60), hours = Math.round(s / 3600);
  if (seconds < 60) return `${minus}${seconds} s`;
  if (seconds < 3600) return pair(seconds, 60, "min", "s");
  if (minutes < 24 * 60) return pair(minutes, 60, "h", "min");
  if (hours >= 24 * 1000) return minus + number(Math.round(s / 86400)) + " d";
  return pair(hours, 24, "d", "h");
}

function timeTick(t, step, extent) {
  const minus = sign(t);
  t = Math.abs(Math.round(t / step) * step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  if (t === 0) return "0";
  if (step >= 86400) return minus + number(Math.round(t / 86400)) + " d";
  if (step >= 3600 && extent <= 72 * 3600) return minus + (t / 3600).toFixed(0) + " h";
  if (step >= 60 && extent <= 2 * 3600) return minus + (t / 60).toFixed(0) + " min";
  if (extent <= 300) return minus + t.toFixed(digits) + " s";
  const two = (x, n = 0) => x.toFixed(n).padStart(n ? 3 + n : 2, "0");
  const days = Math.floor(t / 86400), rest = t - days * 86400;
  const hours = Math.floor(rest / 3600), minutes = Math.floor((rest - hours * 3600) / 60);
  let clock = two(hours) + ":" + two(minutes);
  if (step < 60) clock += ":" + two(rest - hours * 3600 - minutes * 60, digits);
  return extent >= 86400 ? `${minus}${number(days)} d ${clock}` : `${minus}${clock} h`;
}

function timeStep(raw) {
  const nice = raw => {
    const p = 10 ** Math.floor(Math.log10(raw));
    return p * ([1, 2, 5].find(m => raw <= m * p * (1 + 1e-9)) ?? 10);
  };
  if (raw <= 1) return nice(raw);
  const steps = [2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];
  return steps.find(s => raw <= s * (1 + 1e-9)) ?? 86400 * nice(raw / 86400);
}

const units = [number, duration, percent];

// ---- the tip: one for the page; only ever filled with text, never markup ----

const tip = document.getElementById("tip");

// showTip tells a title and lines; a tab in a line splits name and value.
// colours, where given, are the series classes of the lines.
function showTip(x, y, title, lines, colours = []) {
  const add = (parent, tag, text, cls) => {
    const e = parent.appendChild(document.createElement(tag));
    if (text !== undefined) e.textContent = text;
    if (cls) e.className = cls;
    return e;
  };
  tip.replaceChildren();
  if (title) add(tip, "b", title);
  const list = add(tip, "dl");
  lines.forEach((line, i) => {
    const cut = line.indexOf("\t");
    if (cut < 0) {
      add(list, "dd", line, "wide");
      return;
    }
    const name = add(list, "dt");
    if (colours[i]) add(name, "i", "", colours[i]);
    name.append(line.slice(0, cut));
    add(list, "dd", line.slice(cut + 1));
  });
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth ? x - 16 - box.width : x + 16;
  const top = y + 16 + box.height > innerHeight ? y - 16 - box.height : y + 16;
  tip.style.left = Math.max(4, left) + "px";
  tip.style.top = Math.max(4, top) + "px";
}

const hideTip = () => { tip.hidden = true; };

for (const e of document.querySelectorAll("[data-tip]")) {
  const colours = (e.dataset.colours ?? "").split(" ");
  const show = event => {
    const lines = e.dataset.tip.split("\n");
    const box = e.getBoundingClientRect();
    const title = lines.length > 1 ? lines.shift() : "";
    showTip(event.clientX ?? box.left, event.clientY ?? box.bottom, title, lines, colours);
  };
  e.addEventListener("pointermove", show);
  e.addEventListener("focus", show);
  e.addEventListener("pointerleave", hideTip);
  e.addEventListener("blur", hideTip);
}

// ---- charts: the values of all series at the pointer's x ----

function chart(figure) {
  const svg = figure.querySelector("svg.plot");
  const d = JSON.parse(figure.querySelector("script.values").textContent);
  if (!d.series.length) return;
  const [left, right, top, bottom] = d.plot;
  const value = (from, to, log, part) => log ? from * (to / from) ** part : from + (to - from) * part;
  const place = (v, [lo, hi], log, from, to) => from + (to - from) * (log ? Math.log(v / lo) / Math.log(hi / lo) : (v - lo) / (hi - lo));
  const make = (tag, cls) => {
    const e = svg.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
    e.setAttribute("class", cls);
    e.style.display = "none";
    return e;
  };
  const cursor = make("path", "cursor");
  const dots = d.series.map((_, i) => make("circle", "dot s" + i % 8));
  const hide = () => {
    hideTip();
    for (const e of [cursor, ...dots]) e.style.display = "none";
  };
  // index finds the value that a series has at x: the step's, or the nearest.
  const index = (s, x) => {
    let lo = 0, hi = s.x.length;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (s.x[mid] <= x) lo = mid + 1; else hi = mid;
    }
    if (s.step || lo === s.x.length) return lo - 1;
    return lo > 0 && x - s.x[lo - 1] < s.x[lo] - x ? lo - 1 : lo;
  };
  svg.addEventListener("pointermove", event => {
    const p = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    if (p.x < left || p.x > right || p.y < top || p.y > bottom) return hide();
    const x = value(d.x[0], d.x[1], d.logX, (p.x - left) / (right - left));
    const lines = [], colours = [];
    let at = x;
    d.series.forEach((s, i) => {
      const k = index(s, x);
      const shown = k >= 0 && s.y[k] !== null;
      dots[i].style.display = shown ? "" : "none";
      if (!shown) return;
      if (!s.step) at = s.x[k];
      const format = units[d.yUnit];
      const bounds = s.lo ? ` (${format(s.lo[k])} to ${format(s.hi[k])})` : "";
      lines.push(`${s.name}\t${format(s.y[k])}${bounds}`);
      colours.push("s" + i % 8);
      const y = Math.min(Math.max(s.y[k], d.y[0]), d.y[1]);
      dots[i].setAttribute("cx", s.step ? p.x : place(s.x[k], d.x, d.logX, left, right));
      dots[i].setAttribute("cy", place(y, d.y, d.logY, bottom, top));
      dots[i].setAttribute("r", 3.5);
    });
    const cx = place(at, d.x, d.logX, left, right);
    cursor.setAttribute("d", `M${cx} ${top}V${bottom}`);
    cursor.style.display = "";
    showTip(event.clientX, event.clientY, units[d.xUnit](at), lines, colours);
  });
  svg.addEventListener("pointerleave", hide);
}

// ---- Gantts ----

// Range is a visible stretch of an axis, shared by all Gantts that follow it.
class Range {
  constructor(from, to, least) {
    this.full = [from, to];
    this.from = from;
    this.to = to;
    this.least = least; // the shortest stretch to zoom into
    this.members = [];
  }
  get size() { return this.to - this.from; }
  widen(from, to) {
    this.full = [Math.min(this.full[0], from), Math.max(this.full[1], to)];
    this.reset();
  }
  reset() { this.show(...this.full); }
  zoom(at, factor) {
    const size = Math.min(Math.max(this.size * factor, this.least), this.full[1] - this.full[0]);
    const part = (at - this.from) / this.size;
    this.show(at - part * size, at - part * size + size);
  }
  pan(by) { this.show(this.from + by, this.to + by); }
  // show takes a stretch and keeps it within the whole.
  show(from, to) {
    const [lo, hi] = this.full, size = Math.min(to - from, hi - lo);
    this.from = Math.min(Math.max(from, lo), hi - size);
    this.to = this.from + size;
    for (const g of this.members) g.redraw();
  }
}

const gutterFont = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif";
const axisHeight = 26;

class Gantt {
  constructor(figure, meta, buffer, time, rows, peers) {
    Object.assign(this, { figure, meta, time, rows, peers });
    this.stage = figure.querySelector(".stage");
    this.canvas = figure.querySelector(".blocks");
    this.marks = figure.querySelector(".marks");
    this.range = figure.querySelector("output");
    this.unpack(buffer);
    this.pixelColours = new Uint32Array(meta.kinds.flatMap(k => shades(k.colour)));
    this.textColours = meta.kinds.map(k => textOn(k.colour));
    this.hovered = -1;  // job under the pointer
    this.selected = -1; // job that was searched for
    this.peers.push(this);
    time.members.push(this);
    rows.members.push(this);
    this.layout();
    this.listen();
    figure.dataset.ready = "";
  }

  // unpack lays typed arrays over the data; see pack in gantt.go for the format.
  unpack(buffer) {
    const n = this.meta.blocks;
    let at = 0;
    const column = type => {
      const c = new type(buffer, at, n);
      at += c.byteLength;
      return c;
    };
    this.start = column(Float64Array);
    this.end = column(Float64Array);
    this.row = column(Int32Array);
    this.job = column(Int32Array);
    this.kind = column(Uint8Array);
    this.lo = column(Uint8Array);
    this.hi = column(Uint8Array);
    this.text = new Uint8Array(buffer, at);

    // Blocks are in order of row and start. first[r] is where row r begins;
    // latest[i] is the latest end in i's row up to i, so that it can be searched.
    this.first = new Uint32Array(this.meta.rows.length + 1);
    this.latest = new Float64Array(n);
    for (let i = 0; i < n; i++) {
      this.first[this.row[i] + 1]++;
      const same = i > 0 && this.row[i - 1] === this.row[i];
      this.latest[i] = same ? Math.max(this.latest[i - 1], this.end[i]) : this.end[i];
    }
    for (let r = 0; r < this.meta.rows.length; r++) this.first[r + 1] += this.first[r];

    // The blocks of a job are a chain: head[job], then next[block].
    this.head = new Int32Array(this.meta.jobs).fill(-1);
    this.next = new Int32Array(n).fill(-1);
    for (let i = n - 1; i >= 0; i--) {
      const j = this.job[i];
      if (j < 0) continue;
      this.next[i] = this.head[j];
      this.head[j] = i;
    }

    this.jobAt = new Uint32Array(this.meta.jobs + 1);
    for (let i = 0, j = 0; i < this.text.length; i++) {
      if (this.text[i] === 0) this.jobAt[++j] = i + 1;
    }
  }

  // describe gives a job's ID and lines.
  describe(job) {
    const bytes = this.text.subarray(this.jobAt[job], this.jobAt[job + 1] - 1);
    const [id, ...lines] = new TextDecoder().decode(bytes).split("\n");
    lines.pop();
    return { id, lines };
  }

  // find looks for the ID: the whole of it, or else its beginning, or else any
  // part; the first such job after the given one, going round.
  find(id, after = -1) {
    const want = new TextEncoder().encode(id), n = this.meta.jobs, text = this.text;
    if (!want.length) return -1;
    const matches = (at, end) => {
      if (at + want.length > end) return false;
      for (let k = 0; k < want.length; k++) if (text[at + k] !== want[k]) return false;
      return true;
    };
    let begins = -1, within = -1;
    for (let k = 1; k <= n; k++) {
      const job = (after + k) % n;
      const from = this.jobAt[job], end = text.indexOf(10, from);
      if (matches(from, end)) {
        if (end - from === want.length) return job;
        if (begins < 0) begins = job;
      }
      for (let at = from + 1; within < 0 && at < end; at++) if (matches(at, end)) within = job;
    }
    return begins >= 0 ? begins : within;
  }

  layout() {
    const rows = this.meta.rows;
    this.stage.style.height = Math.min(560, Math.max(130, rows.length * 16, Math.min(400, rows.length * 36))) + axisHeight + "px";
    const ctx = this.canvas.getContext("2d");
    ctx.font = gutterFont;
    let widest = 0;
    for (let r = 0; r < rows.length; r += Math.ceil(rows.length / 200)) widest = Math.max(widest, ctx.measureText(rows[r]).width);
    this.gutter = Math.min(170, Math.ceil(widest)) + 12;
    new ResizeObserver(() => this.redraw()).observe(this.stage);
  }

  // size fits both canvases to the stage, in device pixels.
  size() {
    const dpr = devicePixelRatio || 1;
    const width = Math.round(this.stage.clientWidth * dpr), height = Math.round(this.stage.clientHeight * dpr);
    for (const c of [this.canvas, this.marks]) {
      if (c.width !== width || c.height !== height) Object.assign(c, { width, height });
    }
    this.dpr = dpr;
    this.width = Math.max(1, width - Math.round(this.gutter * dpr));
    this.height = Math.max(1, height - Math.round(axisHeight * dpr));
    this.left = width - this.width;
  }

  redraw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    this.size();
    const ctx = this.canvas.getContext("2d");
    const style = getComputedStyle(document.documentElement);
    this.ink = style.getPropertyValue("--ink");
    this.muted = style.getPropertyValue("--muted");
    this.rule = style.getPropertyValue("--rule");
    this.paper = style.getPropertyValue("--paper");
    ctx.clearRect(0, 0, this.canvas.width, this.canvas.height);
    const labels = this.paint(ctx);
    this.label(ctx, labels);
    this.axes(ctx);
    this.mark();
    const fine = timeStep(this.time.size / 200);
    this.range.textContent = `${this.clock(this.time.from, fine)} to ${this.clock(this.time.to, fine)}`;
    // What is shown can be read from the figure, by tests as well.
    Object.assign(this.figure.dataset, { left: this.left / this.dpr, from: this.time.from, to: this.time.to, firstRow: this.rows.from, lastRow: this.rows.to });
  }

  // clock writes a time as exactly as the step asks.
  clock(t, step) {
    return timeTick(t, step, Math.max(Math.abs(this.time.full[0]), Math.abs(this.time.full[1])));
  }

  // begin finds the first block of a row that may last to t or beyond.
  begin(r, t) {
    let lo = this.first[r], hi = this.first[r + 1];
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (this.latest[mid] >= t) hi = mid; else lo = mid + 1;
    }
    return lo;
  }

  // paint fills pixels directly: a pixel gets the block that covers its centre,
  // so any number of tiny blocks costs one pass and averages truly. A block that
  // covers no centre still marks a pixel that nothing else has.
  paint(ctx) {
    const { width, height, dpr, start, end, lo, hi, job, kind, pixelColours } = this;
    const image = this.image?.width === width && this.image.height === height ? this.image : ctx.createImageData(width, height);
    this.image = image;
    const pixels = new Uint32Array(image.data.buffer);
    pixels.fill(0);
    const { from: t0, to: t1 } = this.time, { from: r0, to: r1 } = this.rows;
    const kx = width / (t1 - t0), ky = height / (r1 - r0);
    const gap = Math.round(dpr), rowGap = ky >= 8 * dpr ? gap : 0;
    const labels = [];
    const lastRow = Math.min(this.meta.rows.length, Math.ceil(r1));
    for (let r = Math.max(0, Math.floor(r0)); r < lastRow; r++) {
      const top = (r - r0) * ky + 0.5, tall = (ky - rowGap) / 255;
      for (let i = this.begin(r, t0), last = this.first[r + 1]; i < last; i++) {
        const from = start[i] - t0, to = end[i] - t0;
        const above = top + lo[i] * tall, below = top + hi[i] * tall;
        if (to < 0 || below < 0.5 || above > height + 0.5) continue;
        const x = from * kx + 0.5;
        if (x >= width + 0.5) break;
        let x0 = x > 0 ? x | 0 : 0, x1 = Math.min(width, to * kx + 0.5) | 0;
        let y0 = Math.max(0, above) | 0, y1 = Math.min(height, below) | 0;
        const colour = pixelColours[kind[i] * 3 + (job[i] + 1) % 3];
        if (x1 <= x0 || y1 <= y0) {
          if (x0 >= width) x0 = width - 1;
          if (y0 >= height) y0 = height - 1;
          if (x1 <= x0) x1 = x0 + 1;
          if (y1 <= y0) y1 = y0 + 1;
          for (let y = y0; y < y1; y++) {
            for (let p = y * width + x0, stop = p + x1 - x0; p < stop; p++) if (pixels[p] === 0) pixels[p] = colour;
          }
          continue;
        }
        if (x1 - x0 >= 4 * gap) x1 -= gap;
        if (y1 - y0 >= 6 * gap && hi[i] < 255) y1 -= gap;
        for (let y = y0; y < y1; y++) {
          const p = y * width;
          if (x1 - x0 > 8) {
            pixels.fill(colour, p + x0, p + x1);
          } else {
            for (let k = p + x0; k < p + x1; k++) pixels[k] = colour;
          }
        }
        if (x1 - x0 > 34 * dpr && y1 - y0 >= 11 * dpr && job[i] >= 0 && labels.length < 1500 * 5) labels.push(i, x0, x1, y0, y1);
      }
    }
    ctx.putImageData(image, this.left, 0);
    return labels;
  }

  // label writes IDs into the blocks with room for them.
  label(ctx, labels) {
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    ctx.font = `${11 * this.dpr}px ${gutterFont.slice(5)}`;
    for (let k = 0; k < labels.length; k += 5) {
      const [i, x0, x1, y0, y1] = labels.slice(k, k + 5);
      const { id } = this.describe(this.job[i]);
      if (ctx.measureText(id).width > x1 - x0 - 8 * this.dpr) continue;
      ctx.fillStyle = this.textColours[this.kind[i]];
      ctx.fillText(id, this.left + x0 + 4 * this.dpr, (y0 + y1) / 2 + this.dpr / 2);
    }
  }

  axes(ctx) {
    const { dpr, left, width, height } = this;
    const { from: t0, to: t1 } = this.time, { from: r0, to: r1 } = this.rows;
    ctx.font = `${12 * dpr}px ${gutterFont.slice(5)}`;
    ctx.textBaseline = "middle";
    // Lines go behind the blocks that are there already.
    const behind = (x, y, w, h, colour) => {
      ctx.globalCompositeOperation = "destination-over";
      ctx.fillStyle = colour;
      ctx.fillRect(Math.round(x), Math.round(y), w, h);
      ctx.globalCompositeOperation = "source-over";
    };
    const hair = Math.max(1, Math.round(dpr));
    const step = timeStep((t1 - t0) / Math.max(2, width / dpr / 110));
    let free = -Infinity;
    for (let k = Math.ceil(t0 / step - 1e-9); k * step <= t1 * (1 + 1e-12); k++) {
      const x = left + (k * step - t0) / (t1 - t0) * width;
      behind(x, 0, hair, height, this.rule);
      const text = this.clock(k * step, step), half = ctx.measureText(text).width / 2;
      const at = Math.min(Math.max(x, left + half - 4 * dpr), left + width - half);
      if (at - half < free) continue;
      free = at + half + 10 * dpr;
      ctx.textAlign = "center";
      ctx.fillStyle = this.muted;
      ctx.fillText(text, at, height + 15 * dpr);
    }
    const ky = height / (r1 - r0), every = Math.max(1, Math.ceil(14 * dpr / ky));
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, 0, left, height);
    ctx.clip();
    ctx.textAlign = "right";
    ctx.fillStyle = this.muted;
    for (let r = Math.floor(r0 / every) * every; r < Math.min(r1, this.meta.rows.length); r += every) {
      const y = (every > 1 ? r : r + 0.5) - r0;
      ctx.fillText(this.meta.rows[r], left - 8 * dpr, y * ky + (every > 1 ? 7 * dpr : 0), left - 10 * dpr);
    }
    ctx.restore();
    if (ky >= 8 * dpr) {
      for (let r = Math.ceil(r0); r <= r1; r++) behind(left, (r - r0) * ky - (r === r0 ? 0 : hair), width, hair, this.rule);
    }
    behind(left - hair, 0, hair, height, this.muted);
    behind(left - hair, height, width + hair, hair, this.muted);
  }

  // mark dims everything but the blocks of one job.
  mark() {
    const ctx = this.marks.getContext("2d");
    ctx.clearRect(0, 0, this.marks.width, this.marks.height);
    const job = this.hovered >= 0 ? this.hovered : this.selected;
    if (job < 0) return;
    const { dpr, left, width, height } = this;
    const kx = width / this.time.size, ky = height / this.rows.size;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, 0, width, height);
    ctx.clip();
    ctx.globalAlpha = 0.6;
    ctx.fillStyle = this.paper;
    ctx.fillRect(left, 0, width, height);
    ctx.globalAlpha = 1;
    ctx.strokeStyle = this.ink;
    ctx.lineWidth = 1.5 * dpr;
    const boxes = [];
    for (let i = this.head[job]; i >= 0; i = this.next[i]) {
      const x = left + (this.start[i] - this.time.from) * kx, y = (this.row[i] + this.lo[i] / 255 - this.rows.from) * ky;
      const w = Math.max(3 * dpr, (this.end[i] - this.start[i]) * kx), h = Math.max(3 * dpr, (this.hi[i] - this.lo[i]) / 255 * ky);
      if (x > left + width || x + w < left || y > height || y + h < 0) continue;
      // Far outside the picture a stroke cannot be drawn exactly, nor seen.
      const x0 = Math.max(x, left - 9 * dpr), x1 = Math.min(x + w, left + width + 9 * dpr);
      boxes.push([x0, y, x1 - x0, h]);
    }
    for (const b of boxes) ctx.clearRect(...b);
    for (const b of boxes) ctx.strokeRect(...b);
    ctx.restore();
  }

  // point turns a place on the screen into time, row and part of the row.
  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const x = (event.clientX - box.left) * this.dpr - this.left, y = (event.clientY - box.top) * this.dpr;
    return {
      t: this.time.from + x / this.width * this.time.size,
      r: this.rows.from + y / this.height * this.rows.size,
      inside: x >= 0 && x < this.width && y >= 0 && y < this.height,
    };
  }

  // hit finds the block at a point, or the nearest within two pixels of it.
  hit({ t, r, inside }) {
    const row = Math.floor(r);
    if (!inside || row < 0 || row >= this.meta.rows.length) return -1;
    const part = (r - row) * 255, slack = 2 * this.dpr * this.time.size / this.width;
    let best = -1, least = Infinity;
    for (let i = this.begin(row, t - slack), last = this.first[row + 1]; i < last && this.start[i] <= t + slack; i++) {
      if (part < this.lo[i] || part > this.hi[i]) continue;
      const off = Math.max(0, this.start[i] - t, t - this.end[i]);
      if (off <= slack && off < least) [best, least] = [i, off];
    }
    return best;
  }

  // tell shows what a block is.
  tell(i, x, y) {
    const job = this.job[i], kind = this.meta.kinds[this.kind[i]].name;
    const { id, lines } = job >= 0 ? this.describe(job) : { id: kind, lines: [] };
    const long = this.end[i] - this.start[i], fine = Math.min(1, timeStep(long / 20 || 1));
    const here = `${this.meta.rows[this.row[i]]}\t${this.clock(this.start[i], fine)} to ${this.clock(this.end[i], fine)} (${duration(long)})`;
    showTip(x, y, id, job >= 0 && kind ? [...lines, here, `Kind\t${kind}`] : [here]);
  }

  // markAll marks a job here and, by its ID, in the Gantts on the same axis.
  markAll(field, job) {
    if (this[field] === job) return;
    const id = job >= 0 ? this.describe(job).id : "";
    for (const g of this.peers) {
      g[field] = job < 0 ? -1 : g === this ? job : g.same(id, job);
      g.mark();
    }
  }

  // same finds the job of exactly this ID; most often it has the same index.
  same(id, guess) {
    if (guess < this.meta.jobs && this.describe(guess).id === id) return guess;
    const job = this.find(id);
    return job >= 0 && this.describe(job).id === id ? job : -1;
  }

  select(id) {
    const input = this.figure.querySelector("input");
    const job = this.find(id, this.selected);
    input.setAttribute("aria-invalid", id !== "" && job < 0);
    this.markAll("selected", job);
    if (job < 0) {
      if (id !== "") showTip(input.getBoundingClientRect().left, input.getBoundingClientRect().bottom, "", ["No job has this in its ID."]);
      else hideTip();
      return;
    }
    const block = this.bringIntoView(job);
    this.draw();
    if (block < 0) {
      const { id, lines } = this.describe(job);
      showTip(input.getBoundingClientRect().left, input.getBoundingClientRect().bottom, id, [...lines, "It occupies nothing here."]);
      return;
    }
    const box = this.canvas.getBoundingClientRect();
    const x = (this.start[block] - this.time.from) / this.time.size * this.width + this.left;
    const y = (this.row[block] + this.hi[block] / 255 - this.rows.from) / this.rows.size * this.height;
    this.tell(block, box.left + Math.max(x, this.left) / this.dpr, box.top + y / this.dpr);
  }

  // bringIntoView zooms so that a job can be seen with what is around it, and
  // returns its first block.
  bringIntoView(job) {
    let from = Infinity, to = -Infinity, top = Infinity, bottom = -Infinity;
    for (let i = this.head[job]; i >= 0; i = this.next[i]) {
      from = Math.min(from, this.start[i]);
      to = Math.max(to, this.end[i]);
      top = Math.min(top, this.row[i]);
      bottom = Math.max(bottom, this.row[i] + 1);
    }
    if (from > to) return -1;
    const long = Math.max(to - from, this.time.least), size = this.time.size;
    if (from < this.time.from || to > this.time.to || long < size / 50) {
      this.time.show(from - long * 2, to + long * 2);
    }
    const legible = this.height / this.dpr / 12;
    if (top < this.rows.from || bottom > this.rows.to || this.rows.size > legible) {
      const rows = Math.max(Math.min(this.rows.size, legible), bottom - top);
      this.rows.show((top + bottom - rows) / 2, (top + bottom + rows) / 2);
    }
    return this.head[job];
  }

  listen() {
    const c = this.canvas;
    let drag = null;
    c.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      drag = { x: event.clientX, y: event.clientY };
      c.setPointerCapture(event.pointerId);
    });
    c.addEventListener("pointerup", () => { drag = null; });
    c.addEventListener("pointercancel", () => { drag = null; });
    c.addEventListener("pointermove", event => {
      if (drag) {
        this.time.pan((drag.x - event.clientX) * this.dpr / this.width * this.time.size);
        this.rows.pan((drag.y - event.clientY) * this.dpr / this.height * this.rows.size);
        drag = { x: event.clientX, y: event.clientY };
        hideTip();
        return;
      }
      const i = this.hit(this.point(event));
      this.markAll("hovered", i >= 0 ? this.job[i] : -1);
      if (i >= 0) this.tell(i, event.clientX, event.clientY); else hideTip();
    });
    c.addEventListener("pointerleave", () => {
      this.markAll("hovered", -1);
      hideTip();
    });
    c.addEventListener("wheel", event => {
      event.preventDefault();
      const p = this.point(event);
      // Shift makes some browsers turn the wheel sideways; lines count as 16 pixels, pages as 200.
      const delta = (event.deltaY || event.deltaX) * [1, 16, 200][event.deltaMode];
      const factor = Math.exp(Math.max(-300, Math.min(300, delta)) * 0.002);
      if (event.shiftKey) this.rows.zoom(p.r, factor); else this.time.zoom(p.t, factor);
      hideTip();
    }, { passive: false });
    c.addEventListener("dblclick", () => this.reset());
    c.addEventListener("keydown", event => {
      const middle = { t: (this.time.from + this.time.to) / 2, r: (this.rows.from + this.rows.to) / 2 };
      const zoom = factor => event.altKey ? this.rows.zoom(middle.r, factor) : this.time.zoom(middle.t, factor);
      const keys = {
        "+": () => zoom(0.7), "=": () => zoom(0.7), "-": () => zoom(1 / 0.7),
        "0": () => this.reset(),
        ArrowLeft: () => this.time.pan(-this.time.size / 8), ArrowRight: () => this.time.pan(this.time.size / 8),
        ArrowUp: () => this.rows.pan(-this.rows.size / 8), ArrowDown: () => this.rows.pan(this.rows.size / 8),
        Escape: () => { this.markAll("selected", -1); hideTip(); },
      };
      if (!(event.key in keys) || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
    });
    this.figure.querySelector("form").addEventListener("submit", event => {
      event.preventDefault();
      this.select(this.figure.querySelector("input").value.trim());
    });
    this.figure.querySelector("input").addEventListener("input", event => {
      event.target.setAttribute("aria-invalid", false);
      if (event.target.value === "") this.select("");
    });
  }

  reset() {
    this.time.reset();
    this.rows.reset();
  }
}

const rgb = hex => [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16));

// shades gives three near colours as pixels, so that neighbours differ.
function shades(hex) {
  return [0, 0.13, -0.1].map(f => {
    const [r, g, b] = rgb(hex).map(v => Math.round(f > 0 ? v + (255 - v) * f : v * (1 + f)));
    return (0xff000000 | b << 16 | g << 8 | r) >>> 0;
  });
}

function textOn(hex) {
  const [r, g, b] = rgb(hex);
  return r * 0.299 + g * 0.587 + b * 0.114 > 140 ? "#111" : "#fff";
}

async function inflate(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

// gantts builds all of them: those with one axis name share their time, and
// their rows too where these are the same.
async function gantts() {
  const times = new Map(), rowSets = new Map(), peers = new Map(), all = [];
  const figures = [...document.querySelectorAll("figure.gantt")].map((figure, i) => {
    const meta = JSON.parse(figure.querySelector("script.meta").textContent);
    const key = meta.axis ? "axis " + meta.axis : "own " + i;
    const rowKey = key + "\n" + meta.rows.join("\n");
    if (!times.has(key)) {
      times.set(key, new Range(meta.from, meta.to, 0));
      peers.set(key, []);
    }
    times.get(key).widen(meta.from, meta.to);
    if (!rowSets.has(rowKey)) rowSets.set(rowKey, new Range(0, meta.rows.length, Math.min(1, meta.rows.length)));
    return { figure, meta, key, rowKey };
  });
  for (const t of times.values()) t.least = Math.max((t.full[1] - t.full[0]) * 1e-7, 1e-3);
  for (const { figure, meta, key, rowKey } of figures) {
    try {
      const data = figure.querySelector("script.data");
      const buffer = await inflate(data.textContent);
      data.remove();
      all.push(new Gantt(figure, meta, buffer, times.get(key), rowSets.get(rowKey), peers.get(key)));
    } catch (error) {
      figure.querySelector(".stage").textContent = "This picture could not be drawn: " + error.message;
      console.error(error);
    }
  }
  const redraw = () => all.forEach(g => g.draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  addEventListener("beforeprint", () => { document.documentElement.classList.add("printing"); redraw(); });
  addEventListener("afterprint", () => { document.documentElement.classList.remove("printing"); redraw(); });
}

document.querySelectorAll("figure.chart").forEach(f => { if (f.querySelector("script.values")) chart(f); });
gantts();

// For the browser test, which compares these with Go's.
globalThis.musterReport = { number, percent, duration, timeTick };

})();
