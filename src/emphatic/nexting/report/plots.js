"use strict";
// Draws the plots of a page with uPlot, from their descriptions: panels of lines with their bands, marks with their
// errors, and levels. The panels of a plot have one x axis and zoom together.
const plotter = ({ numbers, palette, hidden, touch, arrays }) => {
  const font = "12px system-ui, sans-serif";
  const measure = document.createElement("canvas").getContext("2d");
  measure.font = font;
  const dashes = { dash: [6, 4], dashdot: [8, 3, 2, 3], dot: [2, 3] };
  const shown = (shape) => !hidden.has(shape.key || shape.ink);

  // ------------------------------------------------------------------ numbers in words

  const signed = (words) => words.replace(/-/g, "−");
  const raised = (power) => String(power).replace(/./g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));
  const units = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1, ""]];

  // A value of a log, and one of a study, where powers of two are step sizes.
  const reading = (v) => v === null || v === undefined ? "–" : signed((+v.toPrecision(v && Math.abs(v) >= 1e6 ? 9 : 5)).toLocaleString("en", { maximumSignificantDigits: 9 }));
  function amount(value) {
    if (!Number.isFinite(value)) return value > 0 ? "diverged" : "–";
    const power = Math.log2(Math.abs(value));
    if (value && Number.isInteger(power) && power < -6) return `2${raised(power)} (${signed(value.toExponential(2))})`;
    const size = Math.abs(value);
    if (value && (size < 1e-4 || size >= 1e7)) return signed(value.toExponential(2));
    return signed((+value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 9 }));
  }
  const moment = (ms) => {
    const [day, time] = new Date(ms).toISOString().split("T");
    return `${day} ${time.replace("Z", "").replace(/\.000$/, "").replace(/:00$/, "")}`;
  };

  // ------------------------------------------------------------------ ticks

  // Ticks as text, with as many digits as tell them apart.
  function labels(ticks) {
    const known = ticks.filter((v) => v !== null);
    const most = Math.max(...known.map(Math.abs));
    const apart = Math.min(...known.slice(1).map((v, i) => v - known[i]));
    if (most && most < 1e-4) return ticks.map((v) => v === null ? "" : v ? signed(v.toExponential(1)) : "0");
    if (most >= 1e18) return ticks.map((v) => v === null ? "" : v ? signed(v.toExponential(2).replace("+", "")) : "0");
    const [size, unit] = units.find(([least]) => most >= least) || [1, ""];
    let digits = 0;
    while (Number.isFinite(apart) && digits < 12 && Math.abs(apart / size * 10 ** digits - Math.round(apart / size * 10 ** digits)) > 1e-6 * 10 ** digits * apart / size) digits++;
    const shown = (v) => (v / size).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) + (v ? unit : "");
    return ticks.map((v) => v === null ? "" : shown(v).replace("-", "−"));
  }

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

  // Powers of the base with room for their labels; of ten plain numbers, and 2 and 5 times them where there is room.
  function powers(axis, low, high, room) {
    const base = axis.scale === "log2" ? 2 : 10;
    const [from, to] = [low, high].map((v) => Math.log(v) / Math.log(base));
    const step = Math.max(1, Math.ceil((to - from) / room));
    const plainly = base === 10 && low > 9e-5 && high < 1e5;
    const digits = plainly && to - from < room / 3 ? [1, 2, 5] : [1];
    const places = [];
    for (let power = Math.floor(from); power <= to; power++) {
      if (power % step === 0) places.push(...digits.map((digit) => digit * base ** power).filter((v) => v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9)));
    }
    const words = (v) => (plainly ? String(+v.toPrecision(3)) : base + raised(Math.round(Math.log(v) / Math.log(base))));
    return { places, words: places.map(words) };
  }

  // What uPlot needs to draw an axis that has a description: ticks at names or powers; otherwise numbers.
  function ticks(axis, room) {
    if (axis.ticks[0].length) {
      const inside = (low, high) => axis.ticks[0].map((_, i) => i).filter((i) => axis.ticks[0][i] >= low && axis.ticks[0][i] <= high);
      return {
        splits: (_, __, low, high) => inside(low, high).map((i) => axis.ticks[0][i]),
        values: (_, places) => places.map((v) => axis.ticks[1][axis.ticks[0].indexOf(v)]),
      };
    }
    if (axis.scale === "linear") return { values: (_, places) => labels(places) };
    const at = (chart) => chart.bbox[axis.side ? "height" : "width"] / devicePixelRatio / room;
    return {
      splits: (chart, _, low, high) => powers(axis, low, high, at(chart)).places,
      filter: (_, places) => places,
      values: (chart, places) => places.length ? powers(axis, ...ends(chart, axis), at(chart)).words : [],
    };
  }
  const ends = (chart, axis) => { const { min, max } = chart.scales[axis.side ? "y" : "x"]; return [min, max]; };

  // ------------------------------------------------------------------ ranges

  // The least and largest of the known values with some room around them; near 0 a linear axis begins there.
  function extent(axis, values, fixed, pad) {
    if (fixed) return fixed;
    const log = axis.scale !== "linear";
    let [low, high] = [Infinity, -Infinity];
    for (const v of values) {
      if (!Number.isFinite(v) || (log && v <= 0)) continue;
      const place = log ? Math.log10(v) : v;
      low = Math.min(low, place);
      high = Math.max(high, place);
    }
    if (low > high) return log ? [1, 10] : [0, 1];
    if (!log && pad && low >= 0 && low < 0.4 * high) low = 0;
    const more = (high - low || Math.abs(high) || 1) * pad;
    const range = [low || log ? low - more : low, high + (high > low || pad ? more : 1)];
    return log ? range.map((v) => 10 ** v) : range;
  }

  // A value far outside leaves the frame steeply, and stays a number that can be drawn.
  function near(axis, [low, high]) {
    const log = axis.scale !== "linear";
    const [a, b] = log ? [Math.log10(low), Math.log10(high)] : [low, high];
    const [floor, roof] = [a - 30 * (b - a), b + 30 * (b - a)];
    return (value) => {
      if (value === null || Number.isNaN(value) || (log && value <= 0)) return null;
      const place = Math.min(Math.max(log ? Math.log10(value) : value, floor), roof);
      return log ? 10 ** place : place;
    };
  }

  // All that a shape reaches: its values, the edges of its band, the ends of its errors.
  function reach(shape) {
    const y = numbers(shape.y);
    const errors = shape.error ? numbers(shape.error).flatMap((e, i) => [y[i] - e, y[i] + e]) : [];
    return [...y, ...(shape.low ? [...numbers(shape.low), ...numbers(shape.high)] : []), ...errors];
  }

  // ------------------------------------------------------------------ data

  // One x for all lines of a panel, as uPlot wants it. A line without a value there is undefined, which it draws across;
  // null is a gap. If time goes backwards, rows are counted instead.
  function columns(panel, fit) {
    const keys = [...new Set(panel.lines.map((line) => line.x))];
    if (keys.length <= 1) {
      const xs = keys.length ? numbers(keys[0]) : [];
      const ordered = xs.every((x, i) => Number.isFinite(x) && (i === 0 || x >= xs[i - 1]));
      const date = ordered && keys.length > 0 && arrays[keys[0]].kind === "date";
      return { xs: ordered ? xs : xs.map((_, i) => i), ys: panel.lines.map((line) => numbers(line.y).map(fit)), date, place: (_, i) => i };
    }
    const xs = [...new Set(keys.flatMap(numbers))].sort((a, b) => a - b);
    const place = new Map(xs.map((x, i) => [x, i]));
    const ys = panel.lines.map((line) => {
      const column = new Array(xs.length).fill(undefined);
      numbers(line.x).forEach((x, i) => { column[place.get(x)] = fit(numbers(line.y)[i]); });
      return column;
    });
    const places = new Map(panel.lines.map((line) => [line, new Map(numbers(line.x).map((x, i) => [x, i]))]));
    return { xs, ys, date: keys.every((key) => arrays[key].kind === "date"), place: (line, i) => places.get(line).get(xs[i]) };
  }

  // ------------------------------------------------------------------ what uPlot does not draw

  const inFrame = (chart, paint) => {
    const { ctx, bbox } = chart;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    paint(ctx);
    ctx.restore();
  };

  // The area between the edges of each line that has them, in a piece for each run of known points.
  function paintBands(chart, panel, fit, of, opacity) {
    let count = 0;
    inFrame(chart, (ctx) => {
      ctx.globalAlpha = opacity;
      for (const line of panel.lines.filter((one) => one.low && shown(one))) {
        const xs = chart.data[0].length === numbers(line.x).length ? chart.data[0] : numbers(line.x);
        const [low, high] = [numbers(line.low).map(fit), numbers(line.high).map(fit)];
        const at = (i, edge) => [chart.valToPos(xs[i], "x", true), chart.valToPos(edge[i], "y", true)];
        ctx.fillStyle = of(line);
        ctx.beginPath();
        for (let begin = 0, end; begin < xs.length; begin = end + 1) {
          for (end = begin; end < xs.length && low[end] !== null && high[end] !== null; end++) ctx[end === begin ? "moveTo" : "lineTo"](...at(end, high));
          for (let i = end - 1; i >= begin; i--) ctx.lineTo(...at(i, low));
          if (end > begin) ctx.closePath();
        }
        ctx.fill();
        count++;
      }
    });
    return count;
  }

  // Sorted heights moved so that neighbours are `least` apart, between two ends.
  function spread(heights, least, top, bottom) {
    const apart = Math.min(least, (bottom - top) / Math.max(1, heights.length - 1));
    const moved = [];
    for (const height of heights) moved.push(moved.length ? Math.max(height, moved[moved.length - 1] + apart) : height);
    let floor = bottom;
    for (let i = moved.length - 1; i >= 0; i--) { moved[i] = Math.min(moved[i], floor); floor = moved[i] - apart; }
    return moved;
  }

  // The name of each line beside its right end.
  function paintNames(chart, panel, fit, of) {
    const { ctx, bbox, scales: { x: { max } } } = chart;
    const scale = devicePixelRatio;
    const ends = [];
    for (const line of panel.lines.filter(shown)) {
      const [xs, ys] = [numbers(line.x), numbers(line.y).map(fit)];
      let i = xs.length - 1;
      while (i >= 0 && (ys[i] === null || xs[i] > max)) i--;
      if (i >= 0) ends.push([Math.min(Math.max(chart.valToPos(ys[i], "y", true), bbox.top), bbox.top + bbox.height), line]);
    }
    ends.sort((a, b) => a[0] - b[0]);
    const places = spread(ends.map(([y]) => y), 13 * scale, bbox.top, bbox.top + bbox.height);
    ctx.save();
    ctx.font = `${11 * scale}px system-ui, sans-serif`;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ends.forEach(([, line], i) => { ctx.fillStyle = of(line); ctx.fillText(line.name, bbox.left + bbox.width + 6 * scale, places[i]); });
    ctx.restore();
    return ends.length;
  }

  function paintLevels(chart, panel, colour, labelled) {
    const levels = panel.levels.filter(shown);
    const scale = devicePixelRatio;
    inFrame(chart, (ctx) => levels.forEach((level, l) => {
      const y = Math.round(chart.valToPos(level.y, "y", true)) + 0.5;
      const right = chart.bbox.left + chart.bbox.width;
      ctx.strokeStyle = colour(level.ink);
      ctx.lineWidth = 1.3 * scale;
      ctx.setLineDash((dashes[level.dash] || []).map((v) => v * scale));
      ctx.beginPath();
      ctx.moveTo(chart.bbox.left, y);
      ctx.lineTo(right, y);
      ctx.stroke();
      if (!labelled) return;
      ctx.font = `${11 * scale}px system-ui, sans-serif`;
      ctx.fillStyle = colour("soft");
      ctx.textAlign = "right";
      ctx.textBaseline = l % 2 ? "top" : "bottom";   // every other label below its line: two may be close
      ctx.fillText(level.name, right - 2 * scale, y + (l % 2 ? 3 : -3) * scale);
    }));
    return levels.length;
  }

  // Where forecasts begin.
  function paintOrigin(chart, panel, colour) {
    if (panel.origin === undefined) return;
    const scale = devicePixelRatio;
    inFrame(chart, (ctx) => {
      const x = Math.round(chart.valToPos(panel.origin, "x", true)) + 0.5;
      ctx.strokeStyle = ctx.fillStyle = colour("soft");
      ctx.lineWidth = scale;
      ctx.setLineDash([2 * scale, 3 * scale]);
      ctx.beginPath();
      ctx.moveTo(x, chart.bbox.top);
      ctx.lineTo(x, chart.bbox.top + chart.bbox.height);
      ctx.stroke();
      ctx.font = `${11 * scale}px system-ui, sans-serif`;
      ctx.textAlign = "right";
      ctx.textBaseline = "top";
      ctx.fillText("now", x - 4 * scale, chart.bbox.top + 2 * scale);
    });
  }

  // Single points above the lines: hollow diamonds or dots, with the bars of their errors.
  function paintMarks(chart, panel, fit, { colour, of }) {
    const { ctx, scales: { x: { min, max } } } = chart;
    const scale = devicePixelRatio;
    let count = 0;
    for (const mark of panel.marks.filter(shown)) {
      const [xs, ys, errors] = [numbers(mark.x), numbers(mark.y), mark.error && numbers(mark.error)];
      const ends = (i) => (errors ? [ys[i] - errors[i], ys[i] + errors[i]] : mark.low ? [numbers(mark.low)[i], numbers(mark.high)[i]] : []);
      ctx.save();
      ctx.setLineDash([]);
      ctx.strokeStyle = of(mark);
      xs.forEach((x, i) => {
        const value = fit(ys[i]);
        if (value === null || x < min || x > max) return;
        const [left, top] = [chart.valToPos(x, "x", true), chart.valToPos(value, "y", true)];
        if (top < chart.bbox.top - 1 || top > chart.bbox.top + chart.bbox.height + 1) return;
        if (ends(i).some(Number.isFinite)) {
          ctx.lineWidth = 1.2 * scale;
          ctx.beginPath();
          const bars = ends(i).map((v) => chart.valToPos(fit(v) ?? value, "y", true));
          ctx.moveTo(left, bars[0]);
          ctx.lineTo(left, bars[1]);
          for (const bar of bars) { ctx.moveTo(left - 3 * scale, bar); ctx.lineTo(left + 3 * scale, bar); }
          ctx.stroke();
        }
        ctx.beginPath();
        if (mark.symbol === "diamond") {
          const r = 5.4 * scale;
          ctx.moveTo(left, top - r);
          for (const [dx, dy] of [[r, 0], [0, r], [-r, 0]]) ctx.lineTo(left + dx, top + dy);
          ctx.closePath();
          ctx.fillStyle = colour("card");
          ctx.fill();
          ctx.lineWidth = 1.8 * scale;
          ctx.stroke();
        } else if (mark.symbol === "triangle") {
          const r = 8 * scale;
          ctx.moveTo(left, top - r);
          for (const [dx, dy] of [[0.9 * r, 0.6 * r], [-0.9 * r, 0.6 * r]]) ctx.lineTo(left + dx, top + dy);
          ctx.closePath();
          ctx.lineWidth = 1.8 * scale;
          ctx.stroke();
        } else {
          ctx.arc(left, top, 3.5 * scale * mark.size, 0, 2 * Math.PI);
          ctx.fillStyle = of(mark);
          ctx.fill();
        }
        if (mark.label) {
          const inside = Math.min(Math.max(left, chart.bbox.left + 40 * scale), chart.bbox.left + chart.bbox.width - 40 * scale);
          ctx.font = `${10.5 * scale}px system-ui, sans-serif`;
          ctx.fillStyle = colour("soft");
          ctx.textAlign = "center";
          ctx.textBaseline = "alphabetic";
          ctx.fillText(mark.label, inside, top + (top + 22 * scale > chart.bbox.top + chart.bbox.height ? -12 : 20) * scale);
        }
        count++;
      });
      ctx.restore();
    }
    return count;
  }

  // ------------------------------------------------------------------ what stands under the cursor

  // The shapes with what they say at the cursor: all lines there, or only the point closest to it.
  function underCursor(chart, plot, panel, { xs, date, place }, fit, of) {
    const { left, top, idx } = chart.cursor;
    if (left < 0 || idx === null || idx === undefined) return null;
    if (!plot.x) {
      const lines = panel.lines.filter((line) => line.hover && shown(line) && place(line, idx) !== undefined);
      const said = (shape, i) => reading(numbers(shape.y)[i]) + (shape.low ? ` (${reading(numbers(shape.low)[i])} to ${reading(numbers(shape.high)[i])})` : "");
      const rows = lines.map((line) => [of(line), `${line.name} ${said(line, place(line, idx))}`]);
      for (const mark of panel.marks.filter(shown)) {
        numbers(mark.x).forEach((x, i) => {
          if (Math.abs(chart.valToPos(x, "x") - left) > 8) return;
          rows.push([of(mark), `${mark.notes && mark.notes[i] || mark.name} ${said(mark, i)}`]);
        });
      }
      return { head: date ? moment(xs[idx]) : `row ${reading(xs[idx])}`, rows };
    }
    const [places, names] = plot.x.ticks;
    const where = (v) => `${plot.x.name || plot.x.title} ${names.length ? names[places.indexOf(Math.round(v))] || "" : amount(v)}`.trim();
    const value = (shape, i) => {
      let words = amount(numbers(shape.y)[i]);
      if (shape.low) words += ` (${amount(numbers(shape.low)[i])} to ${amount(numbers(shape.high)[i])})`;
      if (shape.error && Number.isFinite(numbers(shape.error)[i])) words += ` ± ${amount(numbers(shape.error)[i])}`;
      return words;
    };
    const note = (shape, i) => (shape.notes && shape.notes[i] ? [shape.notes[i]] : []);
    const near = [];
    for (const shape of [...panel.lines.filter((line) => line.hover), ...panel.marks].filter(shown)) {
      let best = null;
      numbers(shape.x).forEach((x, i) => {
        const height = fit(numbers(shape.y)[i]);
        const dx = chart.valToPos(x, "x") - left;
        const dy = height === null ? NaN : chart.valToPos(height, "y") - top;
        const distance = plot.closest ? Math.hypot(dx, dy) : Math.abs(dx);
        if (distance <= (best ? best.distance : Infinity)) best = { shape, i, x, height, distance };
      });
      if (best) near.push(best);
    }
    if (plot.closest) {
      const point = near.reduce((a, b) => (a && a.distance <= b.distance ? a : b), null);
      if (!point || point.distance > 40) return null;
      const { shape, i, x } = point;
      return { head: shape.name, rows: [[of(shape), where(x)], ["", value(shape, i)], ...note(shape, i).map((words) => ["", words])], point: [x, point.height] };
    }
    const least = Math.min(...near.map((point) => point.distance));
    const here = near.filter((point) => point.distance <= least + 12);
    if (!here.length) return null;
    return { head: where(here.find((point) => point.distance === least).x), rows: here.map(({ shape, i }) => [of(shape), [`${shape.name}: ${value(shape, i)}`, ...note(shape, i)].join(" · ")]) };
  }

  // ------------------------------------------------------------------ a plot

  const linear = { title: "", scale: "linear", range: null, ticks: [[], []] };
  const line = { shade: 0, width: 1.5, dash: "solid", opacity: 1, hover: true };   // the defaults of plots.py
  // Of lines that coincide, the solid one is drawn first, so that those with gaps are seen too.
  const depth = (one) => ["solid", "dash", "dashdot", "dot"].indexOf(one.dash);
  const filled = (panel) => ({ ...panel, lines: panel.lines.map((one) => ({ ...line, ...one })).sort((a, b) => depth(a) - depth(b)), marks: panel.marks.map((mark) => ({ shade: 0, symbol: "diamond", size: 1, ...mark })) });

  return (element, plot, described, across) => {
    const panels = described.map(filled);
    (element.charts || []).forEach((chart) => chart.destroy());
    element.replaceChildren();
    element.charts = null;
    const { colour, of } = palette();
    const study = Boolean(plot.x);
    const [x, y] = [{ ...(plot.x || linear), side: 0 }, { ...(plot.y || linear), side: 1 }];
    const [width, height] = [element.clientWidth, element.clientHeight];
    const down = Math.ceil(panels.length / across);
    const longest = Math.max(0, ...x.ticks[1].map((words) => measure.measureText(words).width));
    const slanted = x.ticks[0].length * (longest + 12) > width / across - 70;
    const room = study ? 22 + (slanted ? Math.min(90, 0.62 * longest) : 0) : 38;   // of the labels below a panel
    const below = study && x.title ? 20 : 0;
    const cell = [width / across, height / down];
    const titled = panels.some((panel) => panel.title);
    const sync = uPlot.sync(`plot-${element.dataset.plot}`);
    const shapes = panels.flatMap((panel) => [...panel.lines, ...panel.marks]);
    const fixed = x.range || (x.ticks[0].length ? [Math.min(...x.ticks[0]) - 0.6, Math.max(...x.ticks[0]) + 0.6] : null);
    const pad = x.scale !== "linear" || panels.some((panel) => panel.marks.length) ? 0.03 : 0;
    const wide = study ? extent(x, shapes.flatMap((shape) => numbers(shape.x)), fixed, pad) : null;
    const [tip, spot] = ["tip", "spot"].map((name) => Object.assign(document.createElement("div"), { className: name }));
    const direct = plot.direct && cell[0] > 420;
    const names = direct ? Math.max(0, ...panels.flatMap((panel) => panel.lines.map((one) => measure.measureText(one.name).width))) : 0;
    let left = 30, zooming = false;

    const charts = panels.map((panel) => {
      const values = [...panel.lines, ...panel.marks].flatMap(reach).concat(panel.levels.map((level) => level.y));
      const tall = study ? extent(y, values, panel.range || y.range, 0.05) : panel.range;
      const fit = study ? near(y, tall) : (value) => (Number.isFinite(value) ? value : null);
      const data = columns(panel, fit);
      const box = document.createElement("div");
      box.className = "panel";
      box.style.cssText = `width:${cell[0]}px;height:${cell[1]}px`;
      if (titled || !study) {
        const head = document.createElement("div");
        head.className = "head";
        head.textContent = panel.title;
        box.append(head);
      }
      element.append(box);
      const series = panel.lines.map((line) => ({
        label: line.name, stroke: of(line), width: line.width, alpha: line.opacity, spanGaps: false, show: shown(line), pxAlign: study ? 0 : 1,
        dash: dashes[line.dash === "solid" && /^c(8|9|1\d)$/.test(line.ink) ? "dash" : line.dash],
        points: { show: study && numbers(line.x).length <= 40, size: 2.4 + line.width, width: 0, fill: of(line) },
      }));
      // Where the values set the range, the edges of bands do too: as lines that are not drawn.
      const edges = tall ? [] : panel.lines.filter((line) => line.low).flatMap((line) => [line.low, line.high].map((edge) => ({ values: numbers(edge).map(fit), show: shown(line) })));
      const axis = { stroke: colour("soft"), font, gap: 4, ticks: { show: false }, labelFont: font, labelGap: 2 };
      const rule = { show: true, stroke: colour("faint"), width: 1 };
      const autoscale = (_, low, high) => low === null ? [0, 1] : low === high ? [low - (Math.abs(low) || 1) * 0.1, high + (Math.abs(high) || 1) * 0.1] : uPlot.rangeNum(low, high, 0.06, false);
      const log = (of) => (of.scale === "linear" ? {} : { distr: 3, log: of.scale === "log2" ? 2 : 10 });
      const options = {
        width: cell[0], height: cell[1] - (titled || !study ? 20 : 0), ms: 1, legend: { show: false }, padding: [9, direct ? names + 8 : 22, 0, 0],
        tzDate: (ms) => uPlot.tzDate(new Date(ms), "Etc/UTC"),
        scales: {
          x: { time: data.date, ...log(x), ...(study ? { min: wide[0], max: wide[1], range: (_, low, high) => [low, high] } : {}) },
          y: { ...log(y), range: tall ? () => tall : autoscale },
        },
        series: [{}, ...series, ...edges.map(({ show }) => ({ show, width: 0, points: { show: false } }))],
        axes: [
          { ...axis, size: room, grid: { show: false }, rotate: slanted ? 38 : 0, ...(study ? { ticks: { ...rule, size: 3 }, border: rule } : {}),
            ...(below ? { label: x.title, labelSize: below } : {}), space: 80,
            ...(plot.x ? ticks(x, x.scale === "log2" ? 42 : 80) : { values: (_, places, __, ___, apart) => data.date ? times(places, apart) : labels(places) }) },
          { ...axis, grid: { stroke: colour("grid"), width: 1 }, space: study ? 44 : 20, ...(study ? { border: rule } : {}), ...(y.title ? { label: y.title, labelSize: 18 } : {}), ...ticks(y, 26),
            size: (_, words) => (left = Math.max(left, ...(words || []).map((t) => Math.ceil(measure.measureText(t || "").width) + 10))) },
        ],
        cursor: {
          sync: { key: sync.key, setSeries: false }, points: { show: false }, x: !plot.closest, y: false, drag: { x: !touch, y: false, setScale: true },
          ...(study ? { bind: { dblclick: (chart) => () => { chart.setScale("x", { min: wide[0], max: wide[1] }); return null; } } } : {}),
        },
        hooks: {
          drawAxes: [(chart) => {
            chart.bands = paintBands(chart, panel, fit, of, study ? Math.max(0.08, 0.26 / Math.sqrt(panel.lines.length)) : 0.2);
            chart.levels = paintLevels(chart, panel, colour, study);
            paintOrigin(chart, panel, colour);
          }],
          draw: [(chart) => {
            chart.marks = paintMarks(chart, panel, fit, { colour, of });
            if (direct) chart.names = paintNames(chart, panel, fit, of);
          }],
          setScale: [(chart, scale) => {
            if (scale !== "x" || zooming || !element.charts) return;
            zooming = true;
            const { min, max } = chart.scales.x;
            element.charts.forEach((other) => other !== chart && other.setScale("x", { min, max }));
            zooming = false;
          }],
          setCursor: [(chart) => chart.over.matches(":hover") && say(chart, box, underCursor(chart, plot, panel, data, fit, of))],
        },
      };
      const chart = new uPlot(options, data.xs.length || !study ? [data.xs, ...data.ys, ...edges.map((edge) => edge.values)] : [wide, ...data.ys], box);
      chart.over.addEventListener("mouseleave", () => { tip.remove(); spot.remove(); });
      return chart;
    });
    element.charts = charts;
    // All have the room that the widest labels need, which is known only when uPlot has drawn them, in a later task.
    const align = (before) => queueMicrotask(() => {
      if (left === before || element.charts !== charts) return;
      charts.forEach((chart) => chart.redraw(false, true));
      align(left);
    });
    align(0);

    function say(chart, box, said) {
      spot.remove();
      if (!said) return tip.remove();
      tip.replaceChildren(said.head, ...said.rows.map(([ink, words]) => {
        const row = document.createElement("div");
        const mark = document.createElement("i");
        mark.style.background = ink || "none";
        row.append(mark, words);
        return row;
      }));
      box.append(tip);
      const at = chart.cursor.left + chart.over.offsetLeft;
      tip.style.left = `${at + 14 + tip.offsetWidth > box.clientWidth ? Math.max(0, at - 14 - tip.offsetWidth) : at + 14}px`;
      if (!said.point) return;
      spot.style.cssText = `left:${chart.valToPos(said.point[0], "x")}px;top:${chart.valToPos(said.point[1], "y")}px`;
      chart.over.append(spot);
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
    if (head) {
      pen.fillStyle = style.getPropertyValue("--ink");
      pen.font = `${12.5 * scale}px system-ui, sans-serif`;
      const [x, y] = place(head);
      pen.fillText(head.textContent, x + 4 * scale, y + 14 * scale);
    }
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
