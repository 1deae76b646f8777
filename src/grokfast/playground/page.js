// The page: two workers race, the controls set what they race with, and every picture follows.
import { P, PAIRS, splitPairs } from "./network.js";
import { nextEvaluation, outcome } from "./race.js";
import { drawChart, drawCurves, drawRing, drawTable, readColours, roundTicks, short } from "./drawing.js";
import { cutoff, filterSeries, gains, impulse, memory } from "./response.js";
import { BUDGET, PRESETS, SETTINGS, fromHash, presetSettings, sameSettings, toHash, toPython } from "./settings.js";
import { LEGEND, during, happened, meaning } from "./story.js";

const LEAD = 200; // steps that one network may be ahead of the other
const FRAME = 1000 / 30; // milliseconds between two drawings
const SHOWN = 300; // recorded gradients in their picture
const SPEEDS = { 10: () => 10, 100: () => 100, growing: (step) => 12 + 0.9 * step, full: () => Infinity };

const find = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
let settings = fromHash(location.hash);
let colours = readColours();

// Race ---------------------------------------------------------------------------------------------------------------

const source = URL.createObjectURL(new Blob([find("engine").textContent, "serve(self);"], { type: "text/javascript" }));
const networks = ["without", "filtered"].map((kind) => {
  const worker = new Worker(source);
  const box = document.querySelector(`.network.${kind}`);
  const name = box.querySelector("h2").textContent;
  const network = { kind, name, box, worker, light: new Float64Array(PAIRS), points: new Float64Array(2 * P) };
  worker.onmessage = ({ data }) => receive(network, data);
  worker.onerror = ({ message }) => (find("happened").textContent = `The race could not start: ${message}`);
  return network;
});

const race = { number: 0, state: "ready", limit: 0, allowed: 0, toBudget: false, training: new Uint8Array(PAIRS) };

// A new race from step 0 with the present settings.
function reset(run) {
  race.number++;
  Object.assign(race, { state: run ? "running" : "ready", limit: 0, allowed: 0, toBudget: false });
  race.training.fill(0);
  for (const pair of splitPairs(settings.seed, settings.share).train) race.training[pair] = 1;
  networks.forEach((network) => {
    Object.assign(network, { history: [], recorded: [], outcome: null, latest: null });
    const own = network.kind === "without" ? { ...settings, filter: "none" } : settings;
    network.worker.postMessage({ race: race.number, settings: own });
  });
  showState();
  redraw();
}

function receive(network, report) {
  if (report.race !== race.number) return;
  network.latest = report;
  network.history.push({ step: report.step, train: report.train, val: report.val, broken: report.broken });
  network.recorded.push(...report.recorded);
  network.outcome = outcome(network.history, BUDGET);
  if (race.state === "running" && isOver()) race.state = "over";
  if (race.state === "running") allow();
  showState();
  redraw();
}

const isDone = ({ latest }) => latest !== null && (latest.step >= BUDGET || latest.broken);
const hasUnderstood = ({ outcome }) => outcome !== null && outcome.understood !== null;

function isOver() {
  return networks.every((network) => isDone(network) || (!race.toBudget && hasUnderstood(network)));
}

// Lets both networks go on, as far as the speed and the slower one of them permit.
function allow() {
  const slower = Math.min(...networks.map((network) => (isDone(network) ? BUDGET : network.latest?.step ?? 0)));
  race.allowed = Math.min(race.allowed, slower + LEAD);
  let next = nextEvaluation(race.limit);
  while (next <= race.allowed && next <= BUDGET) {
    race.limit = next;
    next = nextEvaluation(next);
  }
  send();
}

function send() {
  for (const { worker } of networks) worker.postMessage({ race: race.number, limit: race.limit });
}

function start() {
  if (networks.every(isDone)) return;
  if (race.state === "over") race.toBudget = true;
  race.state = "running";
  race.allowed = race.limit;
  showState();
  redraw();
}

