// Pictures on canvases: the curves of the race, the table of sums, the ring of numbers, and small charts of the filter.
import { P, PAIRS } from "./network.js";

const FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif";

// Colours are those of the style sheet, in light and in dark.
export function readColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["ink", "soft", "line", "card", "empty", "known", "without", "filtered"];
  return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

// A canvas cleared and scaled, so that drawing is in CSS pixels on every screen.
function prepare(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = globalThis.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

function line(pen, points, { colour, width = 2, dash = [], alpha = 1 }) {
  pen.save();
  pen.beginPath();
  points.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.setLineDash(dash);
  Object.assign(pen, { strokeStyle: colour, lineWidth: width, lineJoin: "round", lineCap: "round", globalAlpha: alpha });
  pen.stroke();
  pen.restore();
}

function write(pen, text, x, y, { colour, size = 12, weight = 400, align = "left", back = null }) {
  Object.assign(pen, { font: `${weight} ${size}px ${FONT}`, textAlign: align, textBaseline: "middle" });
  if (back) {
    Object.assign(pen, { strokeStyle: back, lineWidth: 4, lineJoin: "round" });
    pen.strokeText(text, x, y);
  }
  pen.fillStyle = colour;
  pen.fillText(text, x, y);
}

function dot(pen, x, y, radius, fill, stroke = null) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fillStyle = fill;
  pen.fill();
  if (stroke) {
    Object.assign(pen, { strokeStyle: stroke, lineWidth: 2 });
    pen.stroke();
  }
}

// Moves labels apart, keeping their order from top to bottom.
function apart(labels, gap, top, bottom) {
  labels.sort((a, b) => a.y - b.y);
  for (let i = 1; i < labels.length; i++) labels[i].y = Math.max(labels[i].y, labels[i - 1].y + gap);
  for (let i = labels.length - 1; i >= 0; i--) {
    labels[i].y = Math.min(labels[i].y, i === labels.length - 1 ? bottom : labels[i + 1].y - gap);
  }
  return labels;
}

// Accuracy over steps. Each network has a history, an outcome, a colour and a short name.
export function drawCurves(canvas, networks, budget, colours) {
  const { pen, width, height } = prepare(canvas);
  const narrow = width < 500;
  pen.font = `600 13px ${FONT}`;
  const edge = { left: 44, right: 14 + pen.measureText(narrow ? "training 100%" : "without filter 100%").width, top: 16, bottom: 34 };
  const right = width - edge.right;
  const bottom = height - edge.bottom;
  const across = (step) => edge.left + (Math.log10(Math.max(1, step)) / Math.log10(budget)) * (right - edge.left);
  const up = (share) => bottom - share * (bottom - edge.top);

  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    line(pen, [[edge.left, up(share)], [right, up(share)]], { colour: colours.line, width: 1 });
    write(pen, `${100 * share}%`, edge.left - 8, up(share), { colour: colours.soft, align: "right" });
  }
  for (const step of narrow ? [1, 10, 100, budget] : [1, 10, 100, 1000, budget]) {
    line(pen, [[across(step), bottom], [across(step), bottom + 5]], { colour: colours.soft, width: 1 });
    write(pen, step.toLocaleString("en"), across(step), bottom + 15, { colour: colours.soft, align: "center" });
  }
  if (!narrow) write(pen, "steps", right + 26, bottom + 15, { colour: colours.soft });

  const labels = [];
  for (const { history, colour, name } of networks) {
    if (!history.length) continue;
    const last = history.at(-1);
    line(pen, history.map(({ step, train }) => [across(step), up(train)]), { colour, width: 1.6, dash: [2, 5], alpha: 0.9 });
    line(pen, history.map(({ step, val }) => [across(step), up(val)]), { colour, width: 3 });
    const [x, y] = [across(last.step), up(last.val)];
    const text = `${narrow ? name.replace(" filter", "") : name} ${Math.round(100 * last.val)}%`;
    labels.push({ x, y, text, colour, weight: 600, tip: [x, y] });
  }
  labels.push(...trainingLabels(networks, across, up, colours));
  for (const { history, outcome, colour } of networks) {
    if (!outcome || outcome.understood === null) continue;
    const x = across(outcome.understood);
    const y = up(history.find(({ step }) => step === outcome.understood).val);
    line(pen, [[x, y], [x, bottom]], { colour, width: 1.2, dash: [3, 4] });
    dot(pen, x, y, 5, colours.card, colour);
  }
  const put = (label, x) => write(pen, label.text, x, label.y, { ...label, size: 13, back: colours.card });
  for (const label of understoodLabels(pen, networks, across, up, width, narrow)) put(label, label.x);
  for (const label of labels) if (label.tip) dot(pen, ...label.tip, 4, label.colour);
  for (const label of apart(labels, 17, edge.top, bottom - 8)) put(label, label.x + 9);
}

// One label for both training curves while they are close to each other.
function trainingLabels(networks, across, up, colours) {
  const shown = networks.filter(({ history }) => history.length);
  if (!shown.length) return [];
  const ends = shown.map(({ history }) => history.at(-1));
  const [low, high] = [Math.min(...ends.map((end) => end.train)), Math.max(...ends.map((end) => end.train))];
  const near = ends.some((end) => Math.abs(end.val - end.train) < 0.03);
  if (high - low < 0.08) {
    if (near && ends[0].step < 20) return [];
    const step = Math.max(...ends.map((end) => end.step));
    return [{ x: across(step), y: up(high) - 1, text: `training ${Math.round(100 * high)}%`, colour: colours.soft }];
  }
  return shown.map(({ colour, history }) => {
    const end = history.at(-1);
    return { x: across(end.step), y: up(end.train), text: `training ${Math.round(100 * end.train)}%`, colour };
  });
}

