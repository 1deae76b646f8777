// What a filter does: its gain at each frequency, its answer to one gradient, and to a recorded series of gradients.
import { makeFilter } from "./optimizer.js";

// H(w) without lamb, as [real, imaginary], at w radians per step.
function transfer({ filter, alpha, window_size: n }, w) {
  if (filter === "none") return [0, 0];
  if (w === 0) return [1, 0];
  if (filter === "ema") return divide([1 - alpha, 0], [1 - alpha * Math.cos(w), alpha * Math.sin(w)]);
  return divide([1 - Math.cos(n * w), Math.sin(n * w)], [n * (1 - Math.cos(w)), n * Math.sin(w)]);
}

function divide([a, b], [c, d]) {
  const size = c * c + d * d;
  return [(a * c + b * d) / size, (b * c - a * d) / size];
}

// |H| and |1 + H| at a frequency in cycles per step.
export function gains(settings, frequency) {
  const { lamb } = settings;
  const [re, im] = transfer(settings, 2 * Math.PI * frequency);
  return { slow: lamb * Math.hypot(re, im), total: Math.hypot(1 + lamb * re, lamb * im) };
}

// How much of a gradient is added t = 0, 1, ... steps later.
export function impulse({ filter, alpha, window_size, lamb }, steps) {
  const weights = { none: () => 0, ema: (t) => (1 - alpha) * alpha ** t, ma: (t) => (t < window_size ? 1 / window_size : 0) };
  return Array.from({ length: steps }, (_, t) => lamb * weights[filter](t));
}

// The gradients of one weight as the optimizer gets them.
export function filterSeries(settings, series) {
  const filter = makeFilter(settings, 1);
  return series.map((value, count) => {
    const grads = [value];
    filter(grads, count);
    return grads[0];
  });
}

// Steps that the filter looks back.
export function memory({ filter, alpha, window_size }) {
  return { none: 1, ema: 1 / (1 - alpha), ma: window_size }[filter];
}

// The lowest frequency at which |H| has fallen by 3 dB, by halving; null if it never does.
export function cutoff(settings) {
  const above = (frequency) => gains({ ...settings, lamb: 1 }, frequency).slow > Math.SQRT1_2;
  let low = 0;
  let high = settings.filter === "ma" ? Math.min(0.5, 1 / settings.window_size) : 0.5; // the first zero of a window
  if (settings.filter === "none" || above(high)) return null;
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (above(middle)) low = middle;
    else high = middle;
  }
  return high;
}
