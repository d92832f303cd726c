"use strict";
// Plots with axes of their own, drawn with plotly.js: numbers in words, ticks, ranges, and values kept near the frame.
const drawStudy = ({ numbers, palette, plain, hidden, touch }) => {
  const raised = (power) => String(power).replace(/./g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));
  const signed = (words) => words.replace(/-/g, "−");

  function amount(value) {
    if (!Number.isFinite(value)) return value > 0 ? "diverged" : "–";
    const power = Math.log2(Math.abs(value));
    if (value && Number.isInteger(power) && power < -6) return `2${raised(power)} (${signed(value.toExponential(2))})`;
    const size = Math.abs(value);
    if (value && (size < 1e-4 || size >= 1e7)) return signed(value.toExponential(2));
    return signed((+value.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 9 }));
  }

  function ticks(axis, [low, high], room) {
    if (axis.ticks[0].length) return { tickvals: axis.ticks[0], ticktext: axis.ticks[1].map(plain) };
    if (axis.scale === "linear") return { nticks: Math.max(3, Math.floor(room)), separatethousands: true, exponentformat: "none", ticklabeloverflow: "allow" };
    const base = axis.scale === "log2" ? 2 : 10;
    const [from, to] = [low, high].map((v) => v / Math.log10(base));
    const step = Math.max(1, Math.ceil((to - from) / room));
    const plainly = base === 10 && 10 ** low > 9e-5 && 10 ** high < 1e5;
    const digits = plainly && to - from < room / 3 ? [1, 2, 5] : [1];
    const tickvals = [];
    for (let power = Math.floor(from); power <= to; power++) {
      if (power % step === 0) tickvals.push(...digits.map((digit) => digit * base ** power));
    }
    const ticktext = tickvals.map((v) => (plainly ? String(+v.toPrecision(3)) : base + raised(Math.round(Math.log10(v) / Math.log10(base)))));
    return { tickmode: "array", tickvals, ticktext };
  }

  function extent(axis, values, fixed, pad) {
    const log = axis.scale !== "linear";
    if (fixed) return log ? fixed.map((v) => Math.log10(v)) : fixed;
    let known = values.filter((v) => Number.isFinite(v) && (!log || v > 0));
    if (log) known = known.map((v) => Math.log10(v));
    let [low, high] = [Math.min(...known), Math.max(...known)];
    if (!known.length) return [0, 1];
    if (!log && pad && low >= 0 && low < 0.4 * high) low = 0;
    const more = (high - low || Math.abs(high) || 1) * pad;
    return [low ? low - more : low, high + (high > low || pad ? more : 1)];
  }

  // A value far outside leaves the frame steeply, and stays a number that can be drawn.
  function kept(axis, [low, high]) {
    const log = axis.scale !== "linear";
    const [floor, roof] = [low - 30 * (high - low), high + 30 * (high - low)];
    return (value) => {
      if (Number.isNaN(value) || value === null || (log && value <= 0)) return null;
      const near = Math.min(Math.max(log ? Math.log10(value) : value, floor), roof);
      return log ? 10 ** near : near;
    };
  }

  function study(plot, panel, n, ranges, { colour, of }) {
    const at = { xaxis: "x" + n, yaxis: "y" + n, type: "scatter", connectgaps: false };
    const fit = kept(plot.y, ranges.y);
    const shown = (one) => !hidden.has(one.key || one.ink);
    const [ticked, named] = plot.x.ticks;
    const place = (v) => (named.length ? plain(named[ticked.indexOf(Math.round(v))] || "") : amount(v));
    const words = (one) => numbers(one.y).map((value, i) => {
      const x = `${plain(plot.x.name || plot.x.title)} ${place(numbers(one.x)[i])}`;
      let said = amount(value);
      if (one.low) said += ` (${amount(numbers(one.low)[i])} to ${amount(numbers(one.high)[i])})`;
      if (one.error && Number.isFinite(numbers(one.error)[i])) said += ` ± ${amount(numbers(one.error)[i])}`;
      const note = one.notes && one.notes[i] ? (plot.closest ? "<br>" : " · ") + plain(one.notes[i]) : "";
      return (plot.closest ? `${plain(one.name)}<br>${x}<br>` : `${plain(one.name)}: `) + said + note;
    });
    const bands = [], lines = [], marks = [];
    for (const line of panel.lines) {
      const [xs, ys, few] = [numbers(line.x), numbers(line.y).map(fit), numbers(line.x).length <= 40];
      if (line.low) {
        const [low, high] = [numbers(line.low).map(fit), numbers(line.high).map(fit)];
        let run = [];
        const end = () => {
          if (run.length > 1) bands.push({
            ...at, mode: "lines", hoverinfo: "skip", fill: "toself", fillcolor: of(line), opacity: Math.max(0.08, 0.26 / Math.sqrt(panel.lines.length)), line: { width: 0, color: of(line) }, visible: shown(line),
            x: [...run, ...run.slice().reverse()].map((i) => xs[i]), y: [...run.map((i) => high[i]), ...run.slice().reverse().map((i) => low[i])],
          });
          run = [];
        };
        xs.forEach((_, i) => { if (low[i] === null || high[i] === null) end(); else run.push(i); });
        end();
      }
      const dash = /^c\d+$/.test(line.ink) && +line.ink.slice(1) > 7 && line.dash === "solid" ? "dash" : line.dash;
      lines.push({
        ...at, mode: few ? "lines+markers" : "lines", x: xs, y: ys, name: plain(line.name), opacity: line.opacity, visible: shown(line),
        line: { color: of(line), width: line.width, dash }, marker: { color: of(line), size: 2.4 + line.width },
        ...(line.hover ? { customdata: words(line), hovertemplate: "%{customdata}<extra></extra>" } : { hoverinfo: "skip" }),
      });
    }
    for (const mark of panel.marks) {
      const error = mark.error && { type: "data", array: numbers(mark.error), color: of(mark), thickness: 1.2, width: 3 };
      const open = mark.symbol === "diamond";
      marks.push({
        ...at, mode: "markers", x: numbers(mark.x), y: numbers(mark.y).map(fit), error_y: error, visible: shown(mark), cliponaxis: false,
        marker: { symbol: open ? "diamond" : "circle", size: open ? 9 : 7, color: open ? colour("card") : of(mark), line: { color: of(mark), width: open ? 1.8 : 0 } },
        customdata: words(mark), hovertemplate: "%{customdata}<extra></extra>",
      });
    }
    const ends = plot.x.scale === "linear" ? ranges.x : ranges.x.map((v) => 10 ** v);
    const levels = panel.levels.map((level) => ({
      ...at, mode: "lines", x: ends, y: [level.y, level.y].map(fit), hoverinfo: "skip", visible: shown(level),
      line: { color: colour(level.ink), width: 1.3, dash: level.dash },
    }));
    return [...bands, ...levels, ...lines, ...marks];
  }

  // Buttons that save a figure as it is shown: drawn lines as SVG, or points at three times the size as PNG.
  const save = (filename, format, title) => ({
    name: format, title, icon: { width: 24, height: 24, path: "M5 20h14v-2H5zM19 9h-4V3H9v6H5l7 7z" },
    click: (element) => Plotly.downloadImage(element, {
      format, scale: format === "png" ? 3 : 1, width: element.clientWidth, height: element.clientHeight, filename,
    }),
  });
  const saving = (filename) => ({
    displayModeBar: "hover", displaylogo: false,
    modeBarButtons: [[save(filename, "svg", "Save as SVG"), save(filename, "png", "Save as PNG")]],
  });

  return (element, plot, panels, across) => {
    const { colour, of } = palette();
    const down = Math.ceil(panels.length / across);
    const [width, height] = [element.clientWidth, element.clientHeight];
    const own = plot.x;
    const slanted = own.ticks[0].length * 7 * Math.max(...own.ticks[1].map((t) => t.length)) > 0.9 * width / across - 60;
    const below = 26 + (own.title ? 20 : 0) + (slanted ? 4.6 * Math.max(...own.ticks[1].map((t) => t.length)) : 0);
    const left = plot.y.title ? 58 : 48;
    const top = panels.some((panel) => panel.title) ? 22 : 8;
    const cell = [width / across, height / down];
    const all = (panels, what) => panels.flatMap((panel) => what(panel)).flat();
    const wide = own.ticks[0].length && !own.range ? [Math.min(...own.ticks[0]) - 0.6, Math.max(...own.ticks[0]) + 0.6] : extent(own, all(panels, (p) => [...p.lines, ...p.marks].map((one) => numbers(one.x))), own.range,
      own.scale !== "linear" || panels.some((p) => p.marks.length) ? 0.03 : 0);
    const layout = {
      width, height, margin: { l: 0, r: 0, t: 0, b: 0 }, showlegend: false, annotations: [],
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), activecolor: colour("ink") },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hovermode: plot.closest ? "closest" : "x unified",
      dragmode: touch ? false : "zoom", font: { family: "system-ui, sans-serif", size: 11.5, color: colour("soft") },
      hoverlabel: { bgcolor: colour("card"), bordercolor: colour("faint"), font: { color: colour("ink") } },
    };
    const traces = [];
    panels.forEach((panel, i) => {
      const [row, column, n] = [Math.floor(i / across), i % across, i ? i + 1 : ""];
      const floor = (row + 1) * cell[1] - below;
      const x = [column * cell[0] + left, (column + 1) * cell[0] - 20].map((v) => v / width);
      const y = [floor, row * cell[1] + top].map((v) => 1 - v / height);
      const axis = { gridcolor: colour("grid"), zeroline: false, linecolor: colour("faint"), automargin: false };
      layout.annotations.push({
        text: plain(panel.title), xref: "paper", yref: "paper", x: x[0], y: y[1], xanchor: "left", yanchor: "bottom",
        showarrow: false, font: { size: 12.5, color: colour("ink") },
      });
      const reach = (one) => {
        const y = numbers(one.y);
        const spread = one.error ? numbers(one.error) : [];
        return [...y, ...(one.low ? [...numbers(one.low), ...numbers(one.high)] : []), ...spread.flatMap((e, i) => [y[i] - e, y[i] + e])];
      };
      const tall = extent(plot.y, [...all([panel], (p) => [...p.lines, ...p.marks].map(reach)), ...panel.levels.map((l) => l.y)], panel.range || plot.y.range, 0.05);
      const title = (words) => ({ text: plain(words), standoff: 6, font: { size: 12 } });
      layout["xaxis" + n] = {
        ...axis, domain: x, anchor: "y" + n, matches: i ? "x" : undefined, showgrid: false, showline: true, fixedrange: touch,
        type: own.scale === "linear" ? "linear" : "log", range: wide, tickformat: undefined, hoverformat: ".4~g", title: title(own.title),
        tickangle: slanted ? -38 : 0, ticks: "outside", ticklen: 3, tickcolor: colour("faint"), ...ticks(own, wide, cell[0] / (own.scale === "log2" ? 42 : 80)),
      };
      layout["yaxis" + n] = {
        ...axis, domain: y, anchor: "x" + n, fixedrange: true,
        type: plot.y.scale === "linear" ? "linear" : "log", range: tall, title: { ...title(plot.y.title), standoff: 4 }, ...ticks(plot.y, tall, (floor - row * cell[1]) / 44),
      };
      traces.push(...study(plot, panel, n, { x: wide, y: tall }, { colour, of }));
      if (cell[0] > 420) panel.levels.forEach((level, l) => {   // every other label below its line: two may be close
        layout.annotations.push({
          text: plain(level.name), xref: "x" + n + " domain", yref: "y" + n, x: 1, y: plot.y.scale === "linear" ? level.y : Math.log10(level.y),
          xanchor: "right", yanchor: l % 2 ? "top" : "bottom", showarrow: false, font: { size: 11, color: colour("soft") },
        });
      });
    });
    Plotly.react(element, traces, layout, touch ? { displayModeBar: false } : saving(plot.group));
  };
};
