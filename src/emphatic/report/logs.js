"use strict";
// Plots of a log, drawn with uPlot: panels with one x axis, which zoom together.
const drawLog = ({ numbers, palette, hidden, touch, arrays }) => {
  const font = "12px system-ui, sans-serif";
  const room = 38;            // of the labels below a panel
  const units = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1, ""]];
  const measure = document.createElement("canvas").getContext("2d");
  measure.font = font;

  // Ticks as text, with as many digits as tell them apart.
  function labels(ticks) {
    const known = ticks.filter((v) => v !== null);
    const most = Math.max(...known.map(Math.abs));
    const apart = Math.min(...known.slice(1).map((v, i) => v - known[i]));
    if (most && most < 1e-4) return ticks.map((v) => v === null ? "" : v ? v.toExponential(1).replace(/-/g, "−") : "0");
    if (most >= 1e18) return ticks.map((v) => v === null ? "" : v ? v.toExponential(2).replace("+", "").replace(/-/g, "−") : "0");
    const [size, unit] = units.find(([least]) => most >= least) || [1, ""];
    let digits = 0;
    while (Number.isFinite(apart) && digits < 12 && Math.abs(apart / size * 10 ** digits - Math.round(apart / size * 10 ** digits)) > 1e-6 * 10 ** digits * apart / size) digits++;
    const shown = (v) => (v / size).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + (v ? unit : "");
    return ticks.map((v) => v === null ? "" : shown(v).replace("-", "−"));
  }

  const value = (v) => v === null || v === undefined ? "–" : (+v.toPrecision(v && Math.abs(v) >= 1e6 ? 9 : 5)).toLocaleString("en", { maximumSignificantDigits: 9 }).replace("-", "−");
  const faded = (ink) => ink.startsWith("rgb(") ? ink.replace("rgb(", "rgba(").replace(")", ", 0.2)") : `${ink}33`;
  const moment = (ms) => {
    const [day, time] = new Date(ms).toISOString().split("T");
    return `${day} ${time.replace("Z", "").replace(/\.000$/, "").replace(/:00$/, "")}`;
  };

  // Times below a panel: the day stands under the first time, and wherever it changes.
  function times(ticks, apart) {
    const months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let [day, year] = ["", ""];
    return ticks.map((ms) => {
      const [date, time] = new Date(ms).toISOString().split("T");
      const [y, m, d] = date.split("-");
      const short = `${+d} ${months[m - 1]}`;
      const below = y !== year ? `${short} ${y}` : date !== day ? short : "";
      const later = y !== year ? y : "";
      [day, year] = [date, y];
      if (apart >= 300 * 864e5) return y;
      if (apart >= 864e5) return later ? `${short}\n${later}` : short;
      const clock = apart >= 6e4 ? time.slice(0, 5) : apart >= 1e3 ? time.slice(0, 8) : time.slice(3, 12);
      return below ? `${clock}\n${below}` : clock;
    });
  }

  // Lines share one x: of the panel, in order; if time goes backwards, rows are counted instead.
  function columns(panel) {
    const xs = panel.lines.length ? numbers(panel.lines[0].x) : [];
    const ordered = xs.every((x, i) => Number.isFinite(x) && (i === 0 || x >= xs[i - 1]));
    return { xs: ordered ? xs : xs.map((_, i) => i), date: ordered && panel.lines.length > 0 && arrays[panel.lines[0].x].kind === "date" };
  }

  return (element, plot, panels, across) => {
    (element.charts || []).forEach((chart) => chart.destroy());
    element.replaceChildren();
    const { colour, of } = palette();
    const [width, height] = [element.clientWidth, element.clientHeight];
    const down = Math.ceil(panels.length / across);
    const stacked = across === 1;
    const cell = [width / across, (height - (stacked ? room : 0)) / down];
    const key = uPlot.sync(`plot-${element.dataset.plot}`);
    const tip = document.createElement("div");
    tip.className = "tip";
    let left = 30, zooming = false;
    const charts = element.charts = panels.map((panel, i) => {
      const { xs, date } = columns(panel);
      const box = document.createElement("div");
      const last = !stacked || i === panels.length - 1;
      box.className = "panel";
      box.style.cssText = `width:${cell[0]}px;height:${cell[1] + (stacked && last ? room : 0)}px`;
      const head = document.createElement("div");
      head.className = "head";
      head.textContent = panel.title;
      box.append(head);
      element.append(box);
      const series = panel.lines.map((line) => ({
        label: line.name, stroke: of(line), width: line.width, alpha: line.opacity, spanGaps: false, points: { show: false },
        dash: { dash: [6, 4], dot: [2, 3] }[line.dash], show: !hidden.has(line.ink),
      }));
      // The edges of a band are two lines that are not drawn.
      const banded = panel.lines.filter((line) => line.low);
      const edges = banded.flatMap((line) => ["low", "high"].map((end) => ({ key: line[end], show: !hidden.has(line.ink) })));
      const bands = banded.map((line, b) => ({ series: [series.length + 2 * b + 2, series.length + 2 * b + 1], fill: faded(of(line)) }));
      const axis = { stroke: colour("soft"), font, ticks: { show: false }, grid: { stroke: colour("grid"), width: 1 }, gap: 4 };
      const options = {
        width: cell[0], height: box.clientHeight - 20, ms: 1, legend: { show: false }, padding: [9, 22, last ? 0 : 4, 0],
        tzDate: (ms) => uPlot.tzDate(new Date(ms), "Etc/UTC"),
        scales: { x: { time: date }, y: panel.range ? { range: () => panel.range } : { range: (_, low, high) => low === null ? [0, 1] : low === high ? [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1] : uPlot.rangeNum(low, high, 0.06, false) } },
        series: [{}, ...series, ...edges.map(({ show }) => ({ show, width: 0, points: { show: false } }))],
        bands,
        axes: [
          { ...axis, show: last, size: room, space: 80, grid: { show: false }, values: (_, ticks, __, ___, apart) => date ? times(ticks, apart) : labels(ticks) },
          { ...axis, space: 20, values: (_, ticks) => labels(ticks),
            size: (_, shown) => (left = Math.max(left, ...(shown || []).map((t) => Math.ceil(measure.measureText(t || "").width) + 10))) },
        ],
        cursor: { sync: { key: key.key, setSeries: false }, points: { show: false }, y: false, drag: { x: !touch, y: false, setScale: true } },
        hooks: {
          setScale: [(chart, scale) => {
            if (scale !== "x" || zooming || !element.charts) return;
            zooming = true;
            const { min, max } = chart.scales.x;
            element.charts.forEach((other) => other !== chart && other.setScale("x", { min, max }));
            zooming = false;
          }],
          setCursor: [(chart) => chart.over.matches(":hover") && point(chart, panel, box, xs, date)],
        },
      };
      const chart = new uPlot(options, [xs, ...panel.lines.map((line) => numbers(line.y)), ...edges.map((edge) => numbers(edge.key))], box);
      chart.over.addEventListener("mouseleave", () => tip.remove());
      return chart;
    });
    if (stacked) charts.forEach((chart) => chart.redraw(false, true));   // all as wide as the widest labels need

    function point(chart, panel, box, xs, date) {
      const at = chart.cursor.idx;
      if (at === null || at === undefined) return tip.remove();
      const rows = panel.lines.filter((line) => line.hover && !hidden.has(line.ink)).map((line) => {
        const ends = line.low ? ` (${value(numbers(line.low)[at])} to ${value(numbers(line.high)[at])})` : "";
        return [line.name, value(numbers(line.y)[at]) + ends, of(line)];
      });
      tip.replaceChildren(date ? moment(xs[at]) : `row ${value(xs[at])}`, ...rows.map(([name, shown, ink]) => {
        const row = document.createElement("div");
        const mark = document.createElement("i");
        mark.style.background = ink;
        row.append(mark, `${name} ${shown}`);
        return row;
      }));
      box.append(tip);
      const x = chart.cursor.left + chart.over.offsetLeft;
      tip.style.left = `${x + 14 + tip.offsetWidth > box.clientWidth ? Math.max(0, x - 14 - tip.offsetWidth) : x + 14}px`;
    }
  };
};

