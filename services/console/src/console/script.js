/* Progressive enhancement: every page works without this script. */
"use strict";

const isTyping = (target) => target instanceof HTMLElement && target.closest("input:not([type=checkbox]), textarea, select") !== null;

/* Single-key shortcuts can be switched off, since speech input may type them: WCAG 2.2, success criterion 2.1.4. */
const SINGLE_KEYS = "stead-single-keys";
const usesSingleKeys = () => localStorage.getItem(SINGLE_KEYS) !== "off";
for (const box of document.querySelectorAll("[data-single-keys]")) {
  box.closest("label").hidden = false;
  box.checked = usesSingleKeys();
  box.addEventListener("change", () => localStorage.setItem(SINGLE_KEYS, box.checked ? "on" : "off"));
}

const list = document.getElementById("shortcuts");
for (const link of document.querySelectorAll("[data-shows=shortcuts]")) {
  link.addEventListener("click", (event) => {
    if (!list) return;
    list.showModal();
    event.preventDefault();
  });
}

const GO_MS = 1500;
let goUntil = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target) || !usesSingleKeys() || list?.open) return;
  const key = CSS.escape(event.key);
  const area = Date.now() < goUntil ? document.querySelector(`[data-go="${key}"]`) : null;
  const field = document.querySelector(`[data-key="${key}"]`);
  goUntil = event.key === "g" && !document.querySelector("td.changed") ? Date.now() + GO_MS : 0;
  if (area) {
    area.click();
  } else if (event.key === "?" && list) {
    list.showModal();
  } else if (field) {
    field.focus();
    field.select?.();
  } else {
    return;
  }
  event.preventDefault();
});

/* A deletion can be sent only after the name is typed, as the page shows it or as it is. */
const confirmation = document.querySelector("input[data-expected]");
if (confirmation) {
  const button = confirmation.form.querySelector("button[type=submit]");
  const displayed = (text) => text.replace(/[\u2066-\u2069]/g, "").replace(/[ \t\n\f\r\x1c-\x1e\x85\u2029]+/g, " ").trim();
  const update = () => { button.disabled = displayed(confirmation.value) !== displayed(confirmation.dataset.expected); };
  confirmation.addEventListener("input", update);
  update();
}

/* The matrix shows which cells differ from what is stored, and sends only these. */
const matrix = document.querySelector(".matrix");
const count = document.getElementById("changed"); // not for those who may only look
if (matrix && count) {
  const boxes = [...matrix.querySelectorAll("input[type=checkbox]")];
  const differs = (box) => box.checked !== box.defaultChecked;
  const update = () => {
    for (const box of boxes) box.closest("td").classList.toggle("changed", differs(box));
    const changed = boxes.filter(differs).length;
    count.textContent = count.dataset.text.replace("{changed}", String(changed));
    count.hidden = changed === 0;
  };
  matrix.addEventListener("change", update);
  matrix.addEventListener("keydown", (event) => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    const cell = event.target.closest?.("td");
    if (!move || !cell) return;
    let row = cell.parentElement;
    do row = move[0] < 0 ? row.previousElementSibling : move[0] > 0 ? row.nextElementSibling : row;
    while (row && row.classList.contains("group"));
    const next = row?.children[cell.cellIndex + move[1]]?.querySelector("input");
    if (next) {
      next.focus();
      event.preventDefault();
    }
  });
  window.addEventListener("pageshow", update);
  matrix.closest("form").addEventListener("formdata", ({ formData }) => {
    formData.delete("cell");
    formData.set("differs", boxes.filter(differs).map((box) => box.value).join(" "));
  });
}

/* Leaving a page with unsaved work asks first, except by sending or cancelling it. A page that answers a form, or shows
   again what was typed before a sign-in, begins with unsaved work: what is stored is in the fields "was.…", if anywhere. */
