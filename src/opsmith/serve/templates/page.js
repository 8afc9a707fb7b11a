"use strict";
// What makes the pages quicker to use; without it every form and link works all the same.
(() => {
  for (const select of document.querySelectorAll("select[data-submits]")) {
    select.addEventListener("change", () => select.form.requestSubmit());
  }
  // Empty fields are left out of the address.
  for (const form of document.querySelectorAll("form.controls")) {
    form.addEventListener("formdata", (event) => {
      for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
    });
  }
  for (const button of document.querySelectorAll("button[data-copies]")) {
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
      button.textContent = "Copied";
    });
  }

  // A line's number, and its file, are taken into the form of a review.
  for (const link of document.querySelectorAll("[data-line]")) {
    link.addEventListener("click", () => {
      const field = document.getElementById("line");
      if (field) field.value = link.dataset.line;
      const file = document.getElementById("file");
      if (file) file.value = link.dataset.file;
    });
  }

  const now = document.querySelector("[data-live]");
  if (now) {
    const runs = [...document.querySelectorAll("[data-run]")];
    const integer = new Intl.NumberFormat("en-US");
    const source = new EventSource(`/live?${new URLSearchParams(runs.map((run) => ["run", run.dataset.run]))}`);
    source.addEventListener("message", (event) => {
      const told = JSON.parse(event.data);
      const figures = now.querySelectorAll("dd");
      for (const [index, name] of ["waiting", "judging", "judged"].entries()) {
        figures[index].querySelector("b").textContent = integer.format(told[name]);
      }
      figures[1].querySelector("span").textContent = `${integer.format(told.found)} verdicts on them so far`;
      for (const run of runs) {
        const [judged, kernels, accepted] = told.runs[run.dataset.run] || [];
        if (judged === undefined) continue;
        const bar = run.querySelector("progress");
        bar.max = kernels || 1;
        bar.value = judged;
        run.querySelector("span").textContent = `${integer.format(judged)}/${integer.format(kernels)}`;
        document.querySelector(`[data-accepted="${run.dataset.run}"]`).textContent = integer.format(accepted);
      }
      document.documentElement.dataset.live = "yes";
    });
    addEventListener("pagehide", () => source.close());
  }
  document.documentElement.dataset.ready = "tables";
})();
