// The plots of a campaign. Plotly reads markup in texts, so names of strangers are escaped first.
(async () => {
  const byId = (id) => document.getElementById(id);
  const inflate = async (id) => {
    const bytes = Uint8Array.from(atob(byId(id).textContent), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  const data = JSON.parse(await inflate("payload"));
  const library = document.createElement("script");
  library.nonce = document.currentScript?.nonce ?? document.querySelector("script[nonce]").nonce;
  library.textContent = await inflate("plotly");
  document.head.append(library);

  const escaped = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const style = () => getComputedStyle(document.documentElement);
  const color = (name) => style().getPropertyValue(`--${name}`).trim();
  const palette = () => ["accent", "speed-e", "candidate", "dishonest", "right", "died", "wrong", "open"].map(color);
  const axis = (title, more = {}) => ({title: {text: title}, gridcolor: color("line"), zerolinecolor: color("line"), automargin: true, ...more});
  const percent = {tickformat: ".0%", range: [-0.02, 1.05]};

  function draw(id, label, traces, layout) {
    const target = byId(id);
    target.setAttribute("role", "img");
    target.setAttribute("aria-label", label);
    return Plotly.react(target, traces, {
      margin: {l: 56, r: 16, t: 8, b: 48}, height: 300, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", colorway: palette(),
      font: {color: color("ink"), family: "inherit", size: 12}, legend: {orientation: "h", y: -0.28}, ...layout,
    }, {displayModeBar: false, responsive: true});
  }

  function all() {
    const lines = (key) => data.models.map((model) => ({
      type: "scatter", mode: "lines+markers", name: escaped(model.name), x: model[key].map(([x]) => x), y: model[key].map(([, y]) => y),
      line: {width: model.name === "all" ? 3 : 1.5, dash: model.name === "all" ? "solid" : "dot"},
    }));
    draw("plot-solved", "Share of tasks solved by the number of attempts, by model", lines("solvedAfter"),
      {xaxis: axis("attempts", {dtick: data.longest > 12 ? undefined : 1}), yaxis: axis("tasks solved", percent)});
    draw("plot-fast", "fast_p by threshold and model", lines("fast"), {xaxis: axis("p"), yaxis: axis("share of tasks", percent)});
    draw("plot-outcomes", "Attempts by outcome", [{
      type: "bar", orientation: "h", y: data.outcomes.map(([name]) => escaped(name)), x: data.outcomes.map(([, count]) => count),
      marker: {color: data.outcomes.map(([name]) => color(name === "accepted" ? "right" : ({DISHONEST: "dishonest", POLICY: "policy"})[name] ?? "wrong"))},
    }], {xaxis: axis("attempts"), yaxis: axis("", {autorange: "reversed"})});
    const wins = data.models.filter((model) => model.name !== "all");
    draw("plot-wins", "Tasks whose best kernel is each model's", [{
      type: "bar", orientation: "h", y: wins.map((model) => escaped(model.name)), x: wins.map((model) => model.wins), marker: {color: color("accent")},
    }], {xaxis: axis("tasks"), yaxis: axis("", {autorange: "reversed"})});
    const spent = data.spending.map((point) => (data.priced ? point.usd : point.tokens));
    const traces = [{type: "scatter", mode: "lines", line: {shape: "hv"}, name: "tasks with a right kernel", x: spent, y: data.spending.map((point) => point.solved)}];
    if (data.spending.some((point) => point.speedup !== null)) {
      traces.push({type: "scatter", mode: "lines", line: {shape: "hv"}, name: "geometric mean of speedups", yaxis: "y2", x: spent, y: data.spending.map((point) => point.speedup)});
    }
    draw("plot-spending", "Kernels by what was spent", traces, {
      xaxis: axis(data.priced ? "US dollars" : "tokens"), yaxis: axis("tasks", {rangemode: "tozero"}),
      yaxis2: axis("speedup", {overlaying: "y", side: "right", rangemode: "tozero", showgrid: false}),
    });
  }
  all();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
})();
