// The plots of the timed cases. Plotly reads markup in hover texts, so text of strangers is escaped first.
function timingPlots({data, byId, color, draw, empty, bins, line}) {
  const narrow = () => innerWidth <= 500;
  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const wrapped = (text) => (text.match(/.{1,64}(?:\s|$)|.{1,64}/g) || []).map(escaped).join("<br>");
  const scaled = (value, units) => {
    const power = Math.max(0, Math.min(units.length - 1, Math.floor(Math.log10(value) / 3)));
    return `${Number((value / 1000 ** power).toPrecision(3))} ${units[power]}`;
  };
  const time = (value) => (value < 1 ? `${(1000 * value).toPrecision(3)} ns` : scaled(value, ["us", "ms", "s"]));
  const size = (value) => scaled(value, ["B", "KB", "MB", "GB", "TB"]);
  const quantity = data.points.some((point) => point.k !== undefined) ? "K" : "E";
  const zoom = () => (narrow() ? {dragmode: false} : {dragmode: "zoom"});

  function note(point, ...lines) {
    const speeds = [["K", point.k, point.labelK], ["E", point.e, point.labelE]].filter(([, value]) => value !== undefined)
      .map(([name, value, label]) => `${name} ${value.toFixed(2)}x ${label}`).join(", ");
    return [`<b>${escaped(point.op)}</b>`, wrapped(point.inputs), point.suspect ? `${speeds}, suspect` : speeds,
      `${time(point.timeUs)}, reference ${time(point.referenceUs)}`, ...lines].filter(Boolean).join("<br>");
  }

  const dots = (name, points, x, y, marker, ...lines) => ({
    type: "scatter", mode: "markers", name, x: points.map(x), y: points.map(y), marker: {size: points.length > 1000 ? 4 : 6, opacity: 0.65, ...marker},
    customdata: points.map((point) => note(point, ...lines.map((text) => text(point)))), hovertemplate: "%{customdata}<extra></extra>",
  });

  // Every power of the base from below the smallest value to above the largest; where there is no room only each second, third...
  function powers(values, base, text, room) {
    const exponents = values.map((value) => Math.log(value) / Math.log(base));
    const low = Math.floor(exponents.reduce((a, b) => Math.min(a, b)));
    const high = Math.max(low + 1, Math.ceil(exponents.reduce((a, b) => Math.max(a, b)) + 0.02));
    const step = Math.ceil((high - low) / room);
    const shown = Array.from({length: high - low + 1}, (_, index) => low + index).filter((exponent) => exponent % step === 0);
    const scale = Math.log10(base);
    return {type: "log", range: [low * scale, high * scale], fixedrange: narrow(), tickangle: 0,
      tickvals: shown.map((exponent) => base ** exponent), ticktext: shown.map((exponent) => text(base ** exponent))};
  }
  const room = () => (narrow() ? 5 : 10);
  const plain = (value) => Number(value.toPrecision(3)).toLocaleString("en-US", {maximumSignificantDigits: 3});
  const times = (value) => (value < 1 ? `1/${Math.round(1 / value)}x` : `${value}x`);

  // ---- how speedups are distributed

  function drawSpeedups() {
    const names = {k: "K, kernel time", e: "E, whole call"};
    const of = byId("speedups-of")?.value ?? "cases";
    const logs = (name) => (of === "cases" ? data.caseLogs[name]
      : data.ops.filter((op) => op[name] !== null).map((op) => Math.log2(op[name])));
    const traces = Object.keys(names).filter((name) => data.caseLogs[name].length).map((name) => ({
      type: "bar", name: names[name], ...bins(logs(name), -4, 4, 0.25), marker: {color: color(`speed-${name}`)},
      hovertemplate: `%{y} ${of}<extra></extra>`,
    }));
    const ticks = [-4, -3, -2, -1, 0, 1, 2, 3, 4].filter((exponent) => !narrow() || exponent % 2 === 0);
    return draw("plot-speedups", `Histogram of speedups over ${data.baseline}, by ${of}`, traces, {
      showlegend: true, barmode: "group", shapes: [line(0, "ink")], yaxis: {title: {text: of}},
      xaxis: {title: {text: "speedup"}, range: [-4.1, 4.1], tickangle: 0, tickvals: ticks, ticktext: ticks.map((exponent) => times(2 ** exponent))},
    });
  }

  // ---- K against E

  const looks = {
    FASTER: ["right", "triangle-up"], SLOWER: ["wrong", "triangle-down"], SAME: ["open", "circle"], UNDECIDED: ["open", "circle-open"],
  };

  function drawAgainst() {
    const both = data.points.filter((point) => point.k !== undefined && point.e !== undefined);
    if (!both.length) return empty("plot-against", "K was not measured in this run, so there is nothing to set against E.");
    const traces = Object.entries(looks).map(([label, [shade, symbol]]) => dots(`K ${label.toLowerCase()}`,
      both.filter((point) => point.labelK === label), (point) => point.k, (point) => point.e, {color: color(shade), symbol}))
      .filter((trace) => trace.x.length);
    const axis = powers([0.5, 2, ...both.flatMap((point) => [point.k, point.e])], 2, times, room());
    const ends = axis.range.map((exponent) => 10 ** exponent);
    const rule = (x0, x1, y0, y1, dash) => ({type: "line", layer: "between", x0, x1, y0, y1, line: {color: color("quiet"), width: dash === "solid" ? 1.5 : 1, dash}});
    const corner = (x, y, text) => ({xref: "paper", yref: "paper", x, y, xanchor: x ? "right" : "left", yanchor: y ? "top" : "bottom",
      showarrow: false, text, font: {color: color("quiet"), size: 11}});
    return draw("plot-against", `Speedup of the whole call against speedup of the kernel, ${both.length} cases`, traces, {
      ...zoom(), showlegend: true, hovermode: "closest",
      shapes: [rule(1, 1, ...ends, "solid"), rule(...ends, 1, 1, "solid"), rule(...ends, ...ends, "dot")],
      annotations: [corner(0, 1, "call faster, kernel slower"), corner(1, 0, "kernel faster, call slower")],
      xaxis: {...axis, title: {text: "speedup of K"}}, yaxis: {...axis, title: {text: "speedup of E"}},
    });
  }

  // ---- what the device allows

  const sides = (points, x, rate, unit) => [
    ["reference", (point) => point.referenceUs, {color: color("reference"), symbol: "circle-open"}],
    ["kernel", (point) => point.timeUs, {color: color("candidate")}],
  ].map(([name, us, marker]) => dots(name, points, x, (point) => rate(point, us(point)), marker,
    (point) => `${plain(rate(point, us(point)))} ${unit} (${name})`, (point) => `${size(point.trafficBytes)} of traffic`));

  const roof = (name, x, y, text, position) => ({
    type: "scatter", mode: "lines+text", x, y, text, textposition: position, textfont: {color: color("ink"), size: 11}, showlegend: false,
    line: {color: color("ink"), width: 1.2}, hovertemplate: `${escaped(name)}<extra></extra>`, cliponaxis: false,
  });

  function drawRoofline() {
    const products = data.points.filter((point) => point.matmulFlops && point.trafficBytes);
    if (!products.length) return empty("plot-roofline", "The work of no matrix product is known in this run.");
    const intensity = (point) => point.matmulFlops / point.trafficBytes;
    const tflops = (point, us) => point.matmulFlops / us / 1e6;
    const traces = sides(products, intensity, tflops, "TFLOPS");
    const dtypes = new Set(products.map((point) => point.dtype));
    const rates = data.ceilings === null ? [] : Object.entries(data.ceilings.matmul_tflops).filter(([dtype]) => dtypes.has(dtype));
    const ridges = rates.map(([, rate]) => 1000 * rate / data.ceilings.copy_gbps);
    const xaxis = powers([...traces[0].x, ...ridges], 10, plain, room());
    const [left, right] = xaxis.range.map((exponent) => 10 ** exponent);
    const roofs = rates.map(([dtype, rate], index) => roof(`${dtype}: ${plain(rate)} TFLOPS, copies at ${plain(data.ceilings.copy_gbps)} GB/s`,
      [left, ridges[index], right], [left * data.ceilings.copy_gbps / 1000, rate, rate], ["", "", `${dtype} ${plain(rate)} TFLOPS`], "top left"));
    return draw("plot-roofline", `Roofline of ${products.length} matrix products`, [...roofs, ...traces], {
      ...zoom(), showlegend: true, hovermode: "closest", xaxis: {...xaxis, title: {text: "FLOP per byte of traffic"}},
      yaxis: {...powers([...traces.flatMap((trace) => trace.y), ...rates.map(([, rate]) => rate)], 10, plain, 8), title: {text: `TFLOPS, by ${quantity}`}},
    });
  }

  function drawBandwidth() {
    const moving = data.points.filter((point) => !point.matmulFlops && point.trafficBytes);
    if (!moving.length) return empty("plot-bandwidth", "The traffic of no case is known in this run.");
    const gbps = (point, us) => point.trafficBytes / us / 1000;
    const traces = sides(moving, (point) => point.trafficBytes, gbps, "GB/s");
    const [copy, cache] = data.ceilings === null ? [[], []] : [[data.ceilings.copy_gbps], [data.ceilings.l2_bytes]];
    const xaxis = powers([...traces[0].x, ...cache], 10, size, room());
    const yaxis = powers([...traces.flatMap((trace) => trace.y), ...copy], 10, plain, 8);
    const ends = (axis) => axis.range.map((exponent) => 10 ** exponent);
    const roofs = [
      ...copy.map((rate) => roof(`a large copy: ${plain(rate)} GB/s`, ends(xaxis), [rate, rate], [`copy ${plain(rate)} GB/s`, ""], "top right")),
      ...cache.map((bytes) => roof("the last cache", [bytes, bytes], ends(yaxis), [`L2 ${plain(bytes / 2 ** 20)} MiB`, ""], "top right")),
    ];
    return draw("plot-bandwidth", `Bandwidth of ${moving.length} cases without a matrix product`, [...roofs, ...traces], {
      ...zoom(), showlegend: true, hovermode: "closest",
      xaxis: {...xaxis, title: {text: "traffic"}}, yaxis: {...yaxis, title: {text: `GB/s, by ${quantity}`}},
    });
  }

  byId("speedups-of")?.addEventListener("change", drawSpeedups);
  return () => [drawSpeedups(), drawAgainst(), drawRoofline(), drawBandwidth()];
}
