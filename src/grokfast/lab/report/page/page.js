"use strict";
// Charts take the page's colours, in light and in dark; a button turns the axis of steps from log to linear.
const charts = () => [...document.querySelectorAll(".plotly-graph-div")].filter((chart) => chart.layout);
const axes = (chart, letter) => Object.keys(chart.layout).filter((key) => key.startsWith(letter + "axis"));

function paint() {
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--ink").trim();
  const line = style.getPropertyValue("--line").trim();
  for (const chart of charts()) {
    const change = { "font.color": ink };
    for (const key of [...axes(chart, "x"), ...axes(chart, "y")]) {
      for (const part of ["gridcolor", "linecolor", "zerolinecolor"]) change[`${key}.${part}`] = line;
    }
    Plotly.relayout(chart, change);
  }
}

// Two pictures side by side stand one above the other where the page is narrow.
function stack() {
  for (const chart of charts()) {
    if (!chart.layout.xaxis2) continue;
    const narrow = chart.clientWidth < 640;
    if (narrow === (chart.dataset.narrow === "true")) continue;
    chart.dataset.narrow = String(narrow);
    for (const box of [chart, chart.parentElement]) box.style.height = narrow ? "820px" : "440px";
    Plotly.relayout(chart, narrow
      ? { "xaxis.domain": [0, 1], "xaxis2.domain": [0, 1], "yaxis.domain": [0.58, 1], "yaxis2.domain": [0, 0.42], height: 820 }
      : { "xaxis.domain": [0, 0.45], "xaxis2.domain": [0.55, 1], "yaxis.domain": [0, 1], "yaxis2.domain": [0, 1], height: 440 });
  }
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
    if (trace.showlegend) Object.assign(entry, { name: plain(trace.name), line: trace.line });
    entries.set(trace.legendgroup, entry);
  });
  const named = [...entries.values()].filter((entry) => entry.name);
  if (!named.length) return;
  const box = Object.assign(document.createElement("div"), { className: "names" });
  const hidden = (entry) => chart.data[entry.traces[0]].visible === "legendonly";
  for (const entry of named) {
    entry.button = Object.assign(document.createElement("button"), { type: "button", textContent: entry.name });
    const style = entry.line.dash === "solid" ? "solid" : "double";
    entry.button.style.borderLeft = `0.7rem ${style} ${entry.line.color}`;
    entry.button.addEventListener("click", () => Plotly.restyle(chart, { visible: hidden(entry) ? true : "legendonly" }, entry.traces));
    box.append(entry.button, " ");
  }
  const update = () => named.forEach((entry) => entry.button.setAttribute("aria-pressed", String(!hidden(entry))));
  chart.on("plotly_restyle", update);
  update();
  chart.closest("[role=figure]").after(box);
}

const plain = (name) => new DOMParser().parseFromString(name, "text/html").documentElement.textContent;

for (const button of document.querySelectorAll("button[data-chart]")) button.addEventListener("click", () => turn(button));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
addEventListener("resize", stack);
charts().forEach(addLegend);
paint();
stack();
