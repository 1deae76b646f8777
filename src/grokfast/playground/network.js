// A network that adds two numbers modulo P: logits = output (left[a] + right[b])^2, without biases.
// All parameters are in one array of three tables of P rows: left, right, and output transposed.

export const P = 23;
export const WIDTH = 128;
const TABLE = P * WIDTH;
export const SIZE = 3 * TABLE;
export const PAIRS = P * P; // pair i is (floor(i / P), i mod P)
const SUM = Uint8Array.from({ length: PAIRS }, (_, pair) => (Math.floor(pair / P) + (pair % P)) % P);

// Random numbers in [0, 1) from a seed and the name of a stream (mulberry32). Streams are independent of each other.
export function makeRandom(seed, stream) {
  let state = (Math.imul(seed + 1, 0x9e3779b1) ^ Math.imul(stream + 1, 0x85ebca6b)) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

// Normal numbers, divided by the root of the fan-in: P for the tables of numbers, WIDTH for the output.
// Rounded to float32, because browsers differ in the last bit of a cosine: so a seed is the same race in all of them.
export function initialWeights(seed) {
  const random = makeRandom(seed, 0);
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return Float64Array.from({ length: SIZE }, (_, i) => Math.fround(normal() / Math.sqrt(i < 2 * TABLE ? P : WIDTH)));
}

// All pairs in a random order; the first `share` of them is for training.
export function splitPairs(seed, share) {
  const random = makeRandom(seed, 1);
  const pairs = Uint16Array.from({ length: PAIRS }, (_, i) => i);
  for (let i = PAIRS - 1; i > 0; i--) {
    const j = Math.floor(random() * (i + 1));
    [pairs[i], pairs[j]] = [pairs[j], pairs[i]];
  }
  const count = Math.floor(share * PAIRS);
  return { train: pairs.slice(0, count), val: pairs.slice(count) };
}

// Two rows at a time: each number of the output table is read once for both. `first` and `second` are pairs.
function forward(weights, first, second, squares, logits, at) {
  const [a, b] = [Math.floor(first / P) * WIDTH, TABLE + (first % P) * WIDTH];
  const [c, d] = [Math.floor(second / P) * WIDTH, TABLE + (second % P) * WIDTH];
  for (let k = 0; k < WIDTH; k++) {
    const one = weights[a + k] + weights[b + k];
    const two = weights[c + k] + weights[d + k];
    squares[k] = one * one;
    squares[WIDTH + k] = two * two;
  }
  for (let answer = 0; answer < P; answer++) {
    const row = 2 * TABLE + answer * WIDTH;
    let [one, two] = [0, 0];
    for (let k = 0; k < WIDTH; k++) {
      const weight = weights[row + k];
      one += weight * squares[k];
      two += weight * squares[WIDTH + k];
    }
    logits[at + answer] = one;
    logits[at + P + answer] = two;
  }
}

// The loss of one row of logits; they become its gradient, times `scale`.
function lossOfRow(logits, at, answer, loss, scale) {
  if (loss === "squares") {
    let total = 0;
    for (let i = 0; i < P; i++) {
      const error = logits[at + i] - (i === answer ? 1 : 0);
      total += error * error;
      logits[at + i] = 2 * scale * error;
    }
    return total;
  }
  let [top, sum] = [-Infinity, 0];
  for (let i = 0; i < P; i++) top = Math.max(top, logits[at + i]);
  for (let i = 0; i < P; i++) sum += Math.exp(logits[at + i] - top);
  const value = top + Math.log(sum) - logits[at + answer];
  for (let i = 0; i < P; i++) logits[at + i] = scale * (Math.exp(logits[at + i] - top) / sum - (i === answer ? 1 : 0));
  return value;
}

const squares = new Float64Array(2 * WIDTH);
const logits = new Float64Array(2 * P);
const back = new Float64Array(2 * WIDTH);

// The mean loss of a batch of pairs. `grads` is overwritten by its gradient.
export function lossAndGradient(weights, batch, loss, grads) {
  grads.fill(0);
  const scale = 1 / batch.length;
  let total = 0;
  for (let i = 0; i < batch.length; i += 2) {
    const first = batch[i];
    const single = i + 1 === batch.length; // an odd batch ends with one pair, beside a copy that counts as nothing
    const second = single ? first : batch[i + 1];
    forward(weights, first, second, squares, logits, 0);
    total += lossOfRow(logits, 0, SUM[first], loss, scale);
    total += lossOfRow(logits, P, SUM[second], loss, single ? 0 : scale) * (single ? 0 : 1);
    backward(weights, first, second, grads);
  }
  return total * scale;
}

function backward(weights, first, second, grads) {
  back.fill(0);
  for (let answer = 0; answer < P; answer++) {
    const row = 2 * TABLE + answer * WIDTH;
    const one = logits[answer];
    const two = logits[P + answer];
    for (let k = 0; k < WIDTH; k++) {
      const weight = weights[row + k];
      grads[row + k] += one * squares[k] + two * squares[WIDTH + k];
      back[k] += one * weight;
      back[WIDTH + k] += two * weight;
    }
  }
  spread(weights, first, 0, grads);
  spread(weights, second, WIDTH, grads);
}

// The gradient of a sum squared goes to both rows that were added.
function spread(weights, pair, from, grads) {
  const a = Math.floor(pair / P) * WIDTH;
  const b = TABLE + (pair % P) * WIDTH;
  for (let k = 0; k < WIDTH; k++) {
    const grad = 2 * (weights[a + k] + weights[b + k]) * back[from + k];
    grads[a + k] += grad;
    grads[b + k] += grad;
  }
}

// The network's answer to every pair.
export function answers(weights) {
  const found = new Uint8Array(PAIRS);
  for (let pair = 0; pair < PAIRS; pair += 2) {
    forward(weights, pair, Math.min(pair + 1, PAIRS - 1), squares, logits, 0);
    found[pair] = largest(logits, 0);
    if (pair + 1 < PAIRS) found[pair + 1] = largest(logits, P);
  }
  return found;
}

function largest(values, at) {
  let best = 0;
  for (let i = 1; i < P; i++) if (values[at + i] > values[at + best]) best = i;
  return best;
}

// The share of pairs that are answered right.
export function accuracy(found, pairs) {
  let right = 0;
  for (const pair of pairs) right += found[pair] === SUM[pair] ? 1 : 0;
  return right / pairs.length;
}
