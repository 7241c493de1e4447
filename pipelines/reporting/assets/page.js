"use strict";
// A browser of visual words: filters by number or class, sorts, shows a word's patches large and where they are from.
for (const browser of document.querySelectorAll("[data-words]")) {
  const data = JSON.parse(document.getElementById(browser.dataset.words).textContent);
  const find = browser.querySelector("input"), order = browser.querySelector("select");
  const list = browser.querySelector(".words"), detail = browser.querySelector(".detail");
  const more = browser.querySelector("button.more"), said = browser.querySelector("output");
  const STEP = 96;
  let shown = STEP, chosen = null;

  const element = (name, properties, ...inside) => {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...inside);
    return made;
  };
  const percent = (x) => (100 * x).toFixed(x < 0.01 ? 2 : 1) + "%";
  const told = (w) => w.purity === null ? percent(w.share) : `${percent(w.share)} · ${percent(w.purity)} ${w.class}`;
  const by = {
    share: (a, b) => b.share - a.share,
    rare: (a, b) => a.share - b.share,
    purity: (a, b) => b.purity - a.purity,
    number: (a, b) => a.word - b.word,
  };

  function wanted() {
    const text = find.value.trim().toLowerCase();
    const number = /^\d+$/.test(text);  // a class may have digits in its name; who types digits only means a word
    const named = (w) => w.class !== null && w.class.toLowerCase().includes(text);
    const hit = (w) => !text || (number ? w.word === Number(text) : named(w));
    return data.words.filter(hit).sort(by[order.value]);
  }

  function open(w, button) {
    if (chosen) chosen.setAttribute("aria-pressed", "false");
    if (chosen === button) { chosen = null; detail.hidden = true; button.focus(); return; }
    chosen = button;
    button.setAttribute("aria-pressed", "true");
    const close = element("button", { type: "button", textContent: "close" });
    close.onclick = () => open(w, button);
    detail.onkeydown = (event) => { if (event.key === "Escape") open(w, button); };
    const sources = element("div", { className: "sources" });
    w.sources.forEach((source, i) => {
      const image = element("img", { src: data.sources[source], alt: `image ${w.images[i]}` });
      const frame = element("span", { className: "spot" });
      const [top, left, side] = w.squares[i].map((x) => `${100 * x}%`);
      Object.assign(frame.style, { top, left, width: side, height: side });
      const picture = element("div", { className: "source" }, image, frame);
      sources.append(element("div", {}, picture, element("small", { textContent: w.images[i] })));
    });
    detail.replaceChildren(
      element("div", { className: "tools" }, element("strong", { textContent: `word ${w.word}` }),
        element("span", { textContent: told(w) }), close),
      element("div", { className: "opened" },
        element("img", { className: "block", src: w.block, alt: `patches of word ${w.word}, large` }),
        element("div", {},
          element("p", { className: "soft", textContent: "The images that these patches are from, in the same order; a frame is around each patch:" }),
          sources)));
    detail.hidden = false;
    detail.focus({ preventScroll: true });
    detail.scrollIntoView({ block: "start" });
  }

  function draw() {
    const found = wanted();
    list.replaceChildren(...found.slice(0, shown).map((w) => {
      const image = element("img", { src: w.block, alt: `patches of word ${w.word}`, loading: "lazy" });
      const text = element("small", { textContent: `word ${w.word}, ${told(w)}` });
      const button = element("button", { type: "button", className: "word" }, image, text);
      button.setAttribute("aria-pressed", "false");
      button.onclick = () => open(w, button);
      return button;
    }));
    chosen = null;
    detail.hidden = true;
    more.hidden = found.length <= shown;
    said.textContent = `${Math.min(shown, found.length)} of ${found.length} words`;
  }

  find.oninput = order.onchange = () => { shown = STEP; draw(); };
  more.onclick = () => { shown += STEP; draw(); };
  draw();
}

// What is folded on the screen is read on paper.
let folded = [];
window.addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("details:not([open])")];
  folded.forEach((part) => { part.open = true; });
});
window.addEventListener("afterprint", () => { folded.forEach((part) => { part.open = false; }); });