// The panels of a plot as one picture.
function pictureOf(element) {
  const scale = devicePixelRatio || 1;
  const style = getComputedStyle(document.documentElement);
  const canvas = document.createElement("canvas");
  canvas.width = element.clientWidth * scale;
  canvas.height = element.clientHeight * scale;
  const pen = canvas.getContext("2d");
  pen.fillStyle = style.getPropertyValue("--card");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  const from = element.getBoundingClientRect();
  for (const box of element.children) {
    const place = (inner) => { const at = inner.getBoundingClientRect(); return [(at.left - from.left) * scale, (at.top - from.top) * scale]; };
    const head = box.querySelector(".head");
    pen.fillStyle = style.getPropertyValue("--ink");
    pen.font = `${12.5 * scale}px system-ui, sans-serif`;
    const [x, y] = place(head);
    pen.fillText(head.textContent, x + 4 * scale, y + 14 * scale);
    pen.drawImage(box.querySelector("canvas"), ...place(box.querySelector("canvas")));
  }
  return canvas;
}

document.addEventListener("click", ({ target }) => {
  const button = target.closest("button.png");
  const element = button && button.parentElement.querySelector(".plot");
  if (!element || !element.charts) return;
  pictureOf(element).toBlob((blob) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${button.dataset.name}.png`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
});