function pause() {
  race.state = "paused";
  showState();
}

// One evaluation further.
function once() {
  if (race.state === "running") pause();
  else if (race.limit < BUDGET) {
    race.state = "paused";
    race.limit = nextEvaluation(race.limit);
    send();
  }
  showState();
}

// Text ---------------------------------------------------------------------------------------------------------------

function say(id, text) {
  if (find(id).textContent !== text) find(id).textContent = text; // a screen reader reads what changes
}

function showState() {
  const done = networks.every(isDone);
  say("play", { ready: "Start", running: "Pause", paused: "Continue", over: done ? "Finished" : "Continue" }[race.state]);
  for (const id of ["play", "next"]) find(id).setAttribute("aria-disabled", done);
  const step = Math.min(...networks.map(({ latest }) => latest?.step ?? 0));
  say("step", `step ${step.toLocaleString("en")}`);
  for (const { box, latest } of networks) {
    const text = `${Math.round(100 * (latest?.val ?? 0))}%`;
    if (box.querySelector(".score b").textContent !== text) box.querySelector(".score b").textContent = text;
  }
  const [without, filtered] = networks.map((network) => network.outcome);
  if (!without || !filtered || step === 0) {
    say("happened", race.state === "ready" ? "Press Start: two networks will race from the same weights." : "Ready, steady …");
    say("meaning", LEGEND);
  } else if (race.state === "over") {
    say("happened", happened(without, filtered, settings));
    say("meaning", meaning(without, filtered, settings));
  } else {
    say("happened", during(without, filtered, settings));
    say("meaning", LEGEND);
  }
}

// Pictures -----------------------------------------------------------------------------------------------------------

let [scheduled, drawn, clock] = [false, 0, 0];

function redraw() {
  if (!scheduled) requestAnimationFrame(frame);
  scheduled = true;
}

function frame(now) {
  scheduled = false;
  if (now - drawn < FRAME - 4) return redraw();
  const passed = Math.min(0.1, (now - clock) / 1000); // a page that was hidden does not leap
  [drawn, clock] = [now, now];
  if (race.state === "running") {
    race.allowed += Math.max(0, SPEEDS[find("speed").value](race.allowed) * passed);
    allow();
  }
  const moving = networks.map(moveTowards).some(Boolean);
  drawRace();
  drawSeries();
  if (race.state === "running" || moving) redraw();
}

// Squares and points go to their new places over a few frames; true while they are on their way.
function moveTowards({ latest, light, points }) {
  if (latest === null) return false;
  const pace = calm.matches ? 1 : 0.35;
  let far = 0;
  for (let pair = 0; pair < PAIRS; pair++) {
    const target = latest.answers[pair] === (Math.floor(pair / P) + pair) % P ? 1 : 0;
    far = Math.max(far, Math.abs(target - light[pair]));
    light[pair] += pace * (target - light[pair]);
  }
  for (let i = 0; i < points.length; i++) {
    far = Math.max(far, Math.abs(latest.ring.points[i] - points[i]));
    points[i] += pace * (latest.ring.points[i] - points[i]);
  }
  return far > 0.01;
}

function drawRace() {
  drawCurves(find("curves"), networks.map((network) => ({ ...network, colour: colours[network.kind] })), BUDGET, colours);
  for (const { kind, box, light, points, latest } of networks) {
    drawTable(box.querySelector(".table"), light, race.training, colours[kind], colours);
    drawRing(box.querySelector(".ring"), points, latest?.ring.frequency ?? 1, colours[kind], colours);
  }
}

const range = (count) => Array.from({ length: count }, (_, i) => i);

