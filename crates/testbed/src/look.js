// What is wrong with the page in this window, which of its parts move sideways, and the document as the parser made it.
(async () => {
  if (document.readyState !== "complete") await new Promise((loaded) => addEventListener("load", loaded));
  const faults = [], sideways = [];
  const root = document.documentElement, width = root.clientWidth;
  const words = (text) => `"${text.trim().replace(/\s+/g, " ").slice(0, 60)}"`;
  const named = (e) => `<${e.tagName.toLowerCase()}${e.id && "#" + e.id}> ${words(e.textContent)}`;
  const moves = (e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX);
  const container = (e) => {
    for (let p = e.parentElement; p && p !== document.body; p = p.parentElement) if (moves(p)) return p;
  };

  if (root.scrollWidth > width) faults.push(`the page is ${root.scrollWidth} wide in a window of ${width}`);
  for (const e of document.body.querySelectorAll("*")) {
    if (e.ownerSVGElement) continue;
    const box = e.getBoundingClientRect(), style = getComputedStyle(e);
    if (!box.width || !box.height) continue;
    if ((box.left < -1 || box.right > width + 1) && !container(e)) {
      faults.push(`${named(e)} reaches from ${Math.round(box.left)} to ${Math.round(box.right)}`);
    }
    if (moves(e) && e.scrollWidth > e.clientWidth + 1) sideways.push(named(e));
    const hides = (overflow) => ["hidden", "clip"].includes(overflow);
    const more = [e.scrollWidth > e.clientWidth + 1, e.scrollHeight > e.clientHeight + 1];
    if (e.tagName !== "svg" && ((hides(style.overflowX) && more[0]) || (hides(style.overflowY) && more[1]))) {
      faults.push(`${named(e)} is cut off`);
    }
  }

  // Letters: large enough to read, within their drawing, and not on top of each other in one figure.
  const written = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, parent = text.parentElement;
    if (!text.data.trim() || ["STYLE", "SCRIPT"].includes(parent.tagName)) continue;
    const range = document.createRange();
    range.selectNodeContents(text);
    const boxes = [...range.getClientRects()].filter((b) => b.width && b.height);
    if (!boxes.length) continue;
    const drawing = parent.ownerSVGElement;
    const matrix = drawing && parent.getScreenCTM();
    const size = parseFloat(getComputedStyle(parent).fontSize) * (matrix ? Math.hypot(matrix.a, matrix.b) : 1);
    if (size < 9) faults.push(`${words(text.data)} is ${size.toFixed(1)} px high`);
    if (drawing) {
      const frame = drawing.getBoundingClientRect();
      const out = (b) => b.left < frame.left - 1 || b.right > frame.right + 1 || b.top < frame.top - 1 || b.bottom > frame.bottom + 1;
      if (boxes.some(out)) faults.push(`${words(text.data)} leaves its drawing`);
    }
    const figure = parent.closest("figure");
    if (figure) written.set(figure, [...(written.get(figure) ?? []), ...boxes.map((b) => [b, text.data])]);
  }
  for (const texts of written.values()) {
    texts.forEach(([a, one], n) => {
      for (const [b, other] of texts.slice(n + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 3) faults.push(`${words(one)} and ${words(other)} stand on each other`);
      }
    });
  }
  return { faults, sideways, document: root.outerHTML };
})()
