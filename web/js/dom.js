// Elements of the page. Whatever was named or written by somebody goes through text(), which
// makes text of it and never markup.

// el makes an element. Attributes are set as they are; those that begin with "on" are
// listeners. Children are elements or text.
export function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value);
    else e.setAttribute(name, value === true ? "" : String(value));
  }
  e.append(...children.filter(c => c !== undefined && c !== null && c !== false).map(c => c instanceof Node ? c : String(c)));
  return e;
}

// text sets an element's text, if it is another one: what has not changed costs nothing.
export function text(e, value) {
  value = String(value);
  if (e.textContent !== value) e.textContent = value;
}

// attribute sets one, or takes it away.
export function attribute(e, name, value) {
  if (value === null || value === undefined || value === false) {
    if (e.hasAttribute(name)) e.removeAttribute(name);
  } else if (e.getAttribute(name) !== String(value)) {
    e.setAttribute(name, String(value));
  }
}

// fill replaces what is in an element.
export function fill(e, ...children) {
  e.replaceChildren(...children.filter(c => c !== undefined && c !== null && c !== false));
}

// colour is a user's, of eight: the same on every page and every day.
export function colour(name) {
  let h = 2166136261;
  for (let i = 0; i < name.length; i++) h = Math.imul(h ^ name.charCodeAt(i), 16777619);
  return (h >>> 0) % 8;
}

// legend says which colour is whose: of the users that occur most.
export function legend(place, users) {
  const counts = new Map();
  for (const u of users) counts.set(u, (counts.get(u) || 0) + 1);
  const names = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(n => n[0]), shown = names.slice(0, 12).sort();
  const stamp = JSON.stringify([shown, names.length]);
  if (place.dataset.stamp === stamp) return;
  place.dataset.stamp = stamp;
  fill(place, ...shown.map(u => el("span", {}, el("i", { class: "swatch", "data-user": colour(u) }), u)), names.length > shown.length ? el("span", { class: "muted" }, `and ${names.length - shown.length} more`) : null);
}

// bar is a line that is filled to a part, of 0 to 1.
export function bar(part, className, label) {
  const inner = el("i", { class: className });
  inner.style.width = `${Math.max(0, Math.min(1, part || 0)) * 100}%`;
  return el("span", { class: "bar", role: "img", "aria-label": label }, inner);
}

// pill is a state, in a word and a colour.
export const pill = state => el("span", { class: "pill", "data-state": state }, stateWord(state));

export const stateWord = state => state.toLowerCase().replaceAll("_", " ");

// table makes a plain table of rows of texts and elements.
export function table(label, head, rows) {
  const cells = (tag, row) => row.map((c, i) => {
    const right = head[i].startsWith(">");
    return el(tag, { class: right ? "right" : undefined, scope: tag === "th" ? "col" : undefined }, c);
  });
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, el("table", { "aria-label": label },
    el("thead", {}, el("tr", {}, ...cells("th", head.map(h => h.replace(/^>/, ""))))),
    el("tbody", {}, ...rows.map(r => el("tr", {}, ...cells("td", r))))));
}

// confirm asks before something is changed; it answers whether to.
export function confirm(question, action) {
  return new Promise(done => {
    const no = el("button", { type: "button", onclick: () => d.close() }, "No, leave it");
    const yes = el("button", { type: "button", class: "danger", onclick: () => d.close("yes") }, action);
    const d = el("dialog", { "aria-label": question, onclose: () => { d.remove(); done(d.returnValue === "yes"); } },
      el("p", {}, question), el("div", { class: "buttons" }, no, yes));
    document.body.append(d);
    d.showModal();
    no.focus();
  });
}

// note tells something in passing.
export function note(message, isWrong) {
  const n = el("div", { class: "note", role: isWrong ? "alert" : "status", "data-wrong": isWrong }, message);
  document.querySelectorAll("body > .note").forEach(old => old.remove());
  document.body.append(n);
  setTimeout(() => n.remove(), isWrong ? 12000 : 4000);
}
