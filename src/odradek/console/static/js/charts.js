// Lines over time, on uPlot. Screens with charts import from here; others need not load it.
import uPlot from "../vendor/uplot.js";
import {
  byteRate, clock, cssColour, compact, duration, html, Loaded, useEffect, useGet, useQuery, useRef, useState, useTheme,
} from "./ui.js";

export * from "./ui.js";

const FORMATS = { bytes: byteRate, count: compact, seconds: (s) => duration(s === null ? null : s * 1000), ms: duration };
// Where the marks of a time axis may stand: on whole seconds, minutes and hours.
const STEPS = { seconds: [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400, 604800] };
const SAMPLES_MIN = 24;
const sheet = document.createElement("link");
sheet.rel = "stylesheet";
sheet.href = "/static/vendor/uplot.css";
document.head.append(sheet);

// Whether the marks of an axis are less than a minute apart, so that seconds tell them apart.
const isFine = (ticks) => ticks.length > 1 && ticks[1] - ticks[0] < 60;

// series: [[name, label]…] of GET /chart; ?span= is 2h unless the address says 24h.
export function Chart({ series, label, unit = "count", height = 180 }) {
  const [{ span = "2h" }, change] = useQuery();
  const state = useGet("/chart", { series: series.map(([name]) => name), span }, { poll: 5000, subject: series.join() });
  return html`<figure class="chart"><figcaption class="toolbar"><span class="muted">${label}</span><span class="spring"></span>
      ${["2h", "24h"].map((each) => html`<button class="quiet" aria-pressed=${each === span} onClick=${() => change({ span: each === "2h" ? "" : each })}>${each === "2h" ? "2 hours" : "24 hours"}</button>`)}</figcaption>
    <${Loaded} state=${state} lines=${4}>${({ from_ms: from, step_s: step, series: values }) => {
      // A console that was started just now has few samples: the time before them is not drawn.
      const all = series.map(([name]) => values[name] ?? []);
      const length = Math.max(0, ...all.map((each) => each.length));
      const known = all.map((each) => each.findIndex((value) => value !== null)).filter((at) => at >= 0);
      const first = Math.max(0, Math.min(length - SAMPLES_MIN, ...known));
      const times = Array.from({ length: length - first }, (_, at) => from / 1000 + (first + at) * step);
      return html`<${Lines} times=${times} lines=${series.map(([, text], at) => ({ label: text, values: all[at].slice(first) }))}
        format=${FORMATS[unit]} steps=${STEPS[unit]} label=${label} height=${height} />`;
    }}<//></figure>`;
}

// lines: [{label, values, bars}]
export function Lines({ times, lines, format, steps, label, height = 180 }) {
  const box = useRef();
  const plot = useRef();
  const [pointed, point] = useState(null); // the sample under the pointer
  const theme = useTheme();
  const names = lines.map((line) => line.label).join();
  const data = [times, ...lines.map((line) => line.values)];
  useEffect(() => {
    const [text, grid] = [cssColour("muted"), cssColour("line")];
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "12px system-ui" };
    const options = {
      width: box.current.clientWidth || 400,
      height,
      legend: { show: false },
      cursor: { drag: { x: false, y: false } },
      hooks: { setCursor: [(chart) => point(chart.cursor.idx ?? null)] },
      scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] } },
      axes: [{ ...axis, space: 80, values: (_, ticks) => ticks.map((tick) => clock(tick * 1000).slice(0, isFine(ticks) ? 8 : 5)) }, { ...axis, size: 74, ...(steps ? { incrs: steps } : {}), values: (_, ticks) => ticks.map((tick) => format(tick)) }],
      series: [
        {},
        ...lines.map((line, at) => {
          const colour = cssColour(`series-${(at % 6) + 1}`);
          return {
            label: line.label, stroke: colour, width: 1.5, spanGaps: false,
            ...(line.bars ? { paths: uPlot.paths.bars({ size: [0.7, 24] }), fill: colour } : {}),
            points: { show: times.length < 40 && !line.bars, size: 4 },
          };
        }),
      ],
    };
    const element = box.current;
    plot.current = new uPlot(options, data, element);
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current.destroy();
      plot.current = null;
    };
  }, [theme, names]);
  useEffect(() => plot.current?.setData(data), [times, names]);
  const known = (value) => value !== null && value !== undefined;
  const summary = lines.map((line) => {
    const values = line.values.filter(known);
    return values.length ? `${line.label}: now ${format(values.at(-1))}, highest ${format(Math.max(...values))}` : `${line.label}: no samples yet`;
  });
  // The newest moment may have no sample yet.
  const shown = pointed ?? Math.max(0, ...lines.map((line) => line.values.findLastIndex(known)));
  return html`<div class="plot" role="img" aria-label=${`${label}. ${summary.join("; ")}`} ref=${box}></div>
    <p class="legend" aria-hidden="true"><span>${times.length ? clock(times[shown] * 1000) : ""}</span>${lines.map(
      (line, at) => html`<span><i class="swatch-${(at % 6) + 1}"></i>${line.label} <b>${format(line.values[shown] ?? null)}</b></span>`,
    )}</p>`;
}
