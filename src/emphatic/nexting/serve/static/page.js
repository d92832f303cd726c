/* The page of `emphatic serve`: a signal's readings as they come with its forecast, or the answers to an own question.
   Names and times are text from outside: they only ever become textContent. */
"use strict";
(() => {
  const KEPT = 16384; // rows in memory
  const LISTED = 50; // alarms in the list
  const SILENT = 15000; // ms without an event, after which the connection is opened again
  const $ = id => document.getElementById(id);

  /** Columns of numbers, the last KEPT to 2 KEPT rows of them in arrays that never grow. */
  class Rows {
    constructor(names) {
      this.columns = Object.fromEntries(names.map(name => [name, new Float64Array(2 * KEPT)]));
      this.end = 0;
    }
    get start() { return Math.max(0, this.end - KEPT); }
    /** Room for one more row: its place. */
    add() {
      if (this.end === 2 * KEPT) {
        for (const column of Object.values(this.columns)) column.copyWithin(0, KEPT);
        this.end = KEPT;
      }
      return this.end++;
    }
    last(name) { return this.end ? this.columns[name][this.end - 1] : NaN; }
  }

  /** Rows from..to as points for uPlot, x first: all of them, or the least and the greatest of each column within each
      pixel, in the order in which they came; so a spike is as high, and noise as wide, at every zoom. Where a row does
      not follow the one before it, the lines are broken. */
  function points(x, columns, gap, from, to, pixels) {
    const out = [[], ...columns.map(() => [])], count = to - from, groups = Math.max(1, Math.floor(pixels));
    const push = (at, values) => { out[0].push(at); values.forEach((value, k) => out[k + 1].push(value)); };
    const broken = columns.map(() => null), value = v => (Number.isNaN(v) ? null : v);
    if (count <= 2 * groups) {
      for (let i = from; i < to; i++) {
        if (gap[i] && i > from) push(x[i] - 0.5, broken);
        push(x[i], columns.map(column => value(column[i])));
      }
      return out;
    }
    for (let g = 0; g < groups; g++) {
      const a = from + Math.floor((g * count) / groups), b = from + Math.floor(((g + 1) * count) / groups);
      let gaps = false;
      for (let i = a; i < b; i++) gaps = gaps || (gap[i] > 0 && i > from);
      if (gaps) push(x[a] - 0.5, broken);
      const pairs = columns.map(column => {
        let low = -1, high = -1;
        for (let i = a; i < b; i++) {
          if (Number.isNaN(column[i])) continue;
          if (low < 0 || column[i] < column[low]) low = i;
          if (high < 0 || column[i] > column[high]) high = i;
        }
        return low < 0 ? [null, null] : low < high ? [column[low], column[high]] : [column[high], column[low]];
      });
      push(x[a], pairs.map(pair => pair[0]));
      push(Math.max(x[b - 1], x[a] + 0.25), pairs.map(pair => pair[1]));
    }
    return out;
  }

  let hello = null, forecast = null, rows = null, source = null, status = null, chosen = wanted(), heard = 0, wait = 1000;
  let ready = false; // whether the forecast of this signal was answered: before that, the plot would jump
  let plot = null, zoom = null, paused = false, frozen = null, dated = false, due = false, draws = 0;

  // ---- the connection -------------------------------------------------------------------------------------------

  function connect() {
    if (source) source.close();
    heard = Date.now();
    const from = new EventSource("stream" + (chosen ? "?signal=" + encodeURIComponent(chosen) : ""));
    source = from;
    const on = (name, use) => from.addEventListener(name, event => {
      if (from !== source) return;
      heard = Date.now();
      wait = 1000;
      use(JSON.parse(event.data));
    });
    on("hello", greet);
    on("rows", take);
    on("status", show);
    from.onerror = () => {
      if (from !== source) return;
      lost();
      if (from.readyState === EventSource.CLOSED) again();
    };
  }

  /** After an answer that the browser gives up on: sign in again, another signal, or simply later. */
  function again() {
    const failed = source;
    setTimeout(async () => {
      if (failed !== source) return;
      try {
        const answer = await fetch("signals");
        if (answer.status === 401) return location.reload();
        const names = answer.ok ? choices(await answer.json()) : [];
        if (names.length && !names.includes(chosen)) chosen = ""; // a service that starts knows none yet
      } catch { /* not there yet */ }
      if (failed === source) connect();
    }, wait);
    wait = Math.min(2 * wait, 10000);
  }

  function lost() { state("connection lost; trying again", "lost"); }

  setInterval(() => {
    if (source && Date.now() - heard > SILENT) { lost(); connect(); } // a laptop that was closed, a network that went
  }, 1000);

  // ---- what comes in --------------------------------------------------------------------------------------------

  const choices = one => [...new Set([...one.signals, ...Object.keys(one.predicted)])];

  function greet(one) {
    const about = of => JSON.stringify(of && [of.signal, of.horizons]), known = of => JSON.stringify(of && [choices(of), of.time]);
    const same = about(hello) === about(one), offered = same && known(hello) === known(one);
    if (!same || (one.step !== null && one.step < rows.last("step"))) {
      rows = new Rows(["step", "t", "x", "gap", "alarm", "anomaly", "answer", "low", "high"]);
      $("list").replaceChildren();
      lastAlarm = null;
      $("alarms").hidden = true;
      frozen = zoom = null;
      dated = false;
    }
    hello = one;
    $("shown").hidden = $("controls").hidden = !one.signal;
    if (!same) {
      forecast = null;
      ready = false;
      document.body.classList.toggle("waiting", Boolean(one.signal));
      for (const id of ["verdict", "ahead", "legend", "forecasts", "running"]) $(id).hidden = true;
    }
    ask();
    if (!offered) { offer(); build(); } // the end of a warm-up brings other signals, and times
    document.title = one.signal ? `${one.signal} – emphatic` : "emphatic";
    $("title").textContent = one.signal ? `${one.signal}: ${isOwn() ? "answers" : "readings and forecast"}` : "Readings and forecast";
    announce(one);
    draw();
  }

  // ---- the forecast -------------------------------------------------------------------------------------------

  let asking = null;

  /** Ask what is expected of the signal, now and then again: it costs the service more than a row. */
  async function ask() {
    clearTimeout(asking);
    asking = setTimeout(ask, 2000);
    const signal = hello && hello.signal;
    if (!signal || document.hidden) return;
    let answer = null;
    try {
      const response = await fetch("forecast?signal=" + encodeURIComponent(signal));
      if (response.ok) answer = await response.json();
    } catch { /* not there; the page says so */ }
    if (hello && hello.signal === signal && !ready) setTimeout(reveal); // with what the answer brings
    if (!answer || !hello || hello.signal !== answer.signal) return;
    forecast = answer;
    tell();
    draw();
  }

  /** Show the signal: what is known of it has come. */
  function reveal() {
    ready = true;
    document.body.classList.remove("waiting", "new");
    announce(status || hello);
  }

  function put(id, text) {
    $(id).hidden = !text;
    if ($(id).textContent !== text) $(id).textContent = text;
  }

  /** The forecasts in words and numbers, and the running errors of forecast and baseline. */
  function tell() {
    const verdict = forecast.verdict || {}, unit = forecast.unit ? ` ${forecast.unit}` : "", all = forecast.forecasts;
    if (isOwn()) return;
    put("verdict", verdict.sentence || "");
    put("ahead", forecast.learning ? `${forecast.learning}.` : "");
    const both = typeof verdict.rmse === "number" && typeof verdict.baseline_rmse === "number";
    const skill = typeof verdict.skill === "number" ? `; skill ${(Math.round(100 * verdict.skill) / 100 + 0).toFixed(2).replace("-", "−")}` : "";
    put("running", both ? `Error so far (RMSE), ${inWords(String(verdict.horizon))} ahead: forecast ${digits(verdict.rmse)}${unit}, ` +
      `${verdict.baseline_words} (${verdict.baseline}) ${digits(verdict.baseline_rmse)}${unit}${skill}.` : "");
    $("legend").hidden = $("forecasts").hidden = all.length === 0;
    $("rival").hidden = !(forecast.baseline && forecast.baseline.ahead.length);
    $("forecasts").tBodies[0].replaceChildren(...all.map(one => {
      const row = document.createElement("tr"), low = one.low, high = one.high;
      const when = hello.time && dated ? stamp(one.time).slice(0, 16) : hello.time ? short(one.time) : `${short(one.ahead)} rows on`;
      const width = typeof low === "number" && typeof high === "number" ? high - low : 0;
      const between = width ? `${digits(low, width)} … ${digits(high, width)}` : "–";
      for (const text of [`at +${inWords(String(one.horizon))}`, when, digits(one.mean, width) + unit, between, digits(one.baseline, width), digits(one.rmse)]) {
        row.append(document.createElement("td"));
        row.lastChild.textContent = text;
      }
      return row;
    }));
  }

  const number = value => (typeof value === "number" ? value : NaN);
  const own = (object, name) => (object && Object.hasOwn(object, name) ? object[name] : []);

  /** Whether what is shown is no signal, but a question of one's own: a GVF. */
  function isOwn() { return Boolean(hello && hello.signal) && !hello.signals.includes(hello.signal); }

  function take(many) {
    if (!rows) return;
    const c = rows.columns, wasDated = dated, horizon = hello.horizons[0];
    const answers = ["predictions", "low", "high"].map(kind => (isOwn() ? own(many[kind], horizon) : []));
    many.step.forEach((step, i) => {
      const before = rows.last("step");
      if (step <= before) return; // sent again after a reconnection
      const at = rows.add();
      c.step[at] = step;
      c.t[at] = number(many.t && many.t[i]);
      c.x[at] = number(many.reading && many.reading[i]);
      c.gap[at] = (many.gap && many.gap[i]) || (step !== before + 1 && !many.thin) ? 1 : 0; // old rows are saved thinly
      c.alarm[at] = many.alarm && many.alarm[i] ? 1 : 0;
      c.anomaly[at] = number(many.anomaly && many.anomaly[i]);
      ["answer", "low", "high"].forEach((name, k) => { c[name][at] = number(answers[k][i]); });
      const written = many.time && many.time[i];
      // Unix time, of 2001 to 2099, is a date however it is written.
      dated = (typeof written === "string" && Number.isNaN(Number(written))) || (c.t[at] >= 978307200 && c.t[at] < 4102444800);
      if (c.alarm[at]) alarm(at, written, many.why && many.why[i]);
    });
    if (forecast && dated !== wasDated) tell(); // its times are written as those of the rows
    if (isOwn()) sayAnswer(own(many.mark, horizon).at(-1));
    draw();
  }

  /** The last answer to an own question; ``mark`` is why it means little: "unsupported" or "impossible". */
  function sayAnswer(mark) {
    const [answer, low, high] = ["answer", "low", "high"].map(name => rows.last(name));
    const between = Number.isNaN(low + high) ? "" : `, between ${digits(low, high - low)} and ${digits(high, high - low)}`;
    put("verdict", Number.isNaN(answer) ? "" : `${digits(answer, high - low)}${between}${mark ? ` (${mark})` : ""}`);
  }

  function show(one) {
    status = one;
    $("service").hidden = false;
    announce(one);
    const fact = (name, value) => {
      const [term, text] = [document.createElement("dt"), document.createElement("dd")];
      term.textContent = name;
      text.textContent = value;
      const pair = document.createElement("div");
      pair.append(term, text);
      return pair;
    };
    const whole = value => (typeof value === "number" ? value.toLocaleString("en") : "–");
    $("facts").replaceChildren(
      fact("Readings a second", short(one.rate)), fact("Lag", span(one.lag)), fact("Waiting", whole(one.queue)),
      fact("Step", whole(one.step)), fact("Saved at step", whole(one.saved_step)), fact("Readings", whole(one.readings)),
      fact("Malformed", whole(one.malformed)), fact("Repeats skipped", whole(one.repeated)),
    );
    const list = $("sources"), connections = [...(one.sources || []), ...(one.publishers || [])];
    list.hidden = connections.length === 0;
    list.replaceChildren(...connections.map(each => {
      const item = document.createElement("li");
      item.textContent = connection(each);
      item.className = each.state === "connected" || each.state === "ended" ? "" : "wrong";
      return item;
    }));
  }

  /** A source or a publisher in a sentence. */
  function connection(one) {
    const text = [one.error ? `${one.state} (${one.error})` : one.state];
    if (typeof one.lag === "number") text.push(`lag ${one.lag.toLocaleString("en")}`);
    if (typeof one.last_message === "number") text.push(`last message ${stamp(one.last_message)}`);
    const losses = one.losses || [], last = losses[losses.length - 1];
    if (one.lost) text.push(`${one.lost.toLocaleString("en")} lost`);
    if (last) text.push(`last loss: ${last.reason}, ${last.count === null ? "an unknown number" : last.count} from ${last.from} to ${last.to}`);
    return `${one.name}: ${text.join(", ")}`;
  }

  /** What is going on, beside the title; and a notice where there is nothing to see yet. */
  function announce(one) {
    const warming = one.warming_up;
    const rate = status && typeof status.rate === "number" ? `, ${short(status.rate)} readings/s, lag ${span(status.lag)}` : "";
    const many = one.waiting.toLocaleString("en"), enough = one.waiting >= one.warm_up;
    if (warming) state(enough ? `preparing: ${many} readings wait` : `warming up: ${many} of ${one.warm_up} readings`, "");
    else if (hello && hello.signal && !ready) state("connecting…", "");
    else state((hello && hello.learning === false ? "predicting" : "learning") + rate, "live");
    const empty = warming || !(hello && hello.signal);
    $("notice").hidden = !empty;
    if (empty) {
      const few = `Warming up: ${many} of ${one.warm_up} readings. The model is built from these readings; predictions begin after the last one.`;
      const prepared = `The first ${one.warm_up} readings have arrived, and the model is being built. This takes some seconds. ${many} readings wait; none is lost.`;
      $("notice").textContent = warming && one.waiting
        ? (enough ? prepared : few)
        : "No reading has arrived yet. Send one: POST /readings with an object such as {\"power\": 4.2}, or publish it to the source.";
    }
  }

  function state(text, kind) {
    if ($("state").textContent !== text) $("state").textContent = text;
    $("state").className = `state ${kind}`;
  }

  let lastAlarm = null; // the last row in alarm, how many there were without a row between them, and their entry

  /** A row in alarm: a new entry of the list, or one row more of the last. */
  function alarm(at, written, why) {
    const item = document.createElement("li"), c = rows.columns;
    if (lastAlarm && c.step[at] === lastAlarm.step + 1) {
      lastAlarm.step++;
      lastAlarm.rows++;
      lastAlarm.more.textContent = `, ${lastAlarm.rows.toLocaleString("en")} rows in alarm`;
      return;
    }
    const score = Number.isNaN(c.anomaly[at]) ? "" : `, score ${short(c.anomaly[at])}`;
    const known = !Number.isNaN(c.t[at]);
    const when = typeof written === "string" ? written : known && dated ? stamp(c.t[at]) : known ? short(c.t[at]) : `step ${c.step[at]}`;
    const reading = Number.isNaN(c.x[at]) ? "" : `reading ${short(c.x[at])}`, reason = typeof why === "string" ? why : "";
    const cell = (name, text) => { const one = document.createElement(name); one.textContent = text; return one; };
    item.append(cell("time", when), " ", cell("b", reason || "alarm"), " ", cell("span", reading + score));
    lastAlarm = { step: c.step[at], rows: 1, more: cell("small", "") };
    item.lastChild.append(lastAlarm.more);
    $("list").prepend(item);
    while ($("list").childElementCount > LISTED) $("list").lastChild.remove();
    $("alarms").hidden = false;
  }

  // ---- controls -------------------------------------------------------------------------------------------------

  function option(value, text) {
    const one = document.createElement("option");
    one.value = value;
    one.textContent = text;
    return one;
  }

  /** A horizon as a person reads it: numbers alone are steps. */
  function inWords(name) { return /^[0-9.e+-]+$/.test(name) ? `${name} steps` : name; }

  function offer() {
    const names = choices(hello), wanted = $("filter").value.toLowerCase();
    const shown = names.filter(name => name === hello.signal || name.toLowerCase().includes(wanted));
    $("find").hidden = names.length < 13;
    $("signal").replaceChildren(...shown.map(name => option(name, name)));
    $("signal").value = hello.signal || "";
  }

  $("signal").onchange = () => {
    chosen = $("signal").value;
    history.replaceState(null, "", "#" + encodeURIComponent(chosen));
    connect();
  };
  $("filter").oninput = () => hello && offer();
  $("window").onchange = () => { zoom = null; draw(); };
  $("pause").onclick = () => { if (paused || zoom) follow(); else { paused = true; draw(); } };
  window.addEventListener("hashchange", () => { if (wanted() !== chosen) { chosen = wanted(); connect(); } });

  /** Show the last rows again, after a pause or a zoom. */
  function follow() {
    paused = false;
    frozen = zoom = null;
    draw();
  }

  /** The signal that the address names: kept when the page is loaded again. */
  function wanted() {
    try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; }
  }

  // ---- drawing --------------------------------------------------------------------------------------------------

  const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  /** A colour that is written as #rrggbb, let through by a share. */
  function hex(colour, share) {
    return `rgb(${[1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16)).join(" ")} / ${100 * share}%)`;
  }

  function short(value) {
    if (typeof value !== "number" || Number.isNaN(value)) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(2);
    return value.toLocaleString("en", { maximumSignificantDigits: 4 });
  }

  /** Three digits, or as many as show a tenth of the width of an interval. */
  function digits(value, width = 0) {
    if (typeof value !== "number" || Number.isNaN(value)) return "–";
    const size = Math.abs(value), places = v => 2 - Math.floor(Math.log10(v));
    if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(2);
    const shown = Math.min(9, Math.max(0, size ? places(size) : 0, width > 0 ? places(width) - 1 : 0));
    return value.toLocaleString("en", { minimumFractionDigits: shown, maximumFractionDigits: shown });
  }

  function stamp(seconds) {
    const date = new Date(1000 * seconds);
    return Number.isNaN(date.getTime()) ? short(seconds) : date.toISOString().replace("T", " ").slice(0, 23);
  }

  function span(seconds) {
    if (typeof seconds !== "number") return "–";
    return seconds < 1 ? `${short(Math.round(1e4 * seconds) / 10)} ms` : `${short(seconds)} s`;
  }

  /** The usual step, in seconds. */
  function usualStep() {
    const { t, gap } = rows.columns, found = [];
    for (let i = Math.max(rows.start + 1, rows.end - 500); i < rows.end; i++) {
      if (!gap[i] && t[i] > t[i - 1]) found.push(t[i] - t[i - 1]);
    }
    return found.sort((a, b) => a - b)[found.length >> 1] || NaN;
  }

  /** How far the forecast reaches, in rows. */
  function reach() { return forecast && forecast.forecasts.length ? forecast.forecasts[forecast.forecasts.length - 1].ahead : 0; }

  /** The rows to show: as many as chosen, or so many that the forecast fills a third of the plot. */
  function shownRows() {
    const value = $("window").value;
    return value !== "auto" ? Number(value) : reach() ? Math.max(60, Math.ceil(1.6 * reach())) : 1000;
  }

  /** The rows in view: a zoom, or the last ones; from..to as places in the columns. */
  function view() {
    const { step } = rows.columns;
    let from = Math.max(rows.start, rows.end - shownRows()), to = rows.end;
    const range = zoom || (paused ? (frozen = frozen || (to > from ? [step[from], step[to - 1]] : null)) : null);
    if (range) {
      from = rows.start;
      while (from < to && step[from] < range[0]) from++;
      while (to > from && step[to - 1] > range[1]) to--;
    }
    return [from, to];
  }

  function label(at) {
    const { step, t } = rows.columns;
    const [from, to] = [rows.start, rows.end];
    if (to === from) return "";
    const beyond = at - step[to - 1]; // a time to come
    if (beyond > 0 && hello.time && !Number.isNaN(t[to - 1]) && forecast && forecast.forecasts.length) {
      return written(t[to - 1] + beyond * usualStep(), Math.abs(t[to - 1] - t[view()[0]]));
    }
    const i = Math.min(to - 1, Math.max(from, to - 1 - Math.round(step[to - 1] - at)));
    let place = i;
    while (place > from && step[place] > at) place--;
    while (place < to - 1 && step[place] < at) place++;
    if (!hello.time || Number.isNaN(t[place])) return Math.round(at).toLocaleString("en");
    return written(t[place], Math.abs(t[to - 1] - t[view()[0]]));
  }

  function written(time, length) {
    if (!dated) return short(time);
    const text = stamp(time);
    return length > 2 * 86400 ? text.slice(5, 16) : length > 600 ? text.slice(11, 16) : text.slice(11, length > 10 ? 19 : 23);
  }

  function options(holder, series, bands) {
    const axis = { stroke: style("--soft"), grid: { stroke: style("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    return {
      width: holder.clientWidth, height: holder.clientHeight, legend: { show: false }, series: [{}, ...series], bands,
      scales: { x: { time: false } }, padding: [10, 34, 0, 0],
      cursor: { drag: { x: true, y: false, setScale: false }, points: { show: false }, y: false },
      axes: [
        { ...axis, space: 100, size: 30, values: (_, ticks) => ticks.map(label) },
        { ...axis, size: 62, values: (_, ticks) => ticks.map(short) },
      ],
      hooks: {
        setSelect: [plot => {
          if (plot.select.width < 4) return;
          zoom = [plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")];
          plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          draw();
        }],
        draw: [paintForecast],
        ready: [plot => plot.over.addEventListener("dblclick", follow)],
      },
    };
  }

  /** The plot, anew: at the start, for another signal, in other colours. */
  function build() {
    if (plot) plot.destroy();
    plot = null;
    if (!hello || !rows) return;
    const line = (stroke, width) => ({ stroke, width, points: { size: 4, fill: stroke } });
    const alarms = { stroke: style("--no"), paths: () => null, points: { show: true, size: 8, fill: style("--no") } };
    const path = { stroke: style("--forecast"), width: 1.2, points: { show: false } }, rival = { stroke: style("--baseline"), width: 1.1, dash: [6, 4], points: { show: false } };
    const edge = { stroke: "transparent", points: { show: false } };
    const series = [edge, edge, line(style("--reading"), 1.2), line(style("--forecast"), 1.7), alarms, path, rival, edge, edge];
    const fill = hex(style("--forecast"), 0.18), bands = [{ series: [2, 1], fill }, { series: [9, 8], fill }];
    plot = new uPlot(options($("live"), series, bands), [[], ...series.map(() => [])], $("live"));
    draw();
  }

  /** The readings at which there was an alarm. */
  function marked(to) {
    const { x, alarm } = rows.columns, found = new Float64Array(to).fill(NaN);
    for (let i = rows.start; i < to; i++) if (alarm[i]) found[i] = x[i];
    return found;
  }

  /** The columns of the plot with those of the forecast, which goes on from the last row: path, baseline, bounds. */
  function extended(data, to) {
    const known = forecast && forecast.forecasts.length && !zoom && !paused && to === rows.end;
    const far = known ? [forecast.path, forecast.baseline] : [{ ahead: [] }, { ahead: [] }];
    const places = new Map();
    far.forEach((line, which) => line.ahead.forEach((place, i) => {
      const point = places.get(place) || places.set(place, [null, null, null, null]).get(place);
      point[which] = line.mean[i];
      if (which === 0) [point[2], point[3]] = [line.low[i], line.high[i]];
    }));
    const later = [...places.keys()].sort((a, b) => a - b), origin = rows.last("step");
    const blank = new Array(data[0].length).fill(null);
    const out = data.map(column => [...column, ...later.map(() => null)]);
    later.forEach((ahead, i) => { out[0][blank.length + i] = origin + Math.max(ahead, 1e-6); });
    // undefined: the lines of path and baseline have points at different places, and go on between them
    for (let k = 0; k < 4; k++) out.push([...blank, ...later.map(ahead => places.get(ahead)[k] ?? undefined)]);
    return out;
  }

  /** Where "now" is, and each forecast with its interval. */
  function paintForecast(plot) {
    if (!forecast || !forecast.forecasts.length || zoom || paused || !rows.end) return;
    const { ctx, bbox } = plot, ratio = devicePixelRatio, origin = rows.last("step");
    const at = (ahead, value) => [plot.valToPos(origin + ahead, "x", true), plot.valToPos(value, "y", true)];
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width + 8 * ratio, bbox.height); // the last dot is at the edge
    ctx.clip();
    ctx.strokeStyle = ctx.fillStyle = style("--soft");
    ctx.lineWidth = ratio;
    ctx.setLineDash([2 * ratio, 3 * ratio]);
    const x = Math.round(at(0, 0)[0]) + 0.5;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "right";
    ctx.textBaseline = "top";
    ctx.fillText("now", x - 4 * ratio, bbox.top + 2 * ratio);
    ctx.strokeStyle = ctx.fillStyle = style("--forecast");
    ctx.lineWidth = 1.2 * ratio;
    for (const one of forecast.forecasts) {
      const [left, top] = at(one.ahead, one.mean);
      if (typeof one.low === "number" && typeof one.high === "number") {
        const ends = [at(one.ahead, one.low)[1], at(one.ahead, one.high)[1]];
        ctx.beginPath();
        ctx.moveTo(left, ends[0]);
        ctx.lineTo(left, ends[1]);
        for (const end of ends) { ctx.moveTo(left - 3 * ratio, end); ctx.lineTo(left + 3 * ratio, end); }
        ctx.stroke();
      }
      ctx.beginPath();
      ctx.arc(left, top, 3.5 * ratio, 0, 2 * Math.PI);
      ctx.fill();
    }
    ctx.restore();
  }

  function draw() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      $("pause").setAttribute("aria-pressed", String(paused || zoom !== null));
      $("pause").textContent = paused || zoom ? "Follow" : "Pause";
      if (!rows) return;
      const [from, to] = view(), { step, gap } = rows.columns;
      if (plot) {
        const { clientWidth: width, clientHeight: height } = $("live"), c = rows.columns;
        if (plot.width !== width || plot.height !== height) plot.setSize({ width, height });
        plot.setData(extended(points(step, [c.low, c.high, c.x, c.answer, marked(to)], gap, from, to, width), to));
      }
      draws++;
    });
  }

  new ResizeObserver(draw).observe($("live"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) draw(); });

  // For tests: how much is held, and what is drawn.
  window.emphatic = {
    points,
    get held() { return rows ? rows.end - rows.start : 0; },
    get room() { return rows ? Object.values(rows.columns).reduce((sum, one) => sum + one.length, 0) : 0; },
    get drawn() { return plot ? plot.data : []; },
    get last() { return rows ? rows.last("step") : NaN; },
    get draws() { return draws; },
    get forecast() { return forecast; },
  };
  connect();
})();
