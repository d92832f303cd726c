"use strict";
(() => {
  const { plots, arrays } = JSON.parse(document.getElementById("data").textContent);
  const chosen = {};          // the view of each group of plots; none: the first
  const hidden = new Set();   // inks that the reader has switched off
  const drawn = new Set();
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const touch = matchMedia("(pointer: coarse)").matches;

  const plain = (words) => words.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function numbers(key) {
    const array = arrays[key];
    if (!array.numbers) {
      const bytes = Uint8Array.from(atob(array.data), (c) => c.charCodeAt(0)).buffer;
      array.numbers = array.kind === "levels"
        ? Array.from(new Uint16Array(bytes), (v) => (v > 65534 ? null : array.low + v * array.scale))
        : Array.from(new Float64Array(bytes));
    }
    return array.numbers;
  }

  function palette() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue("--" + name).trim();
    const parts = (name) => colour(name).match(/[0-9a-f]{2}/gi).map((v) => parseInt(v, 16));
    const [from, to] = [parts("short"), parts("long")];
    const hue = (shade) => `rgb(${from.map((v, i) => Math.round(v + shade * (to[i] - v)))})`;
    return { colour, of: (line) => (line.ink === "hue" ? hue(line.shade) : colour(line.ink)) };
  }

  function draw(element) {
    const plot = plots[element.dataset.plot];
    const panels = plot.views[chosen[plot.group] || plot.first];
    const { colour, of } = palette();
    const narrow = matchMedia("(max-width: 620px)").matches;
    const across = plot.across[narrow ? 1 : 0];
    const down = Math.ceil(panels.length / across);
    const [width, height] = [element.clientWidth, element.clientHeight];
    const [left, top, bottom] = [48, 22, across > 1 ? 28 : 38];
    const cell = [width / across, (height - (across > 1 ? 0 : bottom)) / down];
    const layout = {
      width, height, margin: { l: 0, r: 0, t: 0, b: 0 }, showlegend: false, annotations: [],
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: "x unified",
      dragmode: touch ? false : "zoom", font: { family: "system-ui, sans-serif", size: 11.5, color: colour("soft") },
      hoverlabel: { bgcolor: colour("card"), bordercolor: colour("faint"), font: { color: colour("ink") } },
    };
    const traces = [];
    panels.forEach((panel, i) => {
      const [row, column, n] = [Math.floor(i / across), i % across, i ? i + 1 : ""];
      const last = across > 1 || row === down - 1;
      const floor = (row + 1) * cell[1] - (across > 1 ? bottom : 4);
      const x = [column * cell[0] + left, (column + 1) * cell[0] - 8].map((v) => v / width);
      const y = [floor, row * cell[1] + top].map((v) => 1 - v / height);
      const date = panel.lines.length && arrays[panel.lines[0].x].kind === "date";
      const axis = { gridcolor: colour("grid"), zeroline: false, linecolor: colour("faint"), automargin: false };
      layout["xaxis" + n] = {
        ...axis, domain: x, anchor: "y" + n, matches: i ? "x" : undefined, type: date ? "date" : "linear",
        showticklabels: last, showgrid: false, showline: true, fixedrange: touch, nticks: Math.max(3, Math.floor(cell[0] / 90)), tickangle: 0,
        tickformat: date ? undefined : across > 1 ? "~s" : ",", hoverformat: date ? "%a %d %b %Y, %H:%M:%S" : ",d",
      };
      layout["yaxis" + n] = {
        ...axis, domain: y, anchor: "x" + n, fixedrange: true, nticks: 4, hoverformat: ".4~g",
        range: panel.range || undefined, rangemode: panel.range ? "normal" : undefined,
      };
      layout.annotations.push({
        text: plain(panel.title), xref: "paper", yref: "paper", x: x[0], y: y[1], xanchor: "left", yanchor: "bottom",
        showarrow: false, font: { size: 12.5, color: colour("ink") },
      });
      for (const line of panel.lines) {
        traces.push({
          type: "scatter", mode: "lines", x: numbers(line.x), y: numbers(line.y), name: plain(line.name),
          xaxis: "x" + n, yaxis: "y" + n, connectgaps: false, opacity: line.opacity, hoverinfo: line.hover ? undefined : "skip",
          line: { color: of(line), width: line.width, dash: line.dash }, visible: !hidden.has(line.ink),
        });
      }
    });
    Plotly.react(element, traces, layout, { displayModeBar: false });
    drawn.add(element);
  }

  const redraw = (wanted) => drawn.forEach((element) => wanted(plots[element.dataset.plot]) && draw(element));

  const watch = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting && !drawn.has(target)) draw(target);
  }, { rootMargin: "400px" });
  const places = document.querySelectorAll(".plot");
  places.forEach((element) => watch.observe(element));

  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(() => true); } });
  addEventListener("beforeprint", () => places.forEach((element) => element.clientWidth && draw(element)));
  dark.addEventListener("change", () => redraw(() => true));

  document.addEventListener("change", ({ target }) => {
    if (!target.dataset.group) return;
    chosen[target.dataset.group] = target.value;
    redraw((plot) => plot.group === target.dataset.group);
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

  const open = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target && target.tagName === "DETAILS") target.open = true;
  };
  addEventListener("hashchange", open);
  open();
})();