const saved = [...document.querySelectorAll("main form[method=post]:not([data-transient])")];
const isRefilled = document.querySelector("main[data-unsaved]") !== null;
const initial = (field) => {
  const shown = [...field.form.elements].filter((each) => each.name.startsWith("was."));
  if (shown.length || isRefilled) return shown.filter((each) => each.name === `was.${field.name}`).map((each) => each.value);
  if (field.type === "checkbox") return field.defaultChecked ? [field.value] : [];
  if (field.type !== "select-one") return [field.defaultValue];
  return [[...field.options].find((each) => each.defaultSelected)?.value ?? field.options[0]?.value];
};
const isEdited = (field) => {
  if (!field.name || field.disabled || ["hidden", "submit", "file"].includes(field.type) || field.dataset.expected) return false;
  const was = initial(field);
  return field.type === "checkbox" ? field.checked !== was.includes(field.value) : field.value !== (was[0] ?? "");
};
let left = null; /* the form that is being sent or cancelled */
const isUnsaved = (form) => form !== left && ("unsaved" in form.dataset || [...form.elements].some(isEdited));
document.addEventListener("submit", (event) => { left = event.target; });
for (const form of saved) {
  for (const link of form.querySelectorAll(".actions a, .problem a")) link.addEventListener("click", () => { left = form; });
}
window.addEventListener("beforeunload", (event) => {
  if (saved.some(isUnsaved)) event.preventDefault();
  left = null;
});

/* A file fills the field beside it. */
for (const input of document.querySelectorAll("input[type=file][data-fills]")) {
  input.parentElement.hidden = false;
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (file) document.getElementById(input.dataset.fills).value = await file.text();
  });
}

/* The code of an invitation is behind the # of its link: no server sees it there, and it leaves the address bar. */
const code = document.querySelector("form[action$='/console/invitation'] input[name=invitation]");
if (code && location.hash.length > 1) {
  if (!code.value) code.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
}

/* A secret can be copied where the browser lets scripts write to the clipboard. */
for (const button of document.querySelectorAll("[data-copies]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", () => navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent));
}

/* A script editor shows line numbers, and marks the line with an error. */
for (const script of document.querySelectorAll("textarea[data-lines]")) {
  const editor = document.createElement("div");
  const gutter = document.createElement("pre");
  editor.className = "editor";
  gutter.className = "gutter";
  gutter.setAttribute("aria-hidden", "true");
  script.before(editor);
  editor.append(gutter, script);
  const number = () => {
    const lines = script.value.split("\n").length;
    gutter.textContent = Array.from({ length: lines }, (_, line) => (String(line + 1) === script.dataset.wrong ? `▸ ${line + 1}` : line + 1)).join("\n");
  };
  const follow = () => {
    editor.style.height = "";
    gutter.style.height = `${script.offsetHeight}px`;
    gutter.scrollTop = script.scrollTop;
  };
  script.addEventListener("input", () => { number(); follow(); });
  script.addEventListener("scroll", follow);
  new ResizeObserver(follow).observe(script);
  number();
}

/* Clocks count down; with reduced motion, they keep the time that was left when the page was rendered. */
if (document.querySelector("[data-until]") && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
  setInterval(() => {
    for (const clock of document.querySelectorAll("[data-until]")) {
      const left = Math.max(0, Math.floor((Number(clock.dataset.until) - Date.now()) / 1000));
      const parts = [Math.floor(left / 60) % 60, left % 60].map((part) => String(part).padStart(2, "0"));
      clock.textContent = [Math.floor(left / 3600), ...parts].join(":");
    }
  }, 1000);
}

/* A part of a page is replaced with what it is now, unless it is in use. The requests do not prolong the session: a page
   that is left open is signed out like any other. An XMLHttpRequest parses its answer; Trusted Types forbid other ways. */
const REFRESH_MS = 15000;
const part = document.querySelector("[data-refresh]");
const isInUse = () => document.visibilityState !== "visible" || part.querySelector("details[open]") !== null
  || document.getSelection()?.isCollapsed === false || (part.contains(document.activeElement) && isTyping(document.activeElement));
const replacePart = (fresh) => {
  const now = fresh?.getElementById(part.id);
  if (!now || isInUse()) return;
  const nameOf = (each) => each.getAttribute("href") ?? each.parentElement.id;
  const focused = part.contains(document.activeElement) ? nameOf(document.activeElement) : null;
  const scroll = part.querySelector(".table")?.scrollLeft ?? 0;
  showLocalTimes(now);
  part.replaceChildren(...now.childNodes);
  if (focused !== null) {
    const again = [...part.querySelectorAll("a, summary, [tabindex]")].find((each) => nameOf(each) === focused);
    (again ?? document.getElementById("main")).focus({ preventScroll: true });
  }
  if (part.querySelector(".table")) part.querySelector(".table").scrollLeft = scroll;
  const status = document.querySelector("[data-refreshed]");
  const text = fresh.querySelector("[data-refreshed]")?.textContent ?? "";
  if (status && status.textContent !== text) status.textContent = text;
};
if (part) {
  const timer = setInterval(() => {
    if (isInUse()) return;
    const request = new XMLHttpRequest();
    request.open("GET", location.href);
    request.responseType = "document";
    request.setRequestHeader("X-Refresh", "1");
    request.addEventListener("load", () => {
      if (request.status === 200) replacePart(request.response);
      else if (request.status < 500) clearInterval(timer);
    });
    request.send();
  }, REFRESH_MS);
}

