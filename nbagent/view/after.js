// What can be done with a finished run, below the trace that it left. The bar lives in the page only: it is not
// saved with the notebook, and it goes when the cell is run again, the kernel ends or the page is left.

// The first cell of the notebook with an output that `fits`, and which output; where the page is JupyterLab's.
function cellWith(model, fits) {
  for (const cell of model.widget_manager?.context?.model?.cells ?? []) {
    for (let i = 0; i < (cell.outputs?.length ?? 0); i += 1) {
      if (fits(cell.outputs.get(i).data ?? {})) return { cell, output: i };
    }
  }
  return null;
}

// Code cells below the one with this id; gives how to find the first of them in the page.
function insertBelow(model, id, sources) {
  const notebook = model.widget_manager?.context?.model;
  const at = [...(notebook?.cells ?? [])].findIndex((cell) => cell.id === id);
  if (at < 0) return null;
  notebook.sharedModel.insertCells(
    at + 1,
    sources.map((source) => ({ cell_type: "code", source, metadata: { trusted: true }, outputs: [] })),
  );
  return () => document.querySelectorAll(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell")[at + 1] ?? null;
}

class AfterBar {
  constructor(channel, run) {
    this.channel = channel;
    this.mark = `nbagent-${run}`; // the class of the trace that the run leaves
    this.said = el("span", "nba-quiet nba-after-said");
    this.said.setAttribute("role", "status");
    const ask = (name) => () => this.ask(name);
    this.buttons = [
      button("nba-insert", "Insert cells below", ask("cells")),
      button("nba-export", "Export", ask("export")),
      button("nba-undo", "Undo last step", ask("undo")),
      button("nba-continue", "Continue", () => this.insert([this.again("Go on.", false)])),
      button("nba-again", "Ask again", () => this.insert([this.again(null, true)])),
    ];
    this.node = el("div", "nba nba-after", ...this.buttons, this.said);
    this.node.setAttribute("role", "toolbar");
    this.node.setAttribute("aria-label", "What to do with this run");
    this.node.dataset.lmSuppressShortcuts = "true";
  }
  // The trace replaces the widget a moment after the run has ended; until then there is nothing to stand below.
  appear(tries = 100) {
    const trace = document.querySelector(`.${this.mark}`);
    const found = cellWith(this.channel.model, (data) => String(data["text/html"] ?? "").includes(this.mark));
    if (trace && found) {
      this.cell = found.cell;
      trace.append(this.node);
    } else if (tries) setTimeout(() => this.appear(tries - 1), 50);
  }
  ask(name) {
    this.busy(true);
    this.said.textContent = "";
    this.channel.send({ op: "after", name });
  }
  hear(message) {
    this.busy(false);
    this.said.textContent = message.said;
    if (message.cells?.length) this.insert(message.cells);
  }
  busy(is) {
    for (const one of this.buttons) one.disabled = is;
  }
  // The cell's own first line, so that its options stay; with `task` in the place of what stands below it.
  again(task, anew) {
    const [first, ...rest] = this.cell.sharedModel.getSource().split("\n");
    const line = anew && !/\s--again\b/.test(first) ? `${first.trimEnd()} --again` : first.replace(/\s+--again\b/, "");
    return [line, ...(task === null ? rest : [task])].join("\n");
  }
  insert(sources) {
    const first = insertBelow(this.channel.model, this.cell.id, sources);
    if (!first) {
      this.said.textContent = "This page takes no new cells: use %agent cells.";
      return;
    }
    setTimeout(() => {
      first()?.scrollIntoView({ block: "nearest" });
      first()?.querySelector(".cm-content")?.focus();
    }, 100);
  }
}
