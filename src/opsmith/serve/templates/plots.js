// Draws the plots of a page of the service, once its tables can be used: plotly.js takes a while to be parsed.
(async () => {
  const address = document.currentScript.dataset.plotly;
  const byId = (id) => document.getElementById(id);
  const holder = byId("payload");
  if (holder === null) return;
  await new Promise((resolve) => { setTimeout(resolve, 0); });
  const from = holder.dataset.from;
  const data = from ? await (await fetch(from)).json() : JSON.parse(holder.textContent);
  await new Promise((resolve, reject) => {
    const library = document.createElement("script");
    library.src = address;
    library.addEventListener("load", resolve);
    library.addEventListener("error", reject);
    document.head.append(library);
  });
  const tools = chartTools(byId);
  const {color, empty, draw, bins, line} = tools;

  const shades = ["#1f5fbf", "#c98a1b", "#0b7a8a", "#8a2fa8", "#1f7a4d", "#c2312b", "#8d8b84", "#5b7fd1", "#d9a94c", "#4aa3b0", "#b06fc4", "#5fae86"];
  const dashes = ["solid", "dash", "dot"];

  function drawFast() {
    const traces = data.runs.map((run, index) => ({
      type: "scatter", mode: "lines", name: run.name.length > 40 ? `${run.name.slice(0, 38)}…` : run.name, x: data.curve, y: run.shares.map((share) => 100 * share),
      line: {color: shades[index % shades.length], width: 2, dash: dashes[Math.floor(index / shades.length) % 3], shape: "hv"},
      hovertemplate: "%{y:.1f} % above %{x}x<extra></extra>",
    }));
    const label = data.runs.map((run) => `${run.name}: ${(100 * run.shares[0]).toFixed(1)} % correct, ${(100 * run.shares[10]).toFixed(1)} % above 1`).join("; ");
    return draw("plot-fast", label, traces, {
      showlegend: true, hovermode: "closest", shapes: [line(1, "ink")],
      xaxis: {title: {text: "p"}, range: [0, 3]}, yaxis: {title: {text: "% of all tasks"}, rangemode: "tozero"},
    });
  }

  function drawRatios() {
    const logs = data.map((each) => Math.log2(each.ratio));
    if (!logs.length) return empty("plot-ratios", "No task is accepted and timed in both runs.");
    const ticks = [-2, -1, 0, 1, 2];
    const faster = logs.filter((log) => log > 0).length;
    return draw("plot-ratios", `Histogram of the ratios of ${logs.length} tasks, ${faster} of them above 1`, [{
      type: "bar", ...bins(logs, -2, 2, 0.125), marker: {color: color("candidate")}, hovertemplate: "%{y} tasks<extra></extra>",
    }], {
      shapes: [line(0, "ink")], yaxis: {title: {text: "tasks"}},
      xaxis: {title: {text: "ratio of speedups, second over first"}, range: [-2.1, 2.1], tickvals: ticks, ticktext: ticks.map((exponent) => (exponent < 0 ? `1/${2 ** -exponent}x` : `${2 ** exponent}x`))},
    });
  }

  const drawTimes = byId("plot-speedups") ? timingPlots({data, byId, ...tools}) : () => [];
  const drawAll = () => Promise.all([
    byId("plot-fast") ? drawFast() : null, byId("plot-ratios") ? drawRatios() : null, ...drawTimes(),
  ]);
  await drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  document.documentElement.dataset.ready = "plots";
})();
