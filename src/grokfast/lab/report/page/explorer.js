"use strict";
// The filter explorer: sliders, three pictures, no library. `grokfastExplorer` has the arithmetic, for those who check it.
(() => {
  const kinds = {
    ema: {
      colour: "#009E73",
      memory: ({ alpha }) => 1 / (1 - alpha),
      // H(w) = (1 - a) / (1 - a e^-iw)
      transfer: ({ alpha }, w) => divide([1 - alpha, 0], [1 - alpha * Math.cos(w), alpha * Math.sin(w)]),
      impulse: ({ alpha }, t) => (1 - alpha) * alpha ** t,
      // The first gradient seeds the average.
      slow: ({ alpha }, grads) => {
        let mean = grads[0];
        return grads.map((g) => (mean = alpha * mean + (1 - alpha) * g));
      },
    },
    ma: {
      colour: "#D55E00",
      memory: ({ window }) => window,
      // H(w) = (1 / W) (1 - e^-iwW) / (1 - e^-iw)
      transfer: ({ window: n }, w) =>
        w === 0 ? [1, 0] : divide([1 - Math.cos(n * w), Math.sin(n * w)], [n * (1 - Math.cos(w)), n * Math.sin(w)]),
      impulse: ({ window: n }, t) => (t < n ? 1 / n : 0),
      // Nothing is added before the window is full.
      slow: ({ window: n }, grads) => {
        let sum = 0;
        return grads.map((g, t) => {
          sum += g - (t >= n ? grads[t - n] : 0);
          return t + 1 < n ? 0 : sum / n;
        });
      },
    },
  };

  function divide([a, b], [c, d]) {
    const size = c * c + d * d;
    return [(a * c + b * d) / size, (b * c - a * d) / size];
  }

  // |h| and |1 + h| at a frequency in cycles per step.
  function gains(kind, values, frequency) {
    const [re, im] = kinds[kind].transfer(values, 2 * Math.PI * frequency);
    return { slow: values.lamb * Math.hypot(re, im), total: Math.hypot(1 + values.lamb * re, values.lamb * im) };
  }

  function impulse(kind, values, steps) {
    return Array.from({ length: steps }, (_, t) => values.lamb * kinds[kind].impulse(values, t));
  }

  function apply(kind, values, grads) {
    const slow = kinds[kind].slow(values, grads);
    return grads.map((g, t) => g + values.lamb * slow[t]);
  }

  // Where |h| has fallen by 3 dB, by halving; null where it never does.
  function cutoff(kind, values) {
    const one = { ...values, lamb: 1 };
    const above = (f) => gains(kind, one, f).slow > Math.SQRT1_2;
    const end = kind === "ma" ? 1 / values.window : 0.5; // the first zero of a window
    let [low, high] = [0, Math.min(end, 0.5)];
    if (above(high)) return null;
    for (let i = 0; i < 60; i++) [low, high] = above((low + high) / 2) ? [(low + high) / 2, high] : [low, (low + high) / 2];
    return high;
  }

  globalThis.grokfastExplorer = { gains, impulse, apply, cutoff };

  // Pictures ----------------------------------------------------------------------------------------------------------

  const HEIGHT = 230;
  const edge = { left: 52, right: 10, top: 8, bottom: 40 };

  function element(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function ticksOf([low, high], log, most) {
    if (log) {
      const ends = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
      return Array.from({ length: ends[1] - ends[0] + 1 }, (_, i) => 10 ** (ends[0] + i));
    }
    const raw = (high - low) / most;
    const base = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((n) => n * base).find((size) => size >= raw);
    const found = [];
    for (let i = Math.ceil(low / step); i * step <= high + 1e-12 * step; i++) found.push(i * step);
    return found;
  }

  const text = (value) => (value === 0 ? "0" : Math.abs(value) >= 1e-4 && Math.abs(value) < 1e5 ? String(+value.toPrecision(3)) : value.toExponential(0));

  // Lines as {x, y, colour, dash, width}; axes as {title, range, log}.
  function draw(svg, lines, x, y) {
    const width = Math.max(260, svg.clientWidth || 320);
    svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const place = (axis, from, to) => {
      const at = axis.log ? Math.log10 : (value) => value;
      const [low, high] = axis.range.map(at);
      return (value) => from + ((at(value) - low) / (high - low)) * (to - from);
    };
    const across = place(x, edge.left, width - edge.right);
    const up = place(y, HEIGHT - edge.bottom, edge.top);
    const parts = [];
    for (const value of ticksOf(x.range, x.log, 5)) {
      parts.push(element("line", { x1: across(value), x2: across(value), y1: edge.top, y2: HEIGHT - edge.bottom, class: "grid" }));
      parts.push(element("text", { x: across(value), y: HEIGHT - edge.bottom + 15, "text-anchor": "middle" }, text(value)));
    }
    for (const value of ticksOf(y.range, y.log, 4)) {
      parts.push(element("line", { x1: edge.left, x2: width - edge.right, y1: up(value), y2: up(value), class: "grid" }));
      parts.push(element("text", { x: edge.left - 5, y: up(value) + 4, "text-anchor": "end" }, text(value)));
    }
    parts.push(element("text", { x: (width + edge.left) / 2, y: HEIGHT - 6, "text-anchor": "middle" }, x.title));
    for (const line of lines) {
      const points = line.x.map((value, i) => `${across(value).toFixed(1)},${up(Math.min(Math.max(line.y[i], y.range[0]), y.range[1])).toFixed(1)}`);
      parts.push(element("polyline", { points: points.join(" "), fill: "none", stroke: line.colour, "stroke-width": line.width ?? 2, "stroke-dasharray": line.dash ?? "", opacity: line.opacity ?? 1 }));
    }
    svg.replaceChildren(...parts);
  }

  const steps = (count) => Array.from({ length: count }, (_, i) => i);

  function show(box) {
    const find = (name) => box.querySelector(`[name=${name}]`);
    const kind = find("kind").value;
    const window = Math.round(10 ** +find("window").value);
    const values = { alpha: 1 - 10 ** -find("alpha").value, lamb: +find("lamb").value, window };
    const shown = { alpha: text(values.alpha), lamb: text(values.lamb), window: String(window) };
    for (const name in shown) {
      find(name).setAttribute("aria-valuetext", shown[name]);
      box.querySelector(`output[for$=${name}]`).textContent = shown[name];
    }
    find("alpha").closest("label").hidden = kind !== "ema";
    find("window").closest("label").hidden = kind !== "ma";
    const { colour, memory } = kinds[kind];
    const frequency = steps(400).map((i) => 10 ** (-4 + (i / 399) * Math.log10(0.5 / 1e-4)));
    const found = frequency.map((f) => gains(kind, values, f));
    const [transfer, answer, work] = box.querySelectorAll("svg");
    draw(transfer, [
      { x: frequency, y: found.map((g) => g.total), colour },
      { x: frequency, y: found.map((g) => g.slow), colour, dash: "5 4", width: 1.3 },
    ], { title: "cycles per step", range: [1e-4, 0.5], log: true }, { range: [1e-2, Math.max(10, 2 * (1 + values.lamb))], log: true });
    const long = Math.min(1000, Math.max(20, Math.ceil(4 * memory(values))));
    const weights = impulse(kind, values, long);
    draw(answer, [{ x: steps(long), y: weights, colour }], { title: "steps after a gradient", range: [0, long - 1] }, { range: [0, 1.1 * weights[0] || 1] });
    const grads = JSON.parse(box.querySelector("script").textContent);
    const after = apply(kind, values, grads);
    const top = 1.05 * Math.max(...after.map(Math.abs), ...grads.map(Math.abs));
    draw(work, [
      { x: steps(grads.length), y: grads, colour: "#7F7F7F", width: 1, opacity: 0.7 },
      { x: steps(grads.length), y: after, colour, width: 1.2 },
    ], { title: "steps", range: [0, grads.length - 1] }, { range: [-top, top] });
    const at = cutoff(kind, values);
    box.querySelector("[role=status]").textContent =
      `A change that lasts is multiplied by ${text(1 + values.lamb)}, jitter from step to step by ${text(gains(kind, values, 0.5).total)}. ` +
      (at === null ? "It has no cutoff." : `Changes that take longer than ${Math.round(1 / at).toLocaleString("en")} steps count as slow (cutoff ${at.toPrecision(3)} cycles per step).`);
  }

  for (const box of document.querySelectorAll(".explorer")) {
    box.addEventListener("input", () => show(box));
    addEventListener("resize", () => show(box));
    box.closest("details")?.addEventListener("toggle", () => show(box));
    show(box);
  }
})();
