// Renews the overview while somebody looks; without this script it is as of when it was loaded.
"use strict";
const live = document.getElementById("live");
if (live && window.EventSource) {
  const source = new EventSource("/events");
  source.onmessage = (event) => {
    const page = new DOMParser().parseFromString(event.data, "text/html");
    const next = page.getElementById("live");
    const now = document.getElementById("live");
    const open = now.querySelector("details")?.open;
    if (next) {
      if (open) next.querySelector("details")?.setAttribute("open", "");
      now.replaceWith(next);
    }
  };
}
