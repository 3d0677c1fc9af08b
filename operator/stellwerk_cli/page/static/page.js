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

function replace(part, fresh) {
  if (part.innerHTML === fresh.innerHTML) return;
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
}

async function look() {
  clearTimeout(timer);
  if (following && !document.hidden) {
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(location.href, { headers, signal: AbortSignal.timeout(60000) });
      if (answer.status !== 304) {
        tag = answer.headers.get("ETag") || "";
        update(await answer.text());
        markEdges();
      }
      say(answer.ok || answer.status === 304 ? "" : "The operator does not answer; trying again.");
    } catch {
      say("The page is no longer served: run `stellwerk page` again.");
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
document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
document.getElementById("answer")?.focus();

document.addEventListener("scroll", markEdges, { capture: true, passive: true });
addEventListener("resize", markEdges);
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button.dataset.copy);
});
offerCopies();
markEdges();
