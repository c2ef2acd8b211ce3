// Fetches the page again every few seconds and puts the new content in place of
// the old one. Where that fails it says so: an old page must not look like a
// new one. Without this script the page reloads itself.
"use strict";

const every = 5000; // milliseconds
const patience = 10000;

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
    before.replaceWith(after);
    document.title = next.title;
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
