// Follows the page that is shown: asks for it again, and replaces the parts that have changed.
// Focus and scrolled tables stay as they are; a hidden window asks for nothing.
"use strict";

const main = document.getElementById("content");
const button = document.getElementById("follow");
const news = document.getElementById("news");
const period = 1000 * Number(main.dataset.follow);
let following = true;
let tag = "";
let timer = 0;

function say(text) {
  if (news.textContent !== text) news.textContent = text;
}

// The place of an element among the links and fields of its part, to find it again after a change.
const FOCUSABLE = "a[href], button, input, textarea, summary, [tabindex]";

// A table that goes on beyond an edge says so.
function markEdges() {
  for (const each of document.querySelectorAll(".scroll")) {
    const left = each.scrollLeft > 1 ? "left" : "";
    const right = each.scrollLeft + each.clientWidth < each.scrollWidth - 1 ? "right" : "";
    const more = [left, right].filter(Boolean).join(" ");
    if ((each.dataset.more || "") !== more) each.dataset.more = more;
  }
}

// Buttons that copy a command: there are none where the browser cannot.
function offerCopies() {
  for (const each of document.querySelectorAll("[data-copy]")) each.hidden = !navigator.clipboard;
}

async function copy(name) {
  try {
    await navigator.clipboard.writeText(document.getElementById(name).textContent);
    say("Copied.");
  } catch {
    say("The browser does not allow copying: select the text instead.");
  }
}

// What the operator's page says in a part, without the marks that this script and the reader set.
function said(part) {
  const copied = part.cloneNode(true);
  for (const each of copied.querySelectorAll("[data-more]")) delete each.dataset.more;
  for (const each of copied.querySelectorAll("details[open]")) each.open = false;
  return copied.innerHTML;
}

function replace(part, fresh) {
  for (const { name, value } of fresh.attributes) {
    if (part.getAttribute(name) !== value) part.setAttribute(name, value);
  }
  if (said(part) === said(fresh)) return;
  const focused = part.contains(document.activeElement) ? document.activeElement : null;
  const place = focused ? [...part.querySelectorAll(FOCUSABLE)].indexOf(focused) : -1;
  const address = focused && focused.getAttribute("href");
  const scrolled = [...part.querySelectorAll(".scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
  const opened = [...part.querySelectorAll("details")].map((each) => each.open);
  part.replaceChildren(...fresh.childNodes);
  part.querySelectorAll(".scroll").forEach((each, at) => {
    if (scrolled[at]) [each.scrollLeft, each.scrollTop] = scrolled[at];
  });
  part.querySelectorAll("details").forEach((each, at) => { each.open = Boolean(opened[at]); });
  if (!focused) return;
  const all = [...part.querySelectorAll(FOCUSABLE)];
  const same = address && all.find((each) => each.getAttribute("href") === address);
  (same || all[place] || main).focus({ preventScroll: true });
}

function update(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  const parts = [...document.querySelectorAll("[data-live]")];
  const found = parts.map((part) => fresh.getElementById(part.id));
  if (!parts.length || found.includes(null)) {
    // Another kind of page stands here now: an error, or its end.
    main.replaceChildren(...fresh.getElementById("content").childNodes);
    return;
  }
  parts.forEach((part, at) => replace(part, found[at]));
  readCharts();
}

// The values under the pointer, or at the point that arrow keys have come to. It is found again by
// its moment when the charts have moved on.
let moment = "";

function readCharts(at = -1) {
  const charts = document.getElementById("charts");
  if (!charts) return;
  const readings = JSON.parse(charts.dataset.readings);
  const place = at >= 0 ? at : readings.findIndex((each) => each[1] === moment);
  const reading = readings[place];
  if (at >= 0) moment = reading[1];
  document.getElementById("reading").textContent = reading && moment ? reading[2] : "";
  for (const line of charts.querySelectorAll(".cursor")) {
    line.classList.toggle("at", Boolean(reading && moment));
    if (!reading) continue;
    line.setAttribute("x1", reading[0]);
    line.setAttribute("x2", reading[0]);
  }
}

document.addEventListener("pointermove", (event) => {
  const plot = event.target.closest?.("#charts svg");
  if (!plot) return;
  const box = plot.getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * plot.viewBox.baseVal.width;
  const readings = JSON.parse(document.getElementById("charts").dataset.readings);
  let nearest = 0;
  readings.forEach((each, at) => {
    if (Math.abs(each[0] - x) < Math.abs(readings[nearest][0] - x)) nearest = at;
  });
  readCharts(nearest);
});
document.getElementById("charts")?.addEventListener("keydown", (event) => {
  const readings = JSON.parse(event.currentTarget.dataset.readings);
  const last = readings.length - 1;
  const known = readings.findIndex((each) => each[1] === moment);
  const now = known < 0 ? last + 1 : known;
  const steps = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last };
  if (!(event.key in steps)) return;
  event.preventDefault();
  readCharts(Math.max(0, Math.min(last, steps[event.key])));
});

// While nothing answers, what was shown last stays, greyed and with its time.
let shownAt = new Date();
const stale = document.getElementById("stale");

function keepLast(why) {
  const time = shownAt.toLocaleTimeString([], { hour12: false });
  const text = `What is shown is of ${time}. ${why} Asking again.`;
  if (stale.textContent !== text) stale.textContent = text;
  stale.hidden = false;
  main.classList.add("stale");
}

function isFresh() {
  shownAt = new Date();
  stale.hidden = true;
  main.classList.remove("stale");
}

async function look() {
  clearTimeout(timer);
  if (following && !document.hidden) {
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(location.href, { headers, signal: AbortSignal.timeout(60000) });
      const text = answer.status === 304 ? "" : await answer.text();
      if (answer.status >= 500 && !document.getElementById("error")) {
        const fresh = new DOMParser().parseFromString(text, "text/html");
        keepLast(fresh.querySelector("#error .mistake")?.textContent.trim().replace(/[^.]$/, "$&.") || "The operator does not answer.");
      } else {
        if (answer.status !== 304) {
          tag = answer.headers.get("ETag") || "";
          update(text);
          markEdges();
        }
        isFresh();
      }
    } catch {
      keepLast("The page is no longer served: run `stellwerk page` again.");
    }
  }
  timer = setTimeout(look, period);
}

