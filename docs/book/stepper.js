// Plays a table as a picture, a row a step: each table after an element with the class "stepper".
// Without this script the table is read as it is. Keys: left and right.
"use strict";

function play(place, table) {
  const [head, ...rows] = [...table.rows].map((row) => [...row.cells].map((cell) => cell.innerHTML));
  let at = 0;
  const make = (name, classes) => Object.assign(document.createElement(name), { className: classes });
  const [step, boxes, buttons] = [make("p", "stepper-step"), make("div", "stepper-boxes"), make("p", "stepper-buttons")];
  step.setAttribute("aria-live", "polite");
  const show = () => {
    const row = rows[at];
    step.innerHTML = `${at + 1} of ${rows.length}: ${row[0]}`;
    boxes.replaceChildren(...head.slice(1).map((title, column) => {
      const box = make("div", "stepper-box");
      const before = at > 0 ? rows[at - 1][column + 1] : "";
      if (row[column + 1] !== before) box.classList.add("changed");
      box.innerHTML = `<b>${title}</b><span>${row[column + 1] || "–"}</span>`;
      return box;
    }));
    back.disabled = at === 0;
    next.disabled = at === rows.length - 1;
  };
  const button = (text, by) => {
    const made = Object.assign(make("button", ""), { type: "button", textContent: text });
    made.addEventListener("click", () => go(by));
    return made;
  };
  const go = (by) => {
    at = Math.min(rows.length - 1, Math.max(0, at + by));
    show();
  };
  const [back, next] = [button("◀ Back", -1), button("Next ▶", 1)];
  buttons.append(back, next);
  place.tabIndex = 0;
  place.setAttribute("role", "group");
  place.setAttribute("aria-label", "The table below, step by step; left and right keys");
  place.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      go(event.key === "ArrowLeft" ? -1 : 1);
      event.preventDefault();
      event.stopPropagation();
    }
  });
  place.append(step, boxes, buttons);
  show();
}

document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll(".stepper")) {
    let next = place.nextElementSibling;
    while (next && !next.querySelector("table") && next.tagName !== "TABLE") next = next.nextElementSibling;
    const table = next && (next.tagName === "TABLE" ? next : next.querySelector("table"));
    if (table) play(place, table);
  }
});