/* The results of a search are moved through with the arrow keys, from the field and back to it. */
const find = document.getElementById("find");
const results = [...document.querySelectorAll(".found a")];
document.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const place = results.indexOf(event.target);
  if (!step || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  if (!results.length || (place < 0 && event.target !== find && event.target !== document.body)) return;
  const next = place + step < 0 ? find : results[place + step];
  if (!next || next === event.target) return;
  next.focus();
  event.preventDefault();
});

/* What was searched for lately stays in this browser, for this user, until signing out. */
const RECENT = "stead-searches";
const MAX_RECENT = 8;
const recent = document.getElementById("recent");
const searches = () => {
  try {
    const kept = JSON.parse(localStorage.getItem(RECENT));
    return kept?.user === recent.dataset.user && Array.isArray(kept.texts) ? kept.texts.filter((each) => typeof each === "string") : [];
  } catch {
    return [];
  }
};
if (find && recent) {
  const links = recent.querySelector("ul");
  const show = () => {
    const texts = searches();
    links.replaceChildren(...texts.map((text) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = `/console/search?${new URLSearchParams({ q: text })}`;
      link.dir = "auto";
      link.textContent = text;
      item.append(link);
      return item;
    }));
    recent.hidden = find.value !== "" || texts.length === 0;
  };
  find.addEventListener("focus", show);
  find.addEventListener("input", show);
  find.form.addEventListener("focusout", ({ relatedTarget }) => { if (!find.form.contains(relatedTarget)) recent.hidden = true; });
  find.form.addEventListener("keydown", (event) => {
    const all = [find, ...(recent.hidden ? [] : links.querySelectorAll("a"))];
    const next = all[all.indexOf(event.target) + { ArrowDown: 1, ArrowUp: -1 }[event.key]];
    if (event.key === "Escape" && !recent.hidden) recent.hidden = true;
    else if (next && !recent.hidden) next.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  find.form.addEventListener("submit", () => {
    const text = find.value.trim();
    const texts = [text, ...searches().filter((each) => each !== text)].slice(0, MAX_RECENT);
    if (text && text.length <= 256) localStorage.setItem(RECENT, JSON.stringify({ user: recent.dataset.user, texts }));
  });
  document.querySelector(".account")?.addEventListener("submit", () => localStorage.removeItem(RECENT));
}

/* Times are in the zone of the browser: those of the page, and those of a filter, which says so. */
const ownZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const local = (date) => new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" }).format(date);
const showLocalTimes = (within) => {
  for (const time of within.querySelectorAll("time[data-utc]")) {
    time.title = time.textContent;
    time.textContent = local(new Date(time.dateTime));
  }
};
showLocalTimes(document);
const filter = document.querySelector("form[data-times]");
if (filter && ownZone && !filter.elements.zone.value) {
  for (const name of ["from", "until"]) {
    const field = filter.elements[name];
    if (field.value) field.value = local(new Date(`${field.value}Z`)).replace(" ", "T");
  }
  filter.elements.zone.value = ownZone;
}

/* An empty filter stays out of the address. */
filter?.addEventListener("formdata", ({ formData }) => {
  for (const [name, value] of [...formData]) if (value === "") formData.delete(name);
});

/* A field suggests names that begin with what was typed. */
const SUGGEST_MS = 200;
for (const field of document.querySelectorAll("input[data-suggests]")) {
  let waiting = 0;
  field.addEventListener("input", () => {
    clearTimeout(waiting);
    const typed = field.value.trim();
    if (typed.length < 2) return;
    waiting = setTimeout(async () => {
      const answer = await fetch(`${field.dataset.suggests}&q=${encodeURIComponent(typed)}`).catch(() => null);
      if (!answer?.ok || answer.redirected || field.value.trim() !== typed) return;
      const options = (await answer.json()).map(({ value, label }) => Object.assign(document.createElement("option"), { value, label }));
      field.list.replaceChildren(...options);
    }, SUGGEST_MS);
  });
}