if (period > 0) {
  button.hidden = false;
  button.addEventListener("click", () => {
    following = !following;
    button.setAttribute("aria-pressed", String(following));
    say(following ? "" : "Paused: what is shown stays as it is.");
    if (following) look();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
  timer = setTimeout(look, period);
}
// The tab of this page comes into sight. Not by scrollIntoView: Chromium lets Tab begin behind what
// that has shown, past the link that skips to the content.
const tab = document.querySelector("nav [aria-current]");
if (tab) {
  const tabs = tab.closest("nav");
  const [shown, all] = [tab, tabs].map((each) => each.getBoundingClientRect());
  tabs.scrollLeft += shown.left + shown.width / 2 - (all.left + all.width / 2);
}
document.getElementById("answer")?.focus();

// Bars follow the numbers that are typed beside them, on one scale.
document.addEventListener("input", (event) => {
  const list = event.target.closest(".weights");
  if (!list) return;
  const rows = [...list.querySelectorAll("li")].filter((row) => row.querySelector("input"));
  const values = rows.map((row) => Math.max(0, Number(row.querySelector("input").value) || 0));
  const highest = Math.max(1, ...values);
  rows.forEach((row, at) => {
    row.querySelector("rect").setAttribute("width", (100 * values[at]) / highest);
    const bar = row.querySelector("svg");
    bar.setAttribute("aria-label", bar.getAttribute("aria-label").replace(/: .*$/, `: ${values[at]}`));
  });
});

// Suggestions for the name that is being typed: links out of the page that Enter leads to.
const find = document.getElementById("find");
const suggestions = document.getElementById("suggestions");
const TYPING_PAUSE_MS = 150; // shorter than the pause after a word, longer than that between letters
let typing = 0;
let asked = null;

async function suggest() {
  asked?.abort();
  asked = new AbortController();
  const text = find.value.trim();
  if (!text) return closeSuggestions();
  try {
    const query = new URLSearchParams({ q: text, suggest: "yes" });
    const answer = await fetch(`/search?${query}`, { signal: asked.signal });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const found = fresh.getElementById("found");
    document.getElementById("suggested").textContent = found ? `${found.children.length} suggestions` : "Nothing is called so.";
    suggestions.replaceChildren(...(found ? [found] : []));
    suggestions.hidden = !found;
  } catch (error) {
    if (error.name !== "AbortError") closeSuggestions();
  }
}

function closeSuggestions() {
  suggestions.hidden = true;
  suggestions.replaceChildren();
}

find.addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(suggest, TYPING_PAUSE_MS);
});
find.form.addEventListener("keydown", (event) => {
  const links = [...suggestions.querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  if (event.key === "Escape") {
    closeSuggestions();
    find.focus();
  } else if (event.key === "ArrowDown" && links.length) {
    links[Math.min(at + 1, links.length - 1)].focus();
    event.preventDefault();
  } else if (event.key === "ArrowUp" && at >= 0) {
    (links[at - 1] || find).focus();
    event.preventDefault();
  }
});
find.form.addEventListener("focusout", (event) => {
  if (!find.form.contains(event.relatedTarget)) closeSuggestions();
});

document.addEventListener("scroll", markEdges, { capture: true, passive: true });
addEventListener("resize", markEdges);
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button.dataset.copy);
});
offerCopies();
markEdges();
