// Fetches the page again every few seconds and puts the new content in place of
// the old one. Where that fails it says so: an old page must not look like a
// new one. Without this script the page reloads itself.
"use strict";

const every = 5000; // milliseconds
const patience = 10000;

function openDetails(root) {
  return [...root.querySelectorAll("details[id]")].filter((d) => d.open).map((d) => d.id);
}

// keep takes over what the reader did: opened details, and where the focus is.
function keep(before, after) {
  const open = new Set(openDetails(before));
  for (const d of after.querySelectorAll("details[id]")) d.open = open.has(d.id);
}

async function refresh() {
  const notice = document.getElementById("stale");
  try {
    const answer = await fetch(location.href, {
      cache: "no-store",
      credentials: "same-origin",
      signal: AbortSignal.timeout(patience),
    });
    if (!answer.ok) throw new Error("it answered " + answer.status);
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    const before = document.getElementById("content");
    const after = next.getElementById("content");
    if (!after) throw new Error("it answered with another page");
    keep(before, after);
    const focus = before.contains(document.activeElement) ? document.activeElement.closest("[id]") : null;
    before.replaceWith(after);
    document.title = next.title;
    if (focus) {
      const again = document.getElementById(focus.id);
      if (again) (again.querySelector("summary") || again).focus({ preventScroll: true });
    }
    notice.hidden = true;
  } catch (e) {
    notice.textContent = "The agent does not answer: what is shown here is old. (" + e.message + ")";
    notice.hidden = false;
  }
}

async function loop() {
  if (!document.hidden) await refresh();
  setTimeout(loop, every);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});
setTimeout(loop, every);
