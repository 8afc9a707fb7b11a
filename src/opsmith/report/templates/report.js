"use strict";
// Draws the table of ops, the failing cases and the plots. Text of strangers goes through
// textContent alone; there is no innerHTML in this file.
(async () => {
  const nonce = document.currentScript.nonce;
  const byId = (id) => document.getElementById(id);
  const integer = new Intl.NumberFormat("en-US");
  const plural = (count, noun) => `${integer.format(count)} ${noun}${count === 1 ? "" : "s"}`;

  function element(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  }

  async function inflate(id) {
    const holder = byId(id);
    const bytes = Uint8Array.from(atob(holder.textContent), (character) => character.charCodeAt(0));
    holder.remove();
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  }

  if (typeof DecompressionStream === "undefined") {
    document.querySelector("main").prepend(
      element("p", {class: "notes"}, "This browser cannot inflate the table and the plots; a version from 2023 or later can."));
    return;
  }
  const data = JSON.parse(await inflate("payload"));
  const word = (result) => (result === "NO_KERNEL" ? "no kernel" : result);
  // Long names break where a reader would break them, not in the middle of a word.
  const breakable = (text) => text.split(/(?<=_)|(?=\.)/).flatMap((part, index) => (index ? [document.createElement("wbr"), part] : [part]));
  const chip = (result) => element("span", {class: `chip ${data.groups[result]}`}, ...breakable(word(result)));
  const speedup = (value) => (value === null ? "–" : `${value.toFixed(2)}x`);

  // ---- lists that are filtered and shown a page at a time

  function paged({items, page, body, more, count, noun, render}) {
    let shown = page;
    let kept = items;
    function draw() {
      body.replaceChildren(...kept.slice(0, shown).map(render));
      count.textContent = kept.length === items.length ? plural(items.length, noun)
        : `${integer.format(kept.length)} of ${plural(items.length, noun)}`;
      more.replaceChildren();
      const rest = kept.length - shown;
      if (rest <= 0) return;
      const show = (step) => () => { shown += step; draw(); };
      more.append(element("button", {type: "button", onclick: show(page)}, `Show ${Math.min(page, rest)} more`));
      if (rest > page) more.append(element("button", {type: "button", onclick: show(rest)}, `Show all ${integer.format(kept.length)}`));
    }
    return (selection) => { kept = selection; shown = page; draw(); };
  }

  function fillOptions(select, results) {
    const counts = new Map();
    for (const result of results) counts.set(result, (counts.get(result) || 0) + 1);
    for (const [result, count] of [...counts].sort((a, b) => b[1] - a[1])) {
      select.append(element("option", {value: result}, `${word(result)} (${integer.format(count)})`));
    }
  }

  // ---- the table of ops

  const timed = {k: data.ops.some((op) => op.k !== null), e: data.ops.some((op) => op.e !== null)};
  const bounds = data.ops.some((op) => op.bound !== null);
  const reviewed = data.ops.some((op) => op.review !== null);
  const statuses = (op) => Object.entries(op.statuses).filter(([status]) => status !== "PASSED")
    .map(([status, count]) => `${status}\u00a0${integer.format(count)}`).join(", ") +
    (op.acceptedFor.length ? ` accepted for ${op.acceptedFor.join(", ")}` : "");
  const columns = [
    {title: "Op", key: (op) => op.op},
    {title: "Result", key: (op) => op.result},
    {title: "Passed", number: true, key: (op) => op.passed / op.cases},
    ...(timed.k ? [{title: "K", number: true, key: (op) => op.k}] : []),
    ...(timed.e ? [{title: "E", number: true, key: (op) => op.e}] : []),
    ...(bounds ? [{title: "Roofline", number: true, minor: true, key: (op) => op.bound}] : []),
    {title: "Largest rel. error", number: true, minor: true, key: (op) => op.maxRel},
    {title: "Bad calls", number: true, minor: true, key: (op) => (op.badCalls ? op.raised / op.badCalls : null)},
    {title: "Kernel", minor: true, key: (op) => op.dsl},
    ...(reviewed ? [{title: "Review", minor: true, key: (op) => op.review}] : []),
  ];

  // Quiet where no case of the op is faster or slower with certainty.
  function speedCell(value, labels) {
    const certain = value === null || labels.FASTER || labels.SLOWER;
    const title = Object.entries(labels).map(([label, count]) => `${integer.format(count)} ${label.toLowerCase()}`).join(", ");
    return element("td", {class: certain ? "number" : "number uncertain", title}, `${certain ? "" : "~"}${speedup(value)}`);
  }

  function opRow(op) {
    const name = element("th", {scope: "row"}, element("span", {class: "mono"}, ...breakable(op.op)), element("span", {class: "under"}, op.variant));
    const result = element("td", {}, chip(op.result));
    const under = element("span", {class: "under"}, element("span", {class: "minor"}, statuses(op)));
    if (failingByOp.has(op.op)) {
      const show = () => { byId("cases-text").value = op.op; byId("cases-result").value = ""; filterCases(); byId("cases").scrollIntoView(); };
      under.append(element("button", {type: "button", class: "link", onclick: show}, "show cases"));
    }
    if (under.textContent) result.append(under);
    const cell = (text, minor) => element("td", {class: minor ? "number minor" : "number"}, text);
    const row = element("tr", {}, name, result, cell(`${integer.format(op.passed)}/${integer.format(op.cases)}`));
    if (timed.k) row.append(speedCell(op.k, op.labelsK));
    if (timed.e) row.append(speedCell(op.e, op.labelsE));
    if (bounds) row.append(cell(op.bound === null ? "–" : op.bound < 1 ? "<1 %" : `${Math.round(op.bound)} %`, true));
    row.append(
      cell(op.maxRel === null ? "–" : op.maxRel === 0 ? "0" : op.maxRel.toExponential(1), true),
      cell(op.badCalls ? `${op.raised}/${op.badCalls}` : "–", true),
      element("td", {class: "minor"}, op.dsl === null ? "–" : op.derived ? `${op.dsl}, derived` : op.dsl));
    if (reviewed) row.append(element("td", {class: "minor"}, op.review === null ? "–" : op.review));
    return row;
  }

  let sorting = null;
  // Absent figures come last in either direction: they are not small numbers.
  function compare(a, b) {
    const [left, right] = [sorting.column.key(a), sorting.column.key(b)];
    if (left === null || right === null) return (left === null) - (right === null);
    const order = typeof left === "number" ? left - right : left.localeCompare(right, "en");
    return sorting.descending ? -order : order;
  }

  const failingByOp = new Set(data.failing.map((failing) => failing.op));
  const showOps = paged({items: data.ops, page: 50, body: byId("ops-body"), more: byId("ops-more"), count: byId("ops-count"), noun: "op", render: opRow});
  function filterOps() {
    const text = byId("ops-text").value.trim().toLowerCase();
    const result = byId("ops-result").value;
    const kept = data.ops.filter((op) => (!result || op.result === result)
      && `${op.op} ${op.variant} ${op.dsl || ""}`.toLowerCase().includes(text));
    showOps(sorting ? kept.sort(compare) : kept);
  }

  for (const column of columns) {
    const classes = [column.number && "number", column.minor && "minor"].filter(Boolean).join(" ");
    const header = element("th", {scope: "col", class: classes});
    header.append(element("button", {type: "button", onclick: () => {
      const again = sorting !== null && sorting.column === column;
      sorting = {column, descending: again ? !sorting.descending : false};
      for (const other of byId("ops-head").children) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", sorting.descending ? "descending" : "ascending");
      filterOps();
    }}, column.title));
    byId("ops-head").append(header);
  }
  fillOptions(byId("ops-result"), data.ops.map((op) => op.result));

  // ---- the failing cases

  function figuresText(figures) {
    const outside = `${integer.format(figures.mismatched)} of ${plural(figures.elements, "element")} outside`;
    const excused = figures.oracle_excused ? `; ${integer.format(figures.oracle_excused)} more excused by the float64 oracle` : "";
    const small = (value) => (value !== 0 && Math.abs(value) < 1e-3 ? value.toExponential() : String(value));
    const within = `${outside} rtol ${small(figures.rtol)} and atol ${small(figures.atol)}`;
    // Differences from NaN, from infinities and from 0 have no relative size.
    if (figures.mismatched && !figures.max_abs) return `${within}; where they differ one side is NaN or infinite${excused}`;
    const relative = figures.max_rel || !figures.mismatched ? `${figures.max_rel.toPrecision(3)} relative` : "where eager's is 0";
    return `${within}; largest error ${figures.max_abs.toPrecision(3)} absolute, ${relative}${excused}`;
  }

  async function copy(text, node) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Browsers that deny a file the clipboard still copy a selection; failing that, it is left selected.
      getSelection().selectAllChildren(node);
      return document.execCommand("copy");
    }
  }

  function copyButton(text, node) {
    const button = element("button", {type: "button", "aria-label": "Copy the command"}, "Copy");
    button.addEventListener("click", async () => {
      button.textContent = (await copy(text, node)) ? "Copied" : "Press Ctrl+C";
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    return button;
  }

  function caseCard(failing) {
    // A line may end before an option, never inside its dashes.
    const words = failing.repro.split(/(--[a-z]+)/).map((part, index) => (index % 2 ? element("span", {class: "option"}, part) : part));
    const code = element("code", {}, ...words);
    const card = element("article", {class: "case"},
      chip(failing.status), element("h3", {class: "mono"}, failing.op), element("span", {class: "hint"}, failing.dtype));
    if (failing.remark) card.append(element("span", {class: "hint"}, ` · ${failing.remark}`));
    if (failing.inputs) card.append(element("p", {class: "inputs mono"}, failing.inputs));
    if (failing.detail) card.append(element("p", {class: "detail"}, failing.detail));
    card.append(element("div", {class: "repro"}, code, copyButton(failing.repro, code)));
    const lines = [failing.figures && figuresText(failing.figures), failing.evidence].filter(Boolean).join("\n\n");
    if (lines) card.append(element("details", {}, element("summary", {}, "Evidence"), element("pre", {}, lines)));
    return card;
  }

  let filterCases = () => {};
  if (data.failing.length) {
    const showCases = paged({items: data.failing, page: 25, body: byId("cases-body"), more: byId("cases-more"), count: byId("cases-count"), noun: "failure", render: caseCard});
    filterCases = () => {
      const text = byId("cases-text").value.trim();
      const result = byId("cases-result").value;
      // The name of an op means that op alone: `add.Tensor` is part of other names.
      const matches = failingByOp.has(text) ? (failing) => failing.op === text
        : (failing) => `${failing.op} ${failing.case} ${failing.detail} ${failing.inputs}`.toLowerCase().includes(text.toLowerCase());
      showCases(data.failing.filter((failing) => (!result || failing.status === result) && matches(failing)));
    };
    fillOptions(byId("cases-result"), data.failing.map((failing) => failing.status));
    byId("cases-text").addEventListener("input", filterCases);
    byId("cases-result").addEventListener("change", filterCases);
    filterCases();
  }
  byId("ops-text").addEventListener("input", filterOps);
  byId("ops-result").addEventListener("change", filterOps);
  filterOps();
  document.documentElement.dataset.ready = "tables";

  // ---- the plots

  // The table is usable by now; let it be painted before the 5 MB of plotly.js are parsed.
  await new Promise((resolve) => { setTimeout(resolve, 0); });
  const library = document.createElement("script");
  library.nonce = nonce;
  library.textContent = await inflate("plotly");
  document.head.append(library);

  const {color, empty, draw, bins, line} = chartTools(byId);

  function drawVariants() {
    const variants = [...new Set(data.ops.map((op) => op.variant))].sort().reverse();
    const traces = Object.entries(data.legend).map(([group, name]) => ({
      type: "bar", orientation: "h", name, y: variants, marker: {color: color(group)}, hovertemplate: `%{x} ${name}<extra>%{y}</extra>`,
      x: variants.map((variant) => data.ops.filter((op) => op.variant === variant && data.groups[op.result] === group).length),
    })).filter((trace) => trace.x.some(Boolean));
    const label = traces.map((trace) => `${trace.name}: ${trace.x.reduce((a, b) => a + b, 0)} ops`).join(", ");
    return draw("plot-variants", label, traces, {barmode: "stack", showlegend: true, xaxis: {title: {text: "ops"}}, yaxis: {ticks: ""}});
  }

  function drawStatuses() {
    const failing = Object.entries(data.statuses).filter(([status]) => status !== "PASSED").sort((a, b) => a[1] - b[1]);
    if (!failing.length) return empty("plot-statuses", "Every case that was judged passed.");
    byId("plot-statuses").style.height = `${Math.max(15, 5 + 1.3 * failing.length)}rem`;
    return draw("plot-statuses", failing.map(([status, count]) => `${status}: ${count}`).join(", "), [{
      type: "bar", orientation: "h", y: failing.map(([status]) => status), x: failing.map(([, count]) => count),
      marker: {color: failing.map(([status]) => color(data.groups[status]))},
      text: failing.map(([, count]) => integer.format(count)), textposition: "outside", cliponaxis: false, hovertemplate: "%{y}: %{x} cases<extra></extra>",
    }], {xaxis: {title: {text: "cases"}}, yaxis: {ticks: "", dtick: 1}});
  }

  function drawErrors() {
    const compared = data.ops.filter((op) => op.maxRel !== null);
    if (!compared.length) return empty("plot-errors", "No values were compared in this run.");
    const [low, high] = [-9, 3];
    const position = (error) => (error === 0 ? low - 1 : Math.max(low, Math.log10(error)));
    const traces = [["correct", "right", true], ["not correct", "wrong", false]].map(([name, shade, correct]) => ({
      type: "bar", name, marker: {color: color(shade)}, hovertemplate: `%{y} ops ${name}<extra></extra>`,
      ...bins(compared.filter((op) => (op.result === "PASSED") === correct).map((op) => position(op.maxRel)), low - 1, high, 0.5),
    })).filter((trace) => trace.y.some(Boolean));
    const ticks = [-8, -6, -4, -2, 0, 2];
    return draw("plot-errors", "Histogram of the largest relative error of each op", traces, {
      showlegend: true, barmode: "stack", yaxis: {title: {text: "ops"}},
      shapes: data.rtols.filter((rtol) => rtol > 0).map((rtol) => line(Math.log10(rtol), "ink")),
      xaxis: {title: {text: "relative error"}, tickvals: [low - 0.75, ...ticks], ticktext: ["exact", ...ticks.map((tick) => `1e${tick}`)]},
    });
  }

  const drawTimings = timed.k || timed.e ? timingPlots({data, byId, color, draw, empty, bins, line})
    : () => [empty("plot-speedups", "Nothing was timed in this run.")];
  const drawAll = () => Promise.all([drawVariants(), drawStatuses(), drawErrors(), ...drawTimings()]);
  await drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  document.documentElement.dataset.ready = "plots";
})();
