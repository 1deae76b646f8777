// Sentences about a race: what happened, from its evaluations, and what that means for a user.

// While a race runs.
export const LEGEND =
  "Grey squares are training sums answered right, from memory. " +
  "Coloured squares are new sums answered right, by understanding.";

const SIMILAR = 1.3; // a smaller ratio of steps is no clear difference for one seed

const number = (value) => value.toLocaleString("en");
const percent = (share) => `${Math.round(100 * share)}%`;

// Which of the two understood, and how their steps compare.
export function result(without, filtered) {
  const [slow, fast] = [without.understood, filtered.understood];
  if (slow === null && fast === null) return "neither";
  if (slow === null) return "rescued";
  if (fast === null) return "ruined";
  const ratio = (slow + 1) / (fast + 1);
  return ratio > SIMILAR ? "faster" : ratio < 1 / SIMILAR ? "slower" : "same";
}

function oneNetwork({ memorised, understood, step, val, train, broken }) {
  if (broken) return `broke at step ${number(step)}, because its numbers overflowed`;
  if (memorised === null) return `never memorised its training sums (${percent(train)} right after ${number(step)} steps)`;
  const first = `memorised at step ${number(memorised)}`;
  if (understood !== null) return `${first}, understood at ${number(understood)}`;
  return `${first}, not understood within ${number(step)} (${percent(val)} of the new sums right)`;
}

// While the race runs: how far both are.
export function during(without, filtered, settings) {
  if (settings.filter === "none") return "No filter is chosen, so both networks take the same steps.";
  const [slow, fast] = [without.understood, filtered.understood];
  if (slow !== null && fast !== null) return "Both networks understand now.";
  if (fast !== null) return `With the filter: understood at step ${number(fast)}. Without it: not yet.`;
  if (slow !== null) return `Without the filter: understood at step ${number(slow)}. With it: not yet.`;
  if (without.memorised === null && filtered.memorised === null) return "Both networks are learning their training sums.";
  if (without.memorised === null) return "With the filter: training sums memorised. Without it: not yet.";
  if (filtered.memorised === null) return "Without the filter: training sums memorised. With it: not yet.";
  return "Both have memorised their training sums. Neither can answer new sums yet.";
}

// After the race: what happened to each.
export function happened(without, filtered, settings) {
  if (settings.filter === "none") return `No filter, so both are the same: ${oneNetwork(without)}.`;
  return `Without the filter: ${oneNetwork(without)}.\nWith the filter: ${oneNetwork(filtered)}.`;
}

// After the race: what a user may take from it.
export function meaning(without, filtered, settings) {
  const { filter, lamb, start, weight_decay, batch, loss } = settings;
  if (filter === "none") return "Choose EMA or MA below to make this a race.";
  if (lamb === 0) return "With lamb 0 nothing is added. Raise lamb to make this a race.";
  const times = (filtered.understood / Math.max(1, without.understood)).toFixed(1);
  const saved = percent(1 - filtered.understood / without.understood);
  switch (result(without, filtered)) {
    case "rescued":
      if (weight_decay > 0) {
        return "The filter makes a run work that looked hopeless. " +
          "Try more weight decay as well: it may do the same without extra memory.";
      }
      return "Without weight decay, the filter makes a run work that looked hopeless. That is what the paper claims. " +
        "But decay does the same job without extra memory: look at “Decay alone” before you choose.";
    case "faster":
      if (weight_decay >= 1) return `The filter saves ${saved} of the steps, even with strong weight decay.`;
      return `The filter saves ${saved} of the steps. If you cannot tune weight decay, a filter is worth a try. ` +
        "If you can, look at “Decay alone” first.";
    case "same":
      if (start === 0) return "The filter makes no clear difference here. Leave it out: it needs memory for every weight.";
      return `Started at step ${start}, the filter makes no clear difference. Set start to 0 and compare: ` +
        "a late start can mend what a filter does to the first steps.";
    case "slower":
      return `The filter hurts here: with it, understanding takes ${times} times as many steps. ` +
        (weight_decay >= 0.3 ? "With good weight decay you need no filter. Tune decay first." : "Leave it out, or lower lamb.");
    case "ruined":
      if (lamb < 5) {
        return "With this filter, training fails. A filter often needs a smaller learning rate: " +
          "lower lr or lamb, or leave the filter out.";
      }
      return `This filter is too strong: it adds ${lamb} times the slow part, and training fails. ` +
        "If training gets worse with a filter, lower lamb first. The paper recommends 0.1 to 5.";
    default:
      if (loss !== "squares" || batch !== "64") {
        return "Neither network understood within the budget. With cross-entropy, or with all sums in one batch, " +
          "we found no weight decay at which the filter helps.";
      }
      return "Neither network understood within the budget. " +
        "Change one thing at a time: more training sums, more weight decay, another learning rate.";
  }
}
