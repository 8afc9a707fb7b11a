// What every plot is drawn with: the page's colours, its axes, and bars of a histogram.
function chartTools(byId) {
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  // A plot without anything to show takes no room; where all of a section are, the section says why.
  const empty = (id, text) => {
    byId(id).classList.add("empty");
    byId(id).textContent = text;
    byId(id).closest("figure").hidden = true;
  };

  function draw(id, label, traces, layout) {
    byId(id).setAttribute("role", "img");
    byId(id).setAttribute("aria-label", label);
    const axis = {gridcolor: color("line"), linecolor: color("line"), zeroline: false, automargin: true, fixedrange: true};
    return Plotly.react(id, traces, {
      dragmode: false, ...layout,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", bargap: 0.25,
      font: {color: color("quiet"), family: getComputedStyle(document.body).fontFamily, size: 12},
      margin: {l: 8, r: 16, t: 28, b: 36}, hoverlabel: {font: {family: "inherit"}},
      legend: {orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal"},
      xaxis: {...axis, ...layout.xaxis}, yaxis: {...axis, ...layout.yaxis},
    }, {displayModeBar: false, responsive: true});
  }

  // Bars of equal width in the logarithm; the ends take what lies beyond them.
  function bins(values, low, high, width) {
    const count = Math.round((high - low) / width);
    const heights = new Array(count).fill(0);
    for (const value of values) heights[Math.min(count - 1, Math.max(0, Math.floor((value - low) / width)))] += 1;
    return {x: heights.map((_, index) => low + (index + 0.5) * width), y: heights};
  }

  const line = (x, name) => ({type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper", line: {color: color(name), width: 1, dash: "dot"}});

  return {color, empty, draw, bins, line};
}
