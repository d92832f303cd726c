"use strict";
(() => {
  const { plots, arrays } = JSON.parse(document.getElementById("data").textContent);
  const chosen = {};          // the view of each group of plots; none: the first
  const hidden = new Set();   // inks that the reader has switched off
  const drawn = new Set();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)").matches;

  function numbers(key) {
    const array = arrays[key];
    if (!array.numbers) {
      const bytes = Uint8Array.from(atob(array.data), (c) => c.charCodeAt(0)).buffer;
      array.numbers = array.kind === "levels"
        ? Array.from(new Uint16Array(bytes), (v) => (v > 65534 ? null : array.low + v * array.scale))
        : Array.from(array.kind === "float" ? new Float32Array(bytes) : new Float64Array(bytes));
    }
    return array.numbers;
  }

  function palette() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    const parts = (name) => colour(name).match(/[0-9a-f]{2}/gi).map((v) => parseInt(v, 16));
    const scales = { hue: ["short", "long"].map(parts), ramp: ["r0", "r1", "r2", "r3", "r4"].map(parts) };
    const between = (stops, shade) => {
      const i = Math.min(stops.length - 2, Math.floor(shade * (stops.length - 1)));
      const part = shade * (stops.length - 1) - i;
      return `rgb(${stops[i].map((v, k) => Math.round(v + part * (stops[i + 1][k] - v)))})`;
    };
    return { colour, of: (shape) => (scales[shape.ink] ? between(scales[shape.ink], shape.shade) : colour(shape.ink)) };
  }

  const drawPlot = plots.length && plotter({ numbers, palette, hidden, touch, arrays });

  function draw(element) {
    const plot = plots[element.dataset.plot];
    const panels = plot.views[chosen[plot.group] ?? plot.first];
    const across = plot.across[matchMedia("(max-width: 620px)").matches ? 1 : 0];
    drawPlot(element, plot, panels, across);
    drawn.add(element);
  }

  const redraw = (wanted) => drawn.forEach((element) => wanted(plots[element.dataset.plot]) && draw(element));

  const watch = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting && !drawn.has(target)) draw(target);
  }, { rootMargin: "400px" });
  const places = document.querySelectorAll(".plot");
  places.forEach((element) => {
    if (element.getBoundingClientRect().top < innerHeight + 400) draw(element);
    else watch.observe(element);
  });

  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(() => true); } });
  // Paper is white, and as wide as it is: plots are drawn again for it, and once more for the screen.
  const paper = (on) => {
    document.documentElement.classList.toggle("paper", on);
    places.forEach((element) => (on || drawn.has(element)) && element.clientWidth && draw(element));
  };
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
  dark.addEventListener("change", () => redraw(() => true));

  document.addEventListener("change", ({ target }) => {
    if (!target.dataset.group) return;
    choose(target.dataset.group, target.value);
  });

  // A view of a group of plots, with the words that belong to it.
  function choose(group, view) {
    chosen[group] = view;
    document.querySelectorAll(`[data-view][data-of="${group}"]`).forEach((words) => { words.hidden = words.dataset.view !== view; });
    redraw((plot) => plot.group === group);
  }

  document.addEventListener("click", ({ target }) => {
    if (!target.matches("button.pick")) return;
    const { pick, of } = target.dataset;
    const list = document.querySelector(`select[data-group="${of}"]`);
    if (list) list.value = pick;
    choose(of, pick);
    document.getElementById(of).scrollIntoView();
  });

  document.addEventListener("click", ({ target }) => {
    const key = target.closest(".key");
    if (key) {
      const ink = key.dataset.ink;
      const on = hidden.delete(ink);
      if (!on) hidden.add(ink);
      document.querySelectorAll(`.key[data-ink="${ink}"]`).forEach((k) => k.setAttribute("aria-pressed", on));
      redraw(() => true);
    }
    const head = target.closest("table.sort th");
    if (head && target.closest("button")) sort(head);
  });

  function sort(head) {
    const body = head.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") !== "descending" && head.classList.contains("number")
      || head.getAttribute("aria-sort") === "ascending";
    const value = (row) => row.cells[head.cellIndex];
    const order = (a, b) => {
      const [p, q] = [value(a), value(b)];
      const [u, v] = [p.dataset.order, q.dataset.order];
      if (u !== undefined && v !== undefined) return down ? v - u : u - v;
      if (u !== undefined || v !== undefined) return u !== undefined ? -1 : 1;   // what is unknown comes last
      return (down ? -1 : 1) * p.textContent.localeCompare(q.textContent, undefined, { numeric: true });
    };
    head.parentNode.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    body.append(...[...body.rows].sort(order));
  }

  // Tables: what is searched for stays; what does not fit says so.
  document.addEventListener("input", ({ target }) => {
    if (!target.dataset.search) return;
    const words = target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of document.querySelectorAll(`#${target.dataset.search} tbody tr`)) {
      const name = row.cells[0].textContent.toLowerCase();
      row.hidden = !words.every((word) => name.includes(word));
    }
    boxes();
  });

  // On a phone a table that is too wide stands as a list: each cell after the name of its column.
  function stack(table) {
    const heads = [...table.tHead.rows].map((row) => [...row.cells].flatMap((cell) => new Array(cell.colSpan).fill(cell.textContent)));
    const names = heads[heads.length - 1].map((name, i) => (heads.length > 1 && heads[0][i] ? `${heads[0][i]}: ${name}` : name));
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, i) => { cell.dataset.head = names[i]; cell.classList.toggle("none", cell.textContent === "–"); });
    }
    table.classList.add("stack");
  }

  function boxes() {
    const narrow = matchMedia("(max-width: 620px)").matches;
    for (const box of document.querySelectorAll(".box")) {
      const inside = box.querySelector("table");
      inside.classList.remove("stack");
      if (narrow && box.clientWidth && box.scrollWidth > box.clientWidth + 1) stack(inside);
      const [wide, tall] = [box.scrollWidth > box.clientWidth + 1, box.scrollHeight > box.clientHeight + 1];
      let note = box.nextElementSibling;
      if (!note || !note.classList.contains("more")) {
        note = document.createElement("p");
        note.className = "more";
        box.after(note);
      }
      const rows = box.querySelectorAll("tbody tr:not([hidden])").length;
      note.textContent = [tall && `All ${rows} rows are there: scroll down.`, wide && "More columns: scroll to the right."].filter(Boolean).join(" ");
      note.hidden = !(wide || tall);
    }
  }
  boxes();
  addEventListener("resize", boxes);

  document.addEventListener("click", ({ target }) => {
    if (!target.matches("button.copy")) return;
    const pre = target.parentElement.querySelector("pre");
    const chosen = getSelection();
    chosen.selectAllChildren(pre);
    if (document.execCommand("copy")) target.textContent = "Copied";
  });
})();
