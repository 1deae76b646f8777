// Sentences about a race: what happened, from its evaluations, and what that means for a user.

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
  const first = memorised === null ? `never memorised its training sums (${percent(train)} right after ${number(step)} steps)` : `memorised at step ${number(memorised)}`;
  if (understood !== null) return `${first}, understood at ${number(understood)}`;
  if (memorised === null) return first;
  return `${first}, not understood within ${number(step)} (${percent(val)} of the new sums right)`;
}

// While the race runs: where it stands.
export function during(without, filtered, settings) {
  if (settings.filter === "none") return "No filter is chosen, so both networks take the same steps.";
  const both = [without, filtered];
  if (both.every(({ memorised }) => memorised === null)) return "Both networks are learning their training sums.";
  if (without.understood !== null && filtered.understood !== null) return "Both networks understand now.";
  if (filtered.understood !== null) return `With the filter: understood at step ${number(filtered.understood)}. Without it: not yet.`;
  if (without.understood !== null) return `Without the filter: understood at step ${number(without.understood)}. With it: not yet.`;
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
  switch (result(without, filtered)) {
    case "rescued":
      return weight_decay === 0
        ? "Without weight decay, the filter makes a run work that looked hopeless. That is what the paper claims. But decay does the same job without extra memory: look at “Decay alone” before you choose."
        : "The filter makes a run work that looked hopeless. Try more weight decay as well: it may do the same without extra memory.";
    case "faster": {
      const saved = percent(1 - filtered.understood / without.understood);
      return weight_decay < 1
        ? `The filter saves ${saved} of the steps. If you cannot tune weight decay, a filter is worth a try. If you can, look at “Decay alone” first.`
        : `The filter saves ${saved} of the steps, even with strong weight decay.`;
    }
    case "same":
      return start > 0
        ? "A filter that starts late does no harm here, and it brings no gain either: the run was already well tuned. Set start to 0 and see the difference."
        : "The filter makes no clear difference here. Leave it out: it needs memory for every weight.";
    case "slower": {
      const ratio = (filtered.understood / Math.max(1, without.understood)).toFixed(1);
      return weight_decay >= 0.3
        ? `The filter hurts here: with it, understanding takes ${ratio} times as many steps. With good weight decay you need no filter. Tune decay first.`
        : `The filter hurts here: with it, understanding takes ${ratio} times as many steps.`;
    }
    case "ruined":
      return filtered.memorised === null || lamb >= 5
        ? `This filter is too strong: it adds ${lamb} times the slow part, and training fails. If training gets worse with a filter, lower lamb first. The paper recommends 0.1 to 5.`
        : "The filter keeps this network from understanding within the budget. Lower lamb, or leave the filter out.";
    default:
      if (loss !== "squares" || batch !== "64") return "Neither network understood within the budget. The filter is no cure for that: with cross-entropy or with all sums in one batch we found no decay at which it helps.";
      return "Neither network understood within the budget. Change one thing at a time: more training sums, more weight decay, another learning rate.";
  }
}
