"use strict";
// Values on the charts: the nearest one follows the pointer or a tap; in a focused chart the arrow
// keys walk through them, Home and End jump, Escape hides. The texts are the <title> elements that
// browsers would show by themselves; they are taken out so that nothing is shown twice.
const attendChart = (figure) => {
  const texts = new Map();
  for (const title of figure.querySelectorAll(".tip > title")) {
    texts.set(title.parentNode, title.textContent);
    title.remove();
  }
  const add = (name) => {
    const element = document.createElement("div");
    element.className = name;
    element.hidden = true;
    figure.append(element);
    return element;
  };
  const bubble = add("bubble");
  const ring = add("ring");
  bubble.setAttribute("role", "status");
  let current = null;

  const visible = () => [...texts.keys()].filter((tip) => tip.getClientRects().length > 0);
  const middle = (tip) => {
    const box = tip.getBoundingClientRect();
    return { x: box.left + box.width / 2, y: box.top + box.height / 2 };
  };
  const hide = () => {
    bubble.hidden = ring.hidden = true;
    current = null;
  };
  const show = (tip) => {
    current = tip;
    const frame = figure.getBoundingClientRect();
    const at = middle(tip);
    const x = at.x - frame.left;
    const y = at.y - frame.top;
    bubble.textContent = texts.get(tip);
    bubble.hidden = ring.hidden = false;
    ring.style.left = x + "px";
    ring.style.top = y + "px";
    const right = x + 14 + bubble.offsetWidth <= frame.width;
    const left = right ? x + 14 : Math.max(0, x - 14 - bubble.offsetWidth);
    bubble.style.left = left + "px";
    bubble.style.top = Math.max(0, y - bubble.offsetHeight - 10) + "px";
  };
  const nearest = (event, reach) => {
    let best = null;
    let least = reach;
    for (const tip of visible()) {
      const at = middle(tip);
      // What was measured or forecast wins over a place on a curve that is as near.
      const handicap = tip.classList.contains("probe") ? 8 : 0;
      const distance = Math.hypot(at.x - event.clientX, at.y - event.clientY) + handicap;
      if (distance < least) {
        least = distance;
        best = tip;
      }
    }
    return best;
  };
  const point = (event, reach) => {
    const tip = nearest(event, reach);
    if (tip === null) hide();
    else if (tip !== current) show(tip);
  };
  figure.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "touch") point(event, 36);
  });
  figure.addEventListener("pointerdown", (event) => point(event, 48));
  figure.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "touch") hide();
  });
  figure.addEventListener("blur", hide);
  figure.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: 0, End: 0 };
    if (!(event.key in moves)) return;
    const tips = visible()
      .filter((tip) => !tip.classList.contains("probe"))
      .sort((a, b) => middle(a).x - middle(b).x || middle(b).y - middle(a).y);
    if (tips.length === 0) return;
    event.preventDefault();
    let index = tips.indexOf(current) + moves[event.key];
    if (event.key === "Home" || (current === null && moves[event.key] === 1)) index = 0;
    if (event.key === "End" || (current === null && moves[event.key] === -1)) index = tips.length - 1;
    show(tips[Math.min(Math.max(index, 0), tips.length - 1)]);
  });
  addEventListener("resize", hide);
};
for (const figure of document.querySelectorAll("figure.chart")) attendChart(figure);
