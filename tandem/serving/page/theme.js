// Before anything is drawn: the colours that were chosen here last. A script of its own, because modules come later.
"use strict";

try {
  const kept = localStorage.getItem("tandem-theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch {
  // Storage is forbidden: the system's colours.
}