function drawFilter() {
  const colour = colours.filtered;
  const frequencies = range(300).map((i) => 10 ** (-4 + (i / 299) * (4 + Math.log10(0.5))));
  const found = frequencies.map((frequency) => gains(settings, frequency));
  const curves = [
    { x: frequencies, y: found.map(({ slow }) => slow), colour, width: 1.5, dash: [5, 4] },
    { x: frequencies, y: found.map(({ total }) => total), colour, width: 2.5 },
  ];
  const cycles = { range: [1e-4, 0.5], log: true, ticks: [1e-4, 1e-3, 1e-2, 0.1], title: "cycles per step" };
  const gain = { range: [0.01, Math.max(10, 2 * (1 + settings.lamb))], log: true, ticks: [0.01, 0.1, 1, 10] };
  drawChart(find("transfer"), curves, cycles, gain, colours);
  const long = Math.min(1000, Math.max(20, Math.ceil(4 * memory(settings))));
  const weights = impulse(settings, long);
  const most = 1.1 * weights[0] || 1;
  const later = { range: [0, long - 1], ticks: roundTicks(0, long - 1, 4), title: "steps after a gradient" };
  const part = { range: [0, most], ticks: roundTicks(0, most, 3) };
  drawChart(find("impulse"), [{ x: range(long), y: weights, colour, width: 2.5 }], later, part, colours);
  say("gains", aboutFilter());
}

function aboutFilter() {
  if (settings.filter === "none") return "No filter: every gradient reaches the optimizer as it is.";
  const edge = cutoff(settings);
  const jitter = short(gains(settings, 0.5).total);
  const first = `A change that lasts is multiplied by ${short(1 + settings.lamb)}, jitter from step to step by ${jitter}.`;
  if (edge === null) return first;
  return `${first} Changes that take more than ${Math.round(1 / edge).toLocaleString("en")} steps count as slow.`;
}

function drawSeries() {
  const all = networks[1].recorded;
  const begin = Math.max(0, all.length - SHOWN);
  const raw = all.slice(begin);
  const added = filterSeries(settings, all).slice(begin).map((value, i) => value - raw[i]);
  const size = 1.1 * Math.max(1e-12, ...raw.map(Math.abs), ...added.map(Math.abs));
  const x = range(raw.length).map((i) => begin + i);
  const curves = [
    { x, y: raw, colour: colours.soft, width: 1, alpha: 0.6 },
    { x, y: added, colour: colours.filtered, width: 2.5 },
  ];
  const title = raw.length ? "steps" : "steps (start the race)";
  const steps = { range: [begin, begin + SHOWN], ticks: roundTicks(begin, begin + SHOWN, 3), title };
  drawChart(find("series"), curves, steps, { range: [-size, size], ticks: raw.length ? roundTicks(-size, size, 4) : [0] }, colours);
}

// Controls -----------------------------------------------------------------------------------------------------------

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function makeControl(name) {
  const { values, names, help } = SETTINGS[name];
  const note = element("small", { id: `${name}-help` }, help);
  const described = { id: name, name, "aria-describedby": note.id };
  const label = element("label", { for: name }, name);
  if (name === "seed") {
    const input = element("input", { ...described, type: "number", min: 0, max: values.at(-1) });
    const other = element("button", { type: "button" }, "another seed");
    other.onclick = () => change({ seed: (settings.seed + 1) % values.length });
    return element("div", { class: "control" }, label, element("span", { class: "choice" }, input, other), note);
  }
  if (typeof values[0] === "string") {
    const radio = (value) => element("input", { type: "radio", name, value });
    const options = values.map((value, i) => element("label", {}, radio(value), (names ?? values)[i]));
    const title = element("span", { id: `${name}-name` }, name);
    const role = { role: "radiogroup", "aria-labelledby": title.id, "aria-describedby": note.id };
    return element("div", { class: "control" }, title, element("span", { class: "choice", ...role }, ...options), note);
  }
  const slider = element("input", { ...described, type: "range", min: 0, max: values.length - 1, step: 1 });
  return element("div", { class: "control" }, label, slider, element("output", { for: name }), note);
}