// The first to understand is named on its left, the second on its right if there is room.
function understoodLabels(pen, networks, across, up, width, narrow) {
  const understood = networks.filter(({ outcome }) => outcome && outcome.understood !== null);
  understood.sort((a, b) => a.outcome.understood - b.outcome.understood);
  pen.font = `600 13px ${FONT}`;
  return understood.map(({ outcome, colour }, i) => {
    const text = `${narrow ? "" : "understood "}at ${outcome.understood.toLocaleString("en")}`;
    const x = across(outcome.understood);
    const wide = pen.measureText(text).width;
    const after = i === 1 && x + 12 + wide < width;
    const y = up(i === 0 ? 0.9 : narrow ? 0.66 : 0.8);
    return { text, colour, weight: 600, x: after ? x + 12 : Math.max(4, x - 14 - wide), y };
  });
}

// All sums: a row and a column for each number. `light` is how bright each square is, from 0 to 1.
export function drawTable(canvas, light, training, colour, colours) {
  const { pen, width } = prepare(canvas);
  const size = width / P;
  const gap = Math.max(0.6, size * 0.09);
  for (let pair = 0; pair < PAIRS; pair++) {
    const [x, y] = [(pair % P) * size, Math.floor(pair / P) * size];
    pen.globalAlpha = 1;
    pen.fillStyle = colours.empty;
    pen.fillRect(x + gap, y + gap, size - 2 * gap, size - 2 * gap);
    pen.globalAlpha = light[pair];
    pen.fillStyle = training[pair] ? colours.known : colour;
    pen.fillRect(x + gap, y + gap, size - 2 * gap, size - 2 * gap);
    if (!training[pair]) continue;
    pen.globalAlpha = 0.55;
    pen.fillStyle = colours.soft;
    const mark = size * 0.22;
    pen.fillRect(x + (size - mark) / 2, y + (size - mark) / 2, mark, mark);
  }
  pen.globalAlpha = 1;
}

// The numbers 0 .. P-1 as points, joined in the order of their angle at this frequency.
export function drawRing(canvas, points, frequency, colour, colours) {
  const { pen, width, height } = prepare(canvas);
  const farthest = Math.max(1, ...Array.from({ length: P }, (_, n) => Math.hypot(points[2 * n], points[2 * n + 1])));
  const radius = (0.46 * Math.min(width, height) - 4) / Math.max(1.15, farthest);
  const place = (n) => [width / 2 + radius * points[2 * n], height / 2 - radius * points[2 * n + 1]];
  pen.beginPath();
  pen.arc(width / 2, height / 2, radius, 0, 2 * Math.PI);
  Object.assign(pen, { strokeStyle: colours.line, lineWidth: 1 });
  pen.stroke();
  const order = Array.from({ length: P }, (_, n) => n).sort((a, b) => ((a * frequency) % P) - ((b * frequency) % P));
  line(pen, [...order, order[0]].map(place), { colour, width: 1.5, alpha: 0.55 });
  const size = width < 150 ? 8 : 10;
  for (let n = 0; n < P; n++) {
    const [x, y] = place(n);
    dot(pen, x, y, size * 0.82, colours.card, colour);
    write(pen, String(n), x, y + 0.5, { colour: colours.ink, size, align: "center" });
  }
}

// A small chart. Lines are {x, y, colour, width, dash, alpha}, axes {range, log, ticks, title}.
export function drawChart(canvas, lines, x, y, colours) {
  const { pen, width, height } = prepare(canvas);
  const edge = { left: 48, right: 22, top: 10, bottom: 38 };
  const scale = (axis, from, to) => {
    const at = axis.log ? (value) => Math.log10(Math.max(value, axis.range[0])) : (value) => value;
    const [low, high] = axis.range.map(at);
    return (value) => from + ((at(value) - low) / (high - low)) * (to - from);
  };
  const across = scale(x, edge.left, width - edge.right);
  const up = scale(y, height - edge.bottom, edge.top);
  for (const value of y.ticks) {
    line(pen, [[edge.left, up(value)], [width - edge.right, up(value)]], { colour: colours.line, width: 1 });
    write(pen, short(value), edge.left - 6, up(value), { colour: colours.soft, size: 11, align: "right" });
  }
  const below = { colour: colours.soft, size: 11, align: "center" };
  for (const value of x.ticks) write(pen, short(value), across(value), height - edge.bottom + 13, below);
  write(pen, x.title, (edge.left + width - edge.right) / 2, height - 9, below);
  pen.save();
  pen.beginPath();
  pen.rect(edge.left, edge.top - 2, width - edge.left - edge.right, height - edge.top - edge.bottom + 4);
  pen.clip();
  for (const curve of lines) line(pen, curve.x.map((value, i) => [across(value), up(curve.y[i])]), curve);
  pen.restore();
}

export function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e5) return (+value.toPrecision(3)).toLocaleString("en");
  return value.toExponential(0).replace("e-", "e−").replace("e+", "e");
}

// About `most` round numbers in a range.
export function roundTicks(low, high, most) {
  const raw = (high - low) / most || 1;
  const base = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * base).find((size) => size >= raw * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high * (1 + 1e-9); i++) ticks.push(+(i * step).toPrecision(12));
  return ticks;
}
