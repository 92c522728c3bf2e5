"use strict";

// Progress of a run: the server's own fragment, asked for again while the page is looked at.
for (const place of document.querySelectorAll("[data-live]")) {
  const again = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(place.dataset.live, { credentials: "same-origin" });
        if (answer.ok) {
          const open = [...place.querySelectorAll("details")].map((one) => one.open);
          const focused = place.contains(document.activeElement);
          const text = await answer.text();
          if (!focused && text !== place.dataset.last) {
            place.innerHTML = text;
            place.dataset.last = text;
            place.querySelectorAll("details").forEach((one, at) => { one.open = Boolean(open[at]); });
          }
        }
      } catch {
        // The server is gone or busy: the next try says more.
      }
    }
    setTimeout(again, Number(place.dataset.pause));
  };
  setTimeout(again, Number(place.dataset.pause));
}

// A page that waits for something loads itself again; not under the fingers of somebody who fills in a form.
const waiting = document.querySelector("[data-reload]");
if (waiting) {
  const reload = () => {
    const at = document.activeElement;
    if (at && ["INPUT", "SELECT", "TEXTAREA"].includes(at.tagName)) setTimeout(reload, 1000);
    else location.reload();
  };
  setTimeout(reload, Number(waiting.dataset.reload));
}

// j and k go from row to row, and a key named at a field goes to that field.
const links = [...document.querySelectorAll("[data-rows] tbody th a")];
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName)) return;
  const field = [...document.querySelectorAll("[data-key]")].find((one) => one.dataset.key === event.key);
  if (field) {
    event.preventDefault();
    field.focus();
    return;
  }
  const step = { j: 1, k: -1 }[event.key];
  if (!step || !links.length) return;
  const now = links.indexOf(document.activeElement);
  links[Math.min(links.length - 1, Math.max(0, now < 0 ? (step > 0 ? 0 : links.length - 1) : now + step))].focus();
});
