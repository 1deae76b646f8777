// What can be set, the presets that tell the story, and both as the text behind the # of the address.

export const BUDGET = 6000; // steps of a race

// Every setting has a list of values. `names` are those that a user reads.
export const SETTINGS = {
  filter: { values: ["none", "ema", "ma"], names: ["none", "EMA", "MA"], help: "of the right network" },
  alpha: { values: [0, 0.5, 0.8, 0.9, 0.95, 0.96, 0.98, 0.99, 0.995, 0.998], help: "memory of the average" },
  window_size: { values: [2, 5, 10, 20, 30, 50, 75, 100, 150, 200], help: "gradients in the mean" },
  lamb: { values: [0, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9, 10], help: "how much of the slow part is added" },
  start: { values: [0, 50, 100, 150, 200, 300, 500, 1000, 2000], help: "first step with the filter; it averages from step 0" },
  weight_decay: { values: [0, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1, 2, 3, 5], help: "pulls all weights towards zero" },
  lr: { values: [0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1], help: "learning rate" },
  share: { values: [0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8], help: "part of all sums that is for training" },
  batch: { values: ["64", "all"], names: ["64 at random", "all"], help: "training sums in one step" },
  loss: { values: ["squares", "cross-entropy"], help: "how wrong answers are measured" },
  seed: { values: Array.from({ length: 100 }, (_, i) => i), help: "weights, training sums and batches" },
};

const FILTER = { filter: "ema", alpha: 0.98, window_size: 50, lamb: 2, start: 0 };
export const DEFAULTS = { ...FILTER, weight_decay: 0, lr: 0.01, share: 0.5, batch: "64", loss: "squares", seed: 0 };

export const PRESETS = [
  { name: "The paper’s claim", hint: "no weight decay", values: {} },
  { name: "A little decay", hint: "weight decay 0.1", values: { weight_decay: 0.1 } },
  { name: "Decay alone", hint: "weight decay 1", values: { weight_decay: 1 } },
  { name: "Too strong", hint: "lamb 10", values: { weight_decay: 0.1, lamb: 10 } },
  { name: "Start late", hint: "decay 1, filter from step 300", values: { weight_decay: 1, start: 300 } },
];

// A preset keeps the seed, so that presets can be compared with each other.
export function presetSettings(preset, seed) {
  return { ...DEFAULTS, ...preset.values, seed };
}

export function sameSettings(a, b) {
  return Object.keys(SETTINGS).every((name) => a[name] === b[name]);
}

export function toHash(settings) {
  return "#" + Object.keys(SETTINGS).map((name) => `${name}=${settings[name]}`).join("&");
}

// Settings that are missing or not known become the default; numbers become the nearest that can be set.
export function fromHash(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const settings = { ...DEFAULTS };
  for (const [name, { values }] of Object.entries(SETTINGS)) {
    const text = given.get(name);
    if (text === null || text === "") continue;
    if (values.includes(text)) settings[name] = text;
    else if (typeof values[0] === "number" && Number.isFinite(+text)) {
      settings[name] = values.reduce((best, value) => (Math.abs(value - text) < Math.abs(best - text) ? value : best));
    }
  }
  return settings;
}

// The same optimizer and filter in Python.
export function toPython({ filter, alpha, window_size, lamb, start, lr, weight_decay }) {
  const lines = [`optimizer = torch.optim.AdamW(model.parameters(), lr=${lr}, betas=(0.9, 0.98), weight_decay=${weight_decay})`];
  const made = { ema: `EMA(alpha=${alpha}, lamb=${lamb})`, ma: `MA(window_size=${window_size}, lamb=${lamb})` }[filter];
  if (made) lines.push(`grokfast.attach(optimizer, grokfast.${made}${start ? `, start=${start}` : ""})`);
  return lines.join("\n");
}
