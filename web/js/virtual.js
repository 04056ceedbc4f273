// A list of any length, of which only what is in sight is in the document. One thing in
// it is the active one; arrow keys move it, Enter opens it.

import { el, text, attribute } from "./dom.js";

let lists = 0;

export class Virtual {
  // o has: label; role and itemRole; height() of a row in pixels; columns(width) of items
  // in a row; make() an item's element; show(element, index); open(index); seen(first, last),
  // called when other items are in sight; empty(), what is said where there are none.
  constructor(o) {
    this.o = o;
    this.count = 0;
    this.active = -1;
    this.pool = new Map(); // by index
    this.free = [];
    this.prefix = `v${++lists}-`;
    this.inner = el("div", { class: "inner", role: o.itemRole === "row" ? "rowgroup" : "presentation" });
    this.element = el("div", { class: "virtual", role: o.role, "aria-label": o.label, tabindex: "0", onscroll: () => this.later(), onkeydown: e => this.key(e), onclick: e => this.click(e) }, this.inner);
    this.nothing = el("p", { class: "nothing", hidden: true });
    this.element.append(this.nothing);
    this.observer = new ResizeObserver(() => this.later());
    this.observer.observe(this.element);
  }

  close() { this.observer.disconnect(); }

  later() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  // set says how many there are now, and which is the active one.
  set(count, active = this.active) {
    this.count = count;
    this.active = Math.min(active, count - 1);
    this.nothing.hidden = count > 0 || !this.o.empty;
    if (!this.nothing.hidden) text(this.nothing, this.o.empty());
    this.draw();
  }

  measure() {
    this.height = this.o.height(this.element);
    this.columns = this.o.columns ? this.o.columns(this.element.clientWidth) : 1;
  }

  draw() {
    if (!this.element.isConnected) return;
    this.measure();
    const rows = Math.ceil(this.count / this.columns), top = this.element.scrollTop, tall = this.element.clientHeight;
    this.inner.style.height = `${rows * this.height}px`;
    const first = Math.max(0, Math.floor(top / this.height) - 2) * this.columns;
    const last = Math.min(this.count, (Math.ceil((top + tall) / this.height) + 2) * this.columns);
    if (this.o.role === "grid") attribute(this.element, "aria-rowcount", this.count + 1);
    for (const [i, e] of this.pool) {
      if (i < first || i >= last) {
        this.pool.delete(i);
        this.free.push(e);
      }
    }
    for (let i = first; i < last; i++) this.item(i);
    for (const e of this.free) e.remove();
    this.free.length = 0;
    this.mark();
    this.o.seen?.(first, last);
  }

  item(i) {
    let e = this.pool.get(i);
    if (!e) {
      e = this.free.pop() || this.o.make();
      this.pool.set(i, e);
      e.id = this.prefix + i;
      e.style.top = `${Math.floor(i / this.columns) * this.height}px`;
      if (!e.isConnected) this.inner.append(e);
    }
    if (this.columns > 1 || this.o.columns) {
      e.style.left = `${(i % this.columns) * 100 / this.columns}%`;
      e.style.width = `${100 / this.columns}%`;
      e.style.top = `${Math.floor(i / this.columns) * this.height}px`;
    }
    attribute(e, this.o.role === "grid" ? "aria-rowindex" : "aria-posinset", this.o.role === "grid" ? i + 2 : i + 1);
    if (this.o.role !== "grid") attribute(e, "aria-setsize", this.count);
    this.o.show(e, i);
  }

  mark() {
    for (const [i, e] of this.pool) attribute(e, "aria-selected", i === this.active ? "true" : "false");
    attribute(this.element, "aria-activedescendant", this.pool.has(this.active) ? this.prefix + this.active : null);
  }

  // go makes one the active one and brings it into sight.
  go(i) {
    if (this.count === 0) return;
    this.active = Math.max(0, Math.min(this.count - 1, i));
    const row = Math.floor(this.active / this.columns), e = this.element;
    const top = row * this.height, bottom = top + this.height + this.inner.offsetTop; // a head stays in sight
    if (top < e.scrollTop) e.scrollTop = top;
    else if (bottom > e.scrollTop + e.clientHeight) e.scrollTop = bottom - e.clientHeight;
    this.draw();
    this.o.moved?.(this.active);
  }

  key(e) {
    if (e.target !== this.element || e.ctrlKey || e.altKey || e.metaKey || !this.columns) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1) * this.columns;
    const steps = { ArrowDown: this.columns, ArrowUp: -this.columns, PageDown: page, PageUp: -page };
    if (this.columns > 1) Object.assign(steps, { ArrowRight: 1, ArrowLeft: -1 });
    if (e.key in steps) this.go(this.active < 0 ? 0 : this.active + steps[e.key]);
    else if (e.key === "Home") this.go(0);
    else if (e.key === "End") this.go(this.count - 1);
    else if (e.key === "Enter" && this.active >= 0) this.o.open(this.active);
    else return;
    e.preventDefault();
  }

  click(e) {
    const item = e.target.closest(`[id^="${this.prefix}"]`);
    if (!item || getSelection().toString()) return;
    this.active = Number(item.id.slice(this.prefix.length));
    this.mark();
    if (!e.target.closest("a, button")) this.o.open(this.active);
  }
}
