// AdamW and the filters in front of it: g <- g + lamb slow, where `slow` is a moving average of the gradients.

// m_1 = g_1, m_t = alpha m_{t-1} + (1 - alpha) g_t; the average is added from step `start` on, and kept before.
function emaFilter({ alpha, lamb, start }, size) {
  const slow = new Float64Array(size);
  return (grads, count) => {
    const keep = count === 0 ? 0 : alpha; // the first gradient seeds the average
    const gain = count < start ? 0 : lamb;
    for (let i = 0; i < size; i++) {
      slow[i] = keep * slow[i] + (1 - keep) * grads[i];
      grads[i] += gain * slow[i];
    }
  };
}

// The mean of the last `window_size` gradients; nothing is added before the window is full.
function maFilter({ window_size, lamb, start }, size) {
  const window = new Float64Array(window_size * size);
  const total = new Float64Array(size);
  return (grads, count) => {
    const oldest = (count % window_size) * size;
    const gain = count < start || count + 1 < window_size ? 0 : lamb / window_size;
    for (let i = 0; i < size; i++) {
      total[i] += grads[i] - window[oldest + i];
      window[oldest + i] = grads[i];
      grads[i] += gain * total[i];
    }
  };
}

// A function that takes gradients and the number of gradients before them, and edits them in place.
export function makeFilter(settings, size) {
  if (settings.filter === "ema") return emaFilter(settings, size);
  if (settings.filter === "ma") return maFilter(settings, size);
  return () => {};
}

const BETA1 = 0.9;
const BETA2 = 0.98;
const EPS = 1e-8;

// A function that takes one step of AdamW.
export function makeAdamW({ lr, weight_decay }, size) {
  const mean = new Float64Array(size);
  const square = new Float64Array(size);
  let [power1, power2] = [1, 1];
  return (weights, grads) => {
    power1 *= BETA1;
    power2 *= BETA2;
    const rate = lr / (1 - power1);
    const root = 1 / Math.sqrt(1 - power2);
    const keep = 1 - lr * weight_decay;
    for (let i = 0; i < size; i++) {
      const grad = grads[i];
      mean[i] += (1 - BETA1) * (grad - mean[i]);
      square[i] = BETA2 * square[i] + (1 - BETA2) * grad * grad;
      weights[i] = keep * weights[i] - (rate * mean[i]) / (Math.sqrt(square[i]) * root + EPS);
    }
  };
}
