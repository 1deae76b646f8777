"use strict";
// Inside a network: a slider over training turns its embeddings into circles and its power into a few peaks.
(() => {
  const SIZE = 300;
  const BARS = { width: 360, height: 300, left: 34, top: 12, bottom: 36 };

  function element(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const key in attributes) made.setAttribute(key, attributes[key]);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  // Symbols by their place, from blue to red and back: neighbours on the circle of one frequency have places far apart.
  function circle(svg, moment, found) {
    const far = 1.15 * Math.max(...found.moments.at(-1).points.flat().map(Math.abs), ...moment.points.flat().map(Math.abs));
    const at = (value) => SIZE / 2 + (value / far) * (SIZE / 2);
    const turn = (place) => ((place * found.key[0]) / moment.points.length) * 360;
    svg.setAttribute("viewBox", `0 0 ${SIZE} ${SIZE}`);
    const cross = [{ x1: 0, x2: SIZE, y1: at(0), y2: at(0) }, { x1: at(0), x2: at(0), y1: 0, y2: SIZE }].map((line) => element("line", { ...line, class: "grid" }));
    svg.replaceChildren(...cross, ...moment.points.flatMap(([x, y], place) => {
      const dot = element("circle", { cx: at(x), cy: at(-y), r: 3.5, fill: `hsl(${turn(place)} 65% 50%)` });
      dot.append(element("title", {}, `${found.symbols[place]}, place ${place}`));
      return [dot];
    }));
  }

  function bars(svg, shares, highest) {
    const { width, height, left, top, bottom } = BARS;
    const step = (width - left) / shares.length;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const tall = (share) => (share / highest) * (height - bottom - top);
    const centre = (frequency) => left + (frequency - 0.6) * step;
    const made = [highest, 0].flatMap((share) => [
      element("line", { x1: left, x2: width, y1: height - bottom - tall(share), y2: height - bottom - tall(share), class: "grid" }),
      element("text", { x: left - 4, y: height - bottom - tall(share) + 4, "text-anchor": "end" }, `${Math.round(100 * share)}%`),
    ]);
    made.push(...shares.map((share, i) => {
      const bar = element("rect", { x: left + i * step, y: height - bottom - tall(share), width: 0.8 * step, height: tall(share), fill: "currentColor" });
      bar.append(element("title", {}, `frequency ${i + 1}: ${(100 * share).toFixed(1)}%`));
      return bar;
    }));
    const every = shares.length > 25 ? 10 : 5;
    const labels = [1, ...shares.map((_, i) => i + 1).filter((frequency) => frequency % every === 0)];
    for (const k of labels) made.push(element("text", { x: centre(k), y: height - bottom + 14, "text-anchor": "middle" }, String(k)));
    made.push(element("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, "frequency"));
    svg.replaceChildren(...made);
  }

  for (const box of document.querySelectorAll(".inside")) {
    const found = JSON.parse(box.querySelector("script").textContent);
    const slider = box.querySelector("input");
    const show = () => {
      const moment = found.moments[+slider.value];
      const [first, second, third] = box.querySelectorAll("svg");
      const highest = (name) => Math.max(...found.moments.flatMap((each) => each[name]));
      circle(first, moment, found);
      bars(second, moment.embedding, highest("embedding"));
      bars(third, moment.logits, highest("logits"));
      const text = `step ${moment.step.toLocaleString("en")}`;
      box.querySelector("output").textContent = text;
      slider.setAttribute("aria-valuetext", text);
    };
    slider.addEventListener("input", show);
    show();
  }
})();
