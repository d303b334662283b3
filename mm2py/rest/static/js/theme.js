// Runs before the page is drawn, so that the other theme does not flash. The switch itself is in main.js.
"use strict";
try {
  const chosen = localStorage.getItem("mm2py-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* storage may be off: then the system's choice stands */ }