function makeControls() {
  const form = find("controls");
  for (const name of Object.keys(SETTINGS)) {
    const group = ["filter", "alpha", "window_size", "lamb", "start"].includes(name) ? "filter" : "training";
    const control = makeControl(name);
    control.dataset.name = name;
    form.querySelector(`[data-group=${group}]`).append(control);
  }
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => {
    settings = { ...settings, [target.name]: valueOf(target) };
    showSettings(target);
  });
  form.addEventListener("change", () => change({}));
  for (const preset of PRESETS) {
    const button = element("button", { type: "button" }, preset.name, element("small", {}, preset.hint));
    button.onclick = () => change(presetSettings(preset, settings.seed));
    find("presets").append(button);
  }
}

function valueOf({ name, type, value }) {
  const { values } = SETTINGS[name];
  if (type === "range") return values[+value];
  if (type === "number") return Math.min(values.at(-1), Math.max(0, Math.round(+value) || 0));
  return value;
}

// Controls, code and the filter's pictures follow the settings. The field that a user types in is left alone.
function showSettings(typing = null) {
  for (const [name, { values }] of Object.entries(SETTINGS)) {
    const control = document.querySelector(`.control[data-name=${name}]`);
    const index = values.indexOf(settings[name]);
    const input = control.querySelector("input");
    if (input.type === "radio") control.querySelectorAll("input")[index].checked = true;
    else if (input.type === "range") {
      input.value = index;
      input.setAttribute("aria-valuetext", settings[name]);
      control.querySelector("output").textContent = settings[name];
    } else if (input !== typing) input.value = settings[name];
  }
  const filters = { alpha: ["ema"], window_size: ["ma"], lamb: ["ema", "ma"], start: ["ema", "ma"] };
  for (const [name, those] of Object.entries(filters)) {
    document.querySelector(`.control[data-name=${name}]`).hidden = !those.includes(settings.filter);
  }
  [...find("presets").children].forEach((button, i) => {
    button.setAttribute("aria-pressed", sameSettings(settings, presetSettings(PRESETS[i], settings.seed)));
  });
  find("python").textContent = toPython(settings);
  drawFilter();
  redraw();
}

// New settings are a new race, which is also in the address.
function change(values) {
  settings = { ...settings, ...values };
  if (location.hash !== toHash(settings)) history.replaceState(null, "", toHash(settings));
  showSettings();
  reset(!calm.matches);
}

// What the network answers to the sum below the pointer.
function readOut(box, event) {
  const network = networks.find((each) => each.box === box);
  const { left, top, width } = event.target.getBoundingClientRect();
  const square = (at) => Math.min(P - 1, Math.max(0, Math.floor((P * at) / width)));
  const [a, b] = [square(event.clientY - top), square(event.clientX - left)];
  const said = network.latest?.answers[a * P + b];
  const kind = race.training[a * P + b] ? "training" : "new";
  const text = said === (a + b) % P ? `${a} + ${b} = ${said}, right` : `${a} + ${b} = ${(a + b) % P}, it says ${said}`;
  box.querySelector(".readout").textContent = said === undefined ? "" : `${text} (${kind})`;
}

// Start --------------------------------------------------------------------------------------------------------------

makeControls();
find("play").onclick = () => (race.state === "running" ? pause() : start());
find("next").onclick = once;
find("again").onclick = () => reset(true);
for (const { box } of networks) {
  box.querySelector(".table").onpointermove = (event) => readOut(box, event);
  const usual = box.querySelector(".readout").textContent;
  box.querySelector(".table").onpointerleave = () => (box.querySelector(".readout").textContent = usual);
}
addEventListener("hashchange", () => change(fromHash(location.hash)));
addEventListener("resize", () => showSettings());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  colours = readColours();
  showSettings();
});
let interrupted = false;
document.addEventListener("visibilitychange", () => {
  if (document.hidden && race.state === "running") {
    interrupted = true;
    pause();
  } else if (!document.hidden && interrupted) {
    interrupted = false;
    start();
  }
});
showSettings();
reset(!calm.matches && !document.hidden);
