"use strict";
// Views are drawn when they are first seen: at once, or when the fold they are in is opened.
const look = JSON.parse(document.getElementById("look").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const drawn = new Map(); // the views of a picture, by its element

async function draw(picture) {
  if (drawn.has(picture) || picture.closest("details:not([open])")) return;
  drawn.set(picture, []);
  await show(picture, (spec) => spec);
}

// Draws a picture anew, each of its views as `change` makes it.
async function show(picture, change) {
  const specs = JSON.parse(picture.querySelector("script").textContent).map(change);
  const places = picture.querySelectorAll(".view");
  const options = { actions: false, renderer: "svg", config: look, tooltip: { theme: dark.matches ? "dark" : "light" } };
  const made = await Promise.all(specs.map((spec, i) => vegaEmbed(places[i], spec, options)));
  drawn.get(picture).forEach((view) => view.finalize());
  drawn.set(picture, made.map((each) => each.view));
  hide(picture);
}

// The buttons below a picture show and hide what has their name.
function hide(picture) {
  const off = [...picture.querySelectorAll(".names button[aria-pressed=false]")].map((button) => button.textContent);
  for (const view of drawn.get(picture) ?? []) view.signal("hidden", off).runAsync();
}

function turn(button) {
  button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
}

// Linear steps instead of logarithmic ones.
function rescale(button) {
  turn(button);
  const linear = button.getAttribute("aria-pressed") === "true";
  const walk = (part) => {
    if (part.encoding?.x?.scale?.type === "log" && linear) {
      part.encoding.x.scale = { type: "linear", zero: true };
      delete part.encoding.x.axis.values;
    }
    part.layer?.forEach(walk);
    return part;
  };
  show(document.getElementById(button.dataset.scale), walk);
}

// A box that shows only a part of what is in it says so.
function hint() {
  for (const box of document.querySelectorAll(".scroll, pre")) {
    box.classList.remove("wide", "tall"); // the line that says it takes space itself
    const [wide, tall] = [box.scrollWidth > box.clientWidth + 1, box.scrollHeight > box.clientHeight + 1];
    box.classList.toggle("wide", wide);
    box.classList.toggle("tall", tall);
  }
}

function see() {
  document.querySelectorAll(".picture").forEach(draw);
  hint();
}

for (const picture of document.querySelectorAll(".picture")) {
  for (const button of picture.querySelectorAll(".names button")) {
    button.addEventListener("click", () => (turn(button), hide(picture)));
  }
}
for (const button of document.querySelectorAll("button[data-scale]")) button.addEventListener("click", () => rescale(button));
for (const fold of document.querySelectorAll("details")) fold.addEventListener("toggle", see);
addEventListener("resize", hint);
see();
