"use strict";
// Charts are drawn when they are first seen: at once, or when the fold they are in is opened. They take the page's colours.
const drawn = () => [...document.querySelectorAll(".plotly-graph-div")].filter((chart) => chart.layout);
const axes = (chart, letter) => Object.keys(chart.layout).filter((key) => key.startsWith(letter + "axis"));
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function draw(chart) {
  if (chart.layout || chart.closest("details:not([open])")) return;
  const { data, layout } = JSON.parse(chart.nextElementSibling.textContent);
  Plotly.newPlot(chart, data, layout, { responsive: true, displayModeBar: false });
  chart.dataset.ticks = layout.xaxis.nticks ?? 0;
  addLegend(chart);
  paint(chart);
  stack(chart);
}

function paint(chart) {
  const change = { "font.color": colour("--ink") };
  for (const key of [...axes(chart, "x"), ...axes(chart, "y")]) {
    for (const part of ["gridcolor", "linecolor", "zerolinecolor"]) change[`${key}.${part}`] = colour("--line");
  }
  (chart.layout.annotations ?? []).forEach((_, i) => (change[`annotations[${i}].bgcolor`] = `${colour("--back")}b0`));
  Plotly.relayout(chart, change);
}

// Where the page is narrow, pictures side by side stand one above the other, and there are fewer numbers at the axes.
function stack(chart) {
  const count = axes(chart, "x").length;
  const narrow = chart.clientWidth < 640;
  if (narrow === (chart.dataset.narrow === "true")) return;
  chart.dataset.narrow = String(narrow);
  const ticks = narrow ? 4 : +chart.dataset.ticks;
  Plotly.relayout(chart, Object.fromEntries(axes(chart, "x").filter((key) => !chart.layout[key].tickvals).map((key) => [`${key}.nticks`, ticks])));
  if (count < 2) return;
  const gap = narrow ? 0.16 / (count - 1) : 0.1;
  const size = (1 - gap * (count - 1)) / count;
  const height = narrow ? 410 * count : 440;
  const change = { height };
  for (let i = 0; i < count; i++) {
    const start = i * (size + gap);
    const number = i ? i + 1 : "";
    change[`xaxis${number}.domain`] = narrow ? [0, 1] : [start, start + size];
    change[`yaxis${number}.domain`] = narrow ? [1 - start - size, 1 - start] : [0, 1];
  }
  chart.style.height = `${height}px`;
  Plotly.relayout(chart, change);
}

function turn(button) {
  const linear = button.getAttribute("aria-pressed") !== "true";
  const chart = document.getElementById(button.dataset.chart);
  const change = {};
  for (const key of axes(chart, "x")) {
    change[`${key}.type`] = linear ? "linear" : "log";
    change[`${key}.autorange`] = true;
  }
  Plotly.relayout(chart, change);
  button.setAttribute("aria-pressed", String(linear));
}

// The legend: buttons that wrap, that a keyboard reaches, and that show and hide a curve.
function addLegend(chart) {
  const entries = new Map();
  chart.data.forEach((trace, i) => {
    if (!trace.legendgroup) return;
    const entry = entries.get(trace.legendgroup) ?? { traces: [] };
    entry.traces.push(i);
    if (trace.showlegend) Object.assign(entry, { name: plain(trace.name), look: trace.line ?? trace.marker, opacity: trace.opacity ?? 1 });
    entries.set(trace.legendgroup, entry);
  });
  const named = [...entries.values()].filter((entry) => entry.name);
  if (!named.length) return;
  const box = Object.assign(document.createElement("div"), { className: "names" });
  const hidden = (entry) => chart.data[entry.traces[0]].visible === "legendonly";
  for (const entry of named) {
    entry.button = Object.assign(document.createElement("button"), { type: "button", textContent: entry.name });
    const style = (entry.look.dash ?? "solid") === "solid" ? "solid" : "double";
    if (entry.look.symbol) entry.button.dataset.mark = String(entry.look.symbol).startsWith("x") ? "×" : "○";
    const opacity = Math.round(255 * entry.opacity).toString(16).padStart(2, "0");
    entry.button.style.borderLeft = `0.7rem ${style} ${entry.look.color}${opacity}`;
    entry.button.addEventListener("click", () => Plotly.restyle(chart, { visible: hidden(entry) ? true : "legendonly" }, entry.traces));
    box.append(entry.button, " ");
  }
  const update = () => named.forEach((entry) => entry.button.setAttribute("aria-pressed", String(!hidden(entry))));
  chart.on("plotly_restyle", update);
  update();
  chart.closest("[role=figure]").after(box);
}

const plain = (name) => new DOMParser().parseFromString(name, "text/html").documentElement.textContent;

// A box that shows only a part of what is in it says so.
function hint() {
  for (const box of document.querySelectorAll(".scroll, pre")) {
    box.classList.remove("wide", "tall"); // the line that says it takes space itself
    const [wide, tall] = [box.scrollWidth > box.clientWidth + 1, box.scrollHeight > box.clientHeight + 1];
    box.classList.toggle("wide", wide);
    box.classList.toggle("tall", tall);
  }
}

function look() {
  document.querySelectorAll(".plotly-graph-div").forEach(draw);
  hint();
}

for (const button of document.querySelectorAll("button[data-chart]")) button.addEventListener("click", () => turn(button));
for (const fold of document.querySelectorAll("details")) fold.addEventListener("toggle", look);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn().forEach(paint));
addEventListener("resize", () => (drawn().forEach(stack), hint()));
look();
