// Draws the report's charts. All show the same stretch of steps; each is drawn when it comes near the screen.
"use strict";

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const COLOURS = 8;
  // Lines beyond the colours repeat them with another stroke.
  const STROKES = ["solid", "dot", "dashdot"];
  const BORDERS = { solid: "solid", dot: "dotted", dashdot: "dashed", dash: "dashed" };
  // Up to this many points a line shows each of them.
  const MARKED_POINTS = 60;
  // With more lines than this a hover names the nearest only: a list would cover the chart.
  const LISTED_LINES = 10;
  // Words on marks are left out where they would run into each other: a share of the width.
  const MARK_WIDTH = 0.12;
  // A chart whose values come this near to zero begins there.
  const ZERO_BASE = 0.5;
  const HEADROOM = 0.06;
  // What A4 and Letter have room for, margins and the frame around a chart not counted.
  const PRINT_WIDTH = 640;
  const PRINT_HEIGHT = 200;
  const AHEAD = "400px";

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;
  const stepFormat = data.axis === "step" ? ",.0f" : ",.2~f";
  const charts = new Map();
  const zoomed = document.querySelector(".zoom");
  const padding = (data.span[1] - data.span[0]) * 0.01 || 1;
  const whole = [data.span[0] - padding, data.span[1] + padding];
  let shown = whole;
  let printing = false;

  const theme = () => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    return {
      ink: colour("ink"), quiet: colour("quiet"), grid: colour("grid"), line: colour("line"),
      surface: colour("surface"), sans: colour("sans"),
      series: Array.from({ length: COLOURS }, (_, index) => colour(`series-${index + 1}`)),
    };
  };

  // Plotly reads some tags, entities and formulas in its texts; names are only names.
  const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", $: "&#36;" };
  const literal = (text) => text.replace(/[&<>$]/g, (sign) => ENTITIES[sign]);

  // Where several lines are dashed, each belongs to the whole line before it and has its colour.
  const placeOf = (chart, index) => {
    const paired = chart.traces.filter((trace) => trace.dashed).length > 1;
    return paired ? Math.max(0, chart.traces.slice(0, index + 1).filter((trace) => !trace.dashed).length - 1) : index;
  };

  const colourOf = (chart, index, colours) => colours.series[placeOf(chart, index) % COLOURS];

  const strokeOf = (chart, index) =>
    chart.traces[index].dashed ? "dash" : STROKES[Math.floor(placeOf(chart, index) / COLOURS) % STROKES.length];

  const numberFormat = (chart) => {
    let largest = 0;
    for (const trace of chart.traces) for (const y of trace.y) if (y !== null) largest = Math.max(largest, Math.abs(y));
    if (largest >= 1000) return ",.0f";
    if (largest >= 10) return ",.2~f";
    return largest >= 0.01 ? ".4~f" : ".3~e";
  };

  // The lines that are not switched off; of a stack, their sum.
  const visible = (chart) => {
    const lines = chart.traces.filter((_, index) => !chart.hidden.has(index));
    if (!chart.stacked || !lines.length) return lines;
    const { x } = lines[0];
    return [{ x, y: x.map((_, index) => lines.reduce((sum, line) => sum + (line.y[index] ?? 0), 0)) }];
  };

  // The least and the greatest value on show.
  const extent = (chart) => {
    let low = Infinity;
    let high = -Infinity;
    const take = (x, y) => {
      if (y === null || x < shown[0] || x > shown[1]) return;
      low = Math.min(low, y);
      high = Math.max(high, y);
    };
    for (const { x, y } of visible(chart)) {
      for (let index = 0; index < x.length; index += 1) {
        take(x[index], y[index]);
        if (index === 0 || y[index] === null || y[index - 1] === null) continue;
        // Where a line enters or leaves the stretch between two of its points.
        for (const edge of shown) {
          if (x[index - 1] >= edge || x[index] <= edge) continue;
          const share = (edge - x[index - 1]) / (x[index] - x[index - 1]);
          take(edge, y[index - 1] + share * (y[index] - y[index - 1]));
        }
      }
    }
    return low <= high ? [low, high] : null;
  };

  const yRange = (chart) => {
    const found = extent(chart);
    if (!found) return null;
    let [low, high] = found;
    if (chart.stacked || (low >= 0 && low < ZERO_BASE * high)) low = 0;
    const room = (high - low) * HEADROOM || Math.abs(high) * HEADROOM || 1;
    return [low === 0 ? 0 : low - room, high + room];
  };

  const marks = (chart, colours) => {
    const width = shown[1] - shown[0];
    let next = -Infinity;
    const annotations = [];
    for (const [step, word] of chart.marks) {
      if (step < shown[0] || step > shown[1] || step < next) continue;
      next = step + MARK_WIDTH * width;
      const late = step > shown[1] - MARK_WIDTH * width;
      annotations.push({
        x: step, y: 1, yref: "paper", yanchor: "bottom", xanchor: late ? "right" : "left", xshift: late ? 3 : -3,
        text: literal(word), showarrow: false, font: { size: 11, color: colours.quiet },
      });
    }
    const shapes = chart.marks.map(([step]) => ({
      type: "line", x0: step, x1: step, y0: 0, y1: 1, yref: "paper", layer: "above",
      line: { color: colours.quiet, width: 1, dash: "dot" },
    }));
    return { annotations, shapes };
  };

  const layout = (chart, colours) => {
    const range = yRange(chart);
    const axis = {
      gridcolor: colours.grid, zeroline: false, linecolor: colours.line, tickcolor: colours.line, automargin: false,
    };
    return {
      margin: { l: 58, r: 22, t: chart.marks.length ? 20 : 8, b: 40 },
      paper_bgcolor: colours.surface, plot_bgcolor: colours.surface,
      font: { family: colours.sans, size: 12, color: colours.quiet },
      showlegend: false, autosize: !printing,
      ...(printing && { width: PRINT_WIDTH, height: PRINT_HEIGHT }),
      // A finger that drags on a chart wants to scroll the page.
      dragmode: coarse ? false : "zoom",
      hovermode: chart.traces.length > LISTED_LINES ? "closest" : "x unified",
      hoverlabel: {
        namelength: -1, bgcolor: colours.surface, bordercolor: colours.line,
        font: { family: colours.sans, size: 12, color: colours.ink },
      },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colours.quiet, activecolor: colours.ink },
      xaxis: {
        ...axis, range: [...shown], tickformat: ",", hoverformat: stepFormat,
        unifiedhovertitle: { text: `${data.axis} %{x:${stepFormat}}` }, spikecolor: colours.quiet,
        spikethickness: -1, spikedash: "solid", nticks: chart.plot.clientWidth < 480 ? 5 : 0,
        showline: true, ticks: "outside", ticklen: 4, title: { text: data.axis, standoff: 6 },
      },
      yaxis: {
        ...axis, fixedrange: true, exponentformat: "power",
        separatethousands: true, nticks: 6,
        ...(range ? { range } : { autorange: true }),
      },
      ...marks(chart, colours),
    };
  };

  const lines = (chart, colours) => {
    const format = numberFormat(chart);
    return chart.traces.map((trace, index) => {
      const colour = colourOf(chart, index, colours);
      const few = trace.x.length <= MARKED_POINTS;
      return {
        type: "scatter", x: trace.x, y: trace.y, name: literal(trace.name),
        mode: few && !chart.stacked ? "lines+markers" : "lines", marker: { size: 5 },
        // Edges of layers would make thin ones look thicker than they are.
        line: { color: colour, width: chart.stacked ? 0 : 1.75, dash: strokeOf(chart, index) },
        hovertemplate: chart.traces.length > LISTED_LINES
          ? `${data.axis} %{x:${stepFormat}}: %{y:${format}}` : `%{y:${format}}`,
        visible: chart.hidden.has(index) ? "legendonly" : true,
        ...(chart.stacked && { stackgroup: "all", fillcolor: colour }),
      };
    });
  };

  const config = {
    displaylogo: false, responsive: true, doubleClick: false, showTips: false,
    displayModeBar: coarse ? false : "hover", modeBarButtons: [["toImage"]],
  };

  const draw = (chart) => {
    const colours = theme();
    const first = !chart.drawn;
    chart.drawn = true;
    Plotly.react(chart.plot, lines(chart, colours), layout(chart, colours), config);
    chart.plot.setAttribute("aria-busy", "false");
    paintLegend(chart, colours);
    if (!first) return;
    chart.plot.on("plotly_relayout", (change) => {
      const from = change["xaxis.range[0]"] ?? change["xaxis.range"]?.[0];
      const to = change["xaxis.range[1]"] ?? change["xaxis.range"]?.[1];
      if (from !== undefined && to !== undefined) show(from, to);
    });
    chart.plot.on("plotly_doubleclick", () => show(...whole));
  };

  // One chart a frame, so that the page answers meanwhile; those out of sight when they come into it.
  let drawing = false;
  const drawNext = () => {
    const busy = (chart) => chart.inSight && chart.plot.getAttribute("aria-busy") === "true";
    const chart = [...charts.values()].find(busy);
    drawing = chart !== undefined;
    if (!drawing) return;
    draw(chart);
    requestAnimationFrame(drawNext);
  };
  const drawSoon = () => {
    if (!drawing) requestAnimationFrame(drawNext);
    drawing = true;
  };

  const refresh = () => {
    for (const chart of charts.values()) chart.plot.setAttribute("aria-busy", "true");
    drawSoon();
  };

  const show = (from, to) => {
    const low = Math.max(whole[0], Math.min(from, to));
    const high = Math.min(whole[1], Math.max(from, to));
    shown = high > low ? [low, high] : whole;
    const all = shown[0] <= whole[0] && shown[1] >= whole[1];
    if (all) shown = whole;
    label();
    refresh();
  };

  // Fingers cannot drag a stretch: they have the buttons all the time.
  const label = () => {
    zoomed.hidden = shown === whole && !coarse;
    const digits = { maximumFractionDigits: data.axis === "step" ? 0 : 1 };
    const words = (step) => Math.min(Math.max(step, data.span[0]), data.span[1]).toLocaleString("en", digits);
    const [from, to] = shown.map(words);
    zoomed.querySelector("span").textContent = shown === whole ? `all ${data.axis}s` : `${data.axis}s ${from} to ${to}`;
  };

  const zoomBy = (factor) => {
    const middle = (shown[0] + shown[1]) / 2;
    const half = ((shown[1] - shown[0]) / 2) * factor;
    show(middle - half, middle + half);
  };

  const moveBy = (share) => {
    const width = shown[1] - shown[0];
    const from = Math.min(Math.max(shown[0] + share * width, whole[0]), whole[1] - width);
    show(from, from + width);
  };

  const KEYS = {
    "+": () => zoomBy(0.5), "=": () => zoomBy(0.5), "-": () => zoomBy(2), 0: () => show(...whole),
    Escape: () => show(...whole), ArrowLeft: () => moveBy(-0.25), ArrowRight: () => moveBy(0.25),
  };

  const makeLegend = (chart) => {
    chart.buttons = chart.traces.map((trace, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(document.createElement("i"), trace.name);
      button.title = "Click to hide or show it, double-click to see it alone";
      button.addEventListener("click", () => {
        if (!chart.hidden.delete(index)) chart.hidden.add(index);
        draw(chart);
      });
      button.addEventListener("dblclick", () => {
        const others = [...chart.traces.keys()].filter((other) => other !== index);
        const alone = others.every((other) => chart.hidden.has(other));
        chart.hidden = new Set(alone ? [] : others);
        draw(chart);
      });
      chart.legend.append(button);
      return button;
    });
    paintLegend(chart, theme());
  };

  const paintLegend = (chart, colours) => {
    chart.buttons.forEach((button, index) => {
      const sample = button.firstElementChild;
      button.setAttribute("aria-pressed", String(!chart.hidden.has(index)));
      sample.classList.toggle("layer", chart.stacked);
      sample.style.borderTopColor = colourOf(chart, index, colours);
      sample.style.borderTopStyle = BORDERS[strokeOf(chart, index)];
    });
  };

  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) charts.get(entry.target).inSight = entry.isIntersecting;
    drawSoon();
  }, { rootMargin: AHEAD });

  for (const chart of data.charts) {
    const figure = document.getElementById(`chart-${chart.id}`);
    chart.plot = figure.querySelector(".plot");
    chart.legend = figure.querySelector(".legend");
    chart.hidden = new Set();
    charts.set(chart.plot, chart);
    makeLegend(chart);
    chart.plot.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
      event.preventDefault();
      KEYS[event.key]();
    });
    observer.observe(chart.plot);
  }

  if (zoomed) {
    for (const button of zoomed.querySelectorAll("button")) button.addEventListener("click", KEYS[button.dataset.key]);
    label();
  }
  dark.addEventListener("change", () => {
    for (const chart of charts.values()) paintLegend(chart, theme());
    refresh();
  });

  // On paper everything is drawn and open, and put back afterwards.
  let opened = [];
  const prepare = (forPaper) => {
    printing = forPaper;
    document.documentElement.classList.toggle("paper", forPaper);
    for (const chart of charts.values()) draw(chart);
  };
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const details of opened) details.open = true;
    prepare(true);
  });
  addEventListener("afterprint", () => {
    for (const details of opened) details.open = false;
    prepare(false);
  });
})();
