"use strict";
// Inside a network: a slider over training turns its embeddings into circles and its power into a few peaks.
(() => {
  const SIZE = 300;
  const BARS = { width: 420, height: 140, left: 30, bottom: 18 };

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
    svg.replaceChildren(...moment.points.flatMap(([x, y], place) => {
      const dot = element("circle", { cx: at(x), cy: at(-y), r: 3.5, fill: `hsl(${turn(place)} 65% 50%)` });
      dot.append(element("title", {}, `${found.symbols[place]}, place ${place}`));
      return [dot];
    }));
  }

  function bars(svg, shares, highest) {
    const { width, height, left, bottom } = BARS;
    const step = (width - left) / shares.length;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const tall = (share) => (share / highest) * (height - bottom - 8);
    const made = shares.map((share, i) => {
      const bar = element("rect", { x: left + i * step, y: height - bottom - tall(share), width: 0.8 * step, height: tall(share), fill: "currentColor" });
      bar.append(element("title", {}, `frequency ${i + 1}: ${(100 * share).toFixed(1)}%`));
      return bar;
    });
    for (let k = 10; k <= shares.length; k += 10) made.push(element("text", { x: left + (k - 0.6) * step, y: height - 4, "text-anchor": "middle" }, String(k)));
    made.push(element("text", { x: left - 3, y: 14, "text-anchor": "end" }, `${Math.round(100 * highest)}%`));
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
