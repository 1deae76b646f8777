// One network in training: in a worker of the page, or step by step in a test.
import { P, SIZE, WIDTH, accuracy, answers, initialWeights, lossAndGradient, makeRandom, splitPairs } from "./network.js";
import { makeAdamW, makeFilter } from "./optimizer.js";

const BATCH = 64;
const RECORDED = 2 * P * WIDTH; // the weight whose gradients are recorded: the first of the output

export const MEMORISED = 0.99; // of the training sums
export const UNDERSTOOD = 0.95; // of the others, kept for HOLD steps
export const HOLD = 300;

// Early evaluations are dense, because steps are drawn on a logarithmic axis.
export function nextEvaluation(step) {
  const stride = step < 20 ? 1 : step < 100 ? 5 : 20;
  return (Math.floor(step / stride) + 1) * stride;
}

// `weights` and `nextBatch` are given by tests only.
export function startTraining(settings, { weights = initialWeights(settings.seed), nextBatch } = {}) {
  const { train, val } = splitPairs(settings.seed, settings.share);
  const random = makeRandom(settings.seed, 2);
  const batch = new Uint16Array(BATCH);
  const drawBatch = () => {
    if (settings.batch === "all") return train;
    for (let i = 0; i < BATCH; i++) batch[i] = train[Math.floor(random() * train.length)];
    return batch;
  };
  const next = nextBatch ?? drawBatch;
  const grads = new Float64Array(SIZE);
  const filter = makeFilter(settings, SIZE);
  const takeStep = makeAdamW(settings, SIZE);
  let recorded = [];
  let frequency = 0;
  const training = {
    weights,
    grads,
    step: 0,
    loss: NaN,
    broken: false, // the loss is no longer finite
    advance() {
      training.loss = lossAndGradient(weights, next(training.step), settings.loss, grads);
      training.broken = !Number.isFinite(training.loss);
      recorded.push(grads[RECORDED]);
      filter(grads, training.step);
      takeStep(weights, grads);
      training.step++;
    },
    evaluate() {
      const said = answers(weights);
      const ring = circle(weights, frequency);
      const { step, broken } = training;
      const report = { step, broken, train: accuracy(said, train), val: accuracy(said, val), answers: said, ring, recorded };
      frequency = ring.frequency;
      recorded = [];
      return report;
    },
  };
  return training;
}

// When a network memorised and when it understood, from its evaluations so far; null for what has not happened.
export function outcome(history, budget) {
  const last = history.at(-1);
  const memorised = history.find(({ train }) => train >= MEMORISED)?.step ?? null;
  let since = null; // validation has been high enough from this step on
  let understood = null;
  for (const { step, val } of history) {
    since = val >= UNDERSTOOD ? since ?? step : null;
    if (since !== null && (step - since >= HOLD || step >= budget)) {
      understood = since;
      break;
    }
  }
  return { memorised, understood, step: last.step, val: last.val, train: last.train, broken: last.broken };
}

// A whole race of one network, without a page: until it has understood or has no steps left.
export function runToEnd(settings, budget) {
  const training = startTraining(settings);
  const history = [training.evaluate()];
  let found = outcome(history, budget);
  while (training.step < budget && found.understood === null && !training.broken) {
    const next = nextEvaluation(training.step);
    while (training.step < next && !training.broken) training.advance();
    history.push(training.evaluate());
    found = outcome(history, budget);
  }
  return found;
}

const HALF = (P - 1) / 2; // frequencies 1 .. HALF
const COS = Float64Array.from({ length: P * P }, (_, i) => Math.cos((2 * Math.PI * Math.floor(i / P) * (i % P)) / P));
const SIN = Float64Array.from({ length: P * P }, (_, i) => Math.sin((2 * Math.PI * Math.floor(i / P) * (i % P)) / P));

// The power of a neuron's weights over the numbers of a table, at a frequency.
function power(weights, table, neuron, frequency) {
  let [re, im] = [0, 0];
  for (let n = 0; n < P; n++) {
    const weight = weights[(table * P + n) * WIDTH + neuron];
    re += weight * COS[frequency * P + n];
    im += weight * SIN[frequency * P + n];
  }
  return re * re + im * im;
}

// The left table, projected on its strongest frequency: a point for each number.
// A network that adds uses many frequencies, each by neurons of its own. Neurons are sorted by the right table, and a
// number is placed by its products with the other numbers only. So random weights give a cloud and not a ring.
// The frequency `before` stays until another one is clearly stronger.
export function circle(weights, before) {
  const strength = new Float64Array(HALF + 1);
  const own = Array.from({ length: HALF + 1 }, () => []);
  for (let neuron = 0; neuron < WIDTH; neuron++) {
    let [best, top] = [1, -1];
    for (let frequency = 1; frequency <= HALF; frequency++) {
      const found = power(weights, 1, neuron, frequency);
      if (found > top) [best, top] = [frequency, found];
    }
    own[best].push(neuron);
    strength[best] += power(weights, 0, neuron, best);
  }
  const most = Math.max(...strength);
  const frequency = 1.2 * strength[before] > most ? before : strength.indexOf(most);
  return { frequency, points: project(weights, frequency, own[frequency]) };
}

function project(weights, frequency, neurons) {
  const points = new Float64Array(2 * P); // x and y of each number
  for (let n = 0; n < P; n++) {
    for (let m = 0; m < P; m++) {
      if (m === n) continue;
      let product = 0;
      for (const k of neurons) product += weights[n * WIDTH + k] * weights[m * WIDTH + k];
      points[2 * n] += product * COS[frequency * P + m];
      points[2 * n + 1] += product * SIN[frequency * P + m];
    }
  }
  let size = 0;
  for (const value of points) size += (value * value) / P;
  return points.map((value) => value / (Math.sqrt(size) || 1)); // the mean square distance from the centre is 1
}

// In a worker: train up to the evaluation that the page allows, report each on the way, and listen in between.
export function serve(scope) {
  let [training, race, limit, busy] = [null, null, 0, false];
  const turn = new MessageChannel();
  const report = () => scope.postMessage({ race, ...training.evaluate() });
  const work = () => {
    const end = Math.min(limit, nextEvaluation(training.step));
    busy = training.step < end && !training.broken;
    if (!busy) return;
    while (training.step < end && !training.broken) training.advance();
    report();
    turn.port2.postMessage(null);
  };
  turn.port1.onmessage = work;
  scope.onmessage = ({ data }) => {
    if (data.settings) {
      [training, race, limit] = [startTraining(data.settings), data.race, 0];
      report();
    }
    if (data.race !== race) return;
    limit = Math.max(limit, data.limit ?? 0);
    if (!busy) work();
  };
}
