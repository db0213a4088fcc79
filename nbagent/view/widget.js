// The live view of one run. The kernel sends numbered operations; this page folds them into DOM, with what
// shown.js makes of texts and outputs: text nodes, never markup.

const LAST_KNOCK = 5000; // ms
const STAND = 1000; // ms within which what the kernel displays stands in the page
const ASK_AGAIN = 3000; // ms between two questions for what was lost
const ACK_TIMEOUT = 2000; // ms without a word from the kernel after Stop, then the kernel is interrupted

// -- one action ----------------------------------------------------------------------------------------

const WORDS = {
  ok: "", error: "failed", timeout: "ran out of time", interrupted: "stopped", denied: "denied",
  invalid: "not a valid call", unavailable: "tool unavailable", skipped: "skipped",
};

class Code {
  constructor() {
    this.code = el("code", "");
    const box = el("pre", "nba-code", this.code);
    box.tabIndex = 0;
    this.node = el("div", "nba-copied", box, copyButton(() => this.text));
    this.text = "";
    this.tool = "";
  }
  set(text, tool) {
    if (text === this.text && this.painted) return;
    this.text = text;
    this.tool = tool || this.tool;
    this.paint(10 * HIGHLIGHT_LIMIT);
  }
  add(text, tool) {
    this.text += text;
    this.tool = tool || this.tool;
  }
  paint(limit = HIGHLIGHT_LIMIT) {
    this.painted = true;
    const plain = this.tool === "run_shell" || this.text.startsWith("%%") || this.text.length > limit;
    if (!plain) this.code.replaceChildren(highlighted(this.text));
    else if (this.grown?.isConnected && this.text.startsWith(this.grown.data)) {
      this.grown.appendData(this.text.slice(this.grown.data.length));
    } else {
      this.grown = document.createTextNode(this.text);
      this.code.replaceChildren(this.grown);
    }
    this.node.hidden = !this.text;
  }
}

class Action {
  constructor(run) {
    this.run = run;
    this.code = new Code();
    this.code.node.hidden = true;
    this.outputs = el("div", "nba-outputs");
    this.card = el("div", "");
    this.foot = el("div", "nba-foot");
    this.node = el("div", "nba-action", this.code.node, this.card, this.outputs, this.foot);
    this.status = "proposed";
    this.tool = "";
  }
  describe(op) {
    this.tool = op.tool || this.tool;
    if (op.code !== undefined && !OWN_QUESTIONS[this.tool] && this.tool !== "ask_user") this.code.set(op.code, this.tool);
    if (op.edited) this.edited = true;
  }
  start(op) {
    this.describe(op);
    this.status = "running";
    this.at = op.at;
    this.card.replaceChildren();
  }
  tick() {
    if (this.status === "running") this.foot.textContent = `${this.tool} · ${duration(this.run.since(this.at))}`;
  }
  output(block) {
    const streams = block.kind === "stdout" || block.kind === "stderr";
    if (streams && this.last?.kind === block.kind) this.last.terminal.add(block.text);
    else if (streams) {
      this.last = { kind: block.kind, terminal: new Terminal(block.kind === "stderr" ? "nba-stderr" : "") };
      this.last.terminal.add(block.text);
      this.last.terminal.node.tabIndex = 0;
      this.outputs.append(this.last.terminal.node);
    } else {
      this.last = null;
      this.outputs.append(shown(block));
    }
  }
  done(op) {
    this.status = op.status;
    this.card.replaceChildren();
    const facts = [this.tool, WORDS[op.status] ?? op.status, duration(op.seconds), op.summary, this.edited ? "edited by you" : "", op.allowed ? "allowed by your earlier yes" : ""];
    const own = OWN_TITLES[this.tool]; // a question of nbagent's: nothing ran, and no is an answer as good as yes
    this.foot.textContent = own ? `${own}: ${op.summary}` : facts.filter(Boolean).join(" · ");
    this.foot.classList.toggle("nba-bad", op.status !== "ok" && !own);
  }
  ask(op) {
    this.status = "waiting";
    this.question = op.code;
    this.describe(op);
    this.card.replaceChildren(approvalCard(this, op));
  }
  given(op) {
    this.status = op.approved ? "proposed" : "denied";
    const who = op.by === "nobody" ? "Nobody was there to answer" : op.by === "rule" ? "Decided by a rule" : "";
    if (this.tool === "ask_user") this.outputs.append(el("div", "", this.question)); // its card goes
    else this.card.replaceChildren(el("div", "nba-quiet", [op.approved ? "Approved" : "Denied", who].filter(Boolean).join(". ")));
  }
}

// -- one step ------------------------------------------------------------------------------------------

const titled = (line) => line.replace(/^[\s#*]+|[*`]/g, "").slice(0, 200);

class Step {
  constructor(run, number) {
    this.run = run;
    this.number = number;
    this.title = el("span", "nba-title");
    this.mark = el("span", "nba-mark");
    this.took = el("span", "nba-quiet nba-took");
    this.back = button("nba-back", "Undo", (event) => {
      event.preventDefault();
      this.back.disabled = true;
      run.send({ op: "undo", step: number });
    });
    this.back.hidden = true;
    this.back.title = "Stop, and take back this step and what came after it";
    this.back.setAttribute("aria-label", `Undo step ${number}`);
    this.summary = el("summary", "nba-summary", el("span", "nba-number", String(number)), this.title, this.mark, this.back, this.took);
    this.reasoning = new Prose("nba-reasoning-text");
    this.reasoningBox = el("details", "nba-reasoning", el("summary", "", "Reasoning"), this.reasoning.node);
    this.reasoningBox.hidden = true;
    this.thought = new Prose("nba-thought");
    this.draft = new Code();
    this.draft.node.hidden = true;
    this.actionsBox = el("div", "");
    this.notes = el("div", "");
    this.body = el("div", "nba-body", this.reasoningBox, this.thought.node, this.actionsBox, this.draft.node, this.notes);
    this.node = el("details", "nba-step", this.summary, this.body);
    this.node.open = true;
    this.summary.addEventListener("click", () => (this.touched = true));
    this.actions = new Map();
    this.finished = false;
  }
  action(id) {
    if (!this.actions.has(id)) {
      const action = new Action(this.run);
      this.actions.set(id, action);
      this.actionsBox.append(action.node);
    }
    return this.actions.get(id);
  }
  paint() {
    this.reasoning.paint();
    this.thought.paint();
    if (this.draft.text) this.draft.paint();
    const first = this.thought.text.split("\n").find((line) => line.trim()) ?? "";
    const tools = [...this.actions.values()].map(({ tool }) => OWN_TITLES[tool] ?? tool);
    this.node.classList.toggle("nba-said", Boolean(first || this.reasoning.text.trim()));
    this.title.textContent = titled(first) || tools.join(", ") || this.draft.tool || "…";
    const bad = [...this.actions.values()].filter((action) => WORDS[action.status]);
    this.mark.textContent = bad.length ? WORDS[bad[bad.length - 1].status] : "";
  }
  voided() {
    this.thought.clear();
    this.reasoning.clear();
    this.reasoningBox.hidden = true;
    this.undraft();
    for (const [id, action] of this.actions) {
      if (action.status !== "proposed") continue;
      action.node.remove();
      this.actions.delete(id);
    }
  }
  undraft() {
    this.draft.text = "";
    this.draft.grown = null;
    this.draft.code.replaceChildren();
    this.draft.node.hidden = true;
  }
  fold() {
    if (!this.touched) this.node.open = false;
  }
}

// -- the run -------------------------------------------------------------------------------------------

class Run {
  constructor(root, channel) {
    this.channel = channel;
    this.steps = new Map();
    this.now = 0;
    this.tokens = 0;
    this.cost = "";
    this.status = el("span", "nba-status", "Starting…");
    this.status.setAttribute("role", "status");
    this.facts = el("span", "nba-facts nba-quiet");
    this.model = el("span", "nba-model nba-quiet");
    this.stop = button("nba-stop", "Stop", () => this.stopNow());
    this.stop.setAttribute("aria-label", "Stop the agent");
    this.dot = el("span", "nba-dot");
    this.dot.setAttribute("aria-hidden", "true");
    this.plan = el("ul", "nba-plan");
    this.plan.hidden = true;
    this.plan.setAttribute("aria-label", "Plan");
    this.answer = el("div", "nba-answer");
    this.answer.hidden = true;
    this.list = el("div", "nba-steps");
    this.notes = el("div", "");
    const head = el("div", "nba-head", this.dot, this.status, this.facts, this.model, this.stop);
    root.classList.add("nba");
    root.setAttribute("role", "region");
    root.setAttribute("aria-label", "Agent run");
    root.dataset.lmSuppressShortcuts = "true"; // typing here is not a notebook command
    root.append(head, this.answer, this.plan, this.notes, this.list);
    this.root = root;
    this.timer = setInterval(() => this.tick(), 100);
  }
  send(letter) {
    this.channel.send(letter);
  }
  since(at) {
    return Date.now() / 1000 - this.channel.skew - at;
  }
  stopNow() {
    this.stop.disabled = true;
    this.stop.textContent = "Stopping…";
    this.channel.stop();
  }
  step(number) {
    if (!this.steps.has(number)) {
      const step = new Step(this, number);
      for (const old of this.steps.values()) if (!old.shrunk) old.fold();
      this.steps.set(number, step);
      this.list.append(step.node);
    }
    return this.steps.get(number);
  }
  apply(ops) {
    const touched = new Set();
    for (const op of ops) {
      if (!op) continue; // of a step that is a line now
      if (op.t === "run") this.begin(op);
      else if (op.t === "fold") this.shrink(op);
      else if (op.t === "end") this.end(op);
      else if (op.t === "plan") this.planned(op.items);
      else if (op.t === "note" && !op.n) this.notes.append(el("div", "nba-note", op.x));
      else {
        const step = this.step(op.n);
        if (step.shrunk) continue;
        this.toStep(step, op);
        touched.add(step);
      }
    }
    for (const step of touched) step.paint();
    this.tick();
  }
  // Far back: one line of it stays, so that the page does not grow with the run.
  shrink(op) {
    const old = this.steps.get(op.n);
    if (old?.shrunk) return;
    const line = el("div", "nba-shrunk", titled(op.title));
    line.dataset.number = op.n;
    line.dataset.took = [WORDS[op.status] ?? "", duration(op.seconds)].filter(Boolean).join(" · ");
    if (old) old.node.replaceWith(line);
    else this.list.append(line);
    this.steps.set(op.n, { shrunk: true });
  }
  begin(op) {
    this.at = op.at;
    this.label = op.label;
    this.model.textContent = op.model;
    this.model.title = op.model;
    this.phase = "Thinking…";
  }
  planned(items) {
    this.plan.hidden = !items.length;
    this.plan.replaceChildren(
      ...items.map(([text, done]) => el("li", done ? "nba-done" : "", el("span", "nba-box", done ? "☑" : "☐"), text)),
    );
  }
  toStep(step, op) {
    this.current = step;
    if (op.t === "step") this.phase = "Thinking…";
    else if (op.t === "say" || op.t === "said") {
      this.phase = "Thinking…";
      if (op.t === "say") step.thought.add(op.x);
      else if (op.x !== undefined) step.thought.set(op.x);
    } else if (op.t === "reason" || op.t === "reasoned") {
      step.reasoningBox.hidden = false;
      if (op.t === "reason") step.reasoning.add(op.x);
      else if (op.x !== undefined) step.reasoning.set(op.x);
    } else if (op.t === "draft") {
      this.phase = /code|shell|^$/.test(op.tool) ? "Writing code" : `Preparing ${op.tool}`;
      step.draft.add(op.x, op.tool);
    } else if (op.t === "void") step.voided();
    else if (op.t === "note") step.notes.append(el("div", "nba-note", op.x));
    else if (op.t === "stepped") {
      this.tokens += op.tokens;
      this.cost = op.cost;
      step.finished = true;
      step.undraft();
      step.took.textContent = duration(op.seconds);
      step.back.hidden = ![...step.actions.values()].some((action) => action.tool === "run_code" && action.at);
      this.phase = "Thinking…";
    } else this.toAction(step, op);
  }
  toAction(step, op) {
    const action = step.action(op.id);
    if (op.t === "action") {
      step.undraft();
      action.describe(op);
    } else if (op.t === "start") action.start(op);
    else if (op.t === "out") action.output(op.b);
    else if (op.t === "done") action.done(op);
    else if (op.t === "ask") action.ask(op);
    else if (op.t === "given") action.given(op);
    const busy = [...step.actions.values()].reverse().find((one) => ["running", "waiting"].includes(one.status));
    this.busy = busy ?? null;
  }
  end(op) {
    this.over = op;
    this.tokens = op.tokens || this.tokens;
    this.cost = op.cost || this.cost;
    if (op.answer) {
      const prose = new Prose("");
      prose.set(op.answer);
      this.answer.append(prose.node);
      if (this.label) this.answer.append(el("div", "nba-quiet", this.label));
    }
    if (op.advice) this.answer.append(el("div", "nba-advice", op.advice));
    this.answer.hidden = !this.answer.childNodes.length;
    this.stop.hidden = true;
    for (const step of this.steps.values()) {
      if (step.shrunk) continue;
      step.back.hidden = true; // from here on the bar below the trace does it
      if (op.answered) step.fold();
    }
  }
  tick() {
    if (this.busy) this.busy.tick();
    let state = "thinking";
    let words = this.phase ?? "Starting…";
    if (this.over) {
      state = this.over.answered ? "done" : "ended";
      words = this.over.ending;
      clearInterval(this.timer);
    } else if (this.busy?.status === "waiting") {
      state = "waiting";
      words = "Waiting for you";
    } else if (this.busy) {
      state = "running";
      words = `Running ${this.busy.tool} ${duration(this.since(this.busy.at))}`;
    }
    if (this.root.dataset.state !== state) this.root.dataset.state = state;
    if (this.status.textContent !== words) this.status.textContent = words;
    const facts = this.at ? [count(this.steps.size, "step"), this.tokens ? count(this.tokens, "token") : "", this.cost, duration(this.over?.seconds ?? this.since(this.at))] : [];
    this.facts.textContent = facts.filter(Boolean).join(" · ");
  }
  close() {
    clearInterval(this.timer);
  }
}

// -- the channel: one per widget model, shared by its views --------------------------------------------

class Channel {
  constructor(model) {
    this.model = model;
    this.ops = [];
    this.listeners = new Set();
    this.skew = 0; // seconds that this page's clock is ahead of the kernel's
    this.heard = false;
    this.receive = (message) => this.take(message);
    model.on("msg:custom", this.receive);
    this.page = Math.random().toString(36).slice(2);
    this.bar = null;
    model.on("comm:close", () => this.bar?.node.remove());
    this.knock(100);
  }
  // The first words may wait for the running cell, until JupyterLab has made a subshell for widgets.
  knock(delay) {
    if (this.heard) return;
    try {
      this.hello();
    } catch {
      return; // the kernel is gone
    }
    if (delay < LAST_KNOCK) setTimeout(() => this.knock(2 * delay), delay);
  }
  send(letter) {
    this.model.send({ id: `${Date.now()}-${Math.random().toString(36).slice(2)}`, ...letter });
  }
  hello(again = false) {
    this.send({ op: "hello", page: this.page, last: this.ops.length, again });
  }
  take(message) {
    if (message.op === "welcome") {
      this.heard = true;
      this.stood ??= setTimeout(() => this.over || stand(this.model, message.model), STAND);
    } else if (message.op === "over") {
      this.over = true;
      setTimeout(() => viewOf(this.model, message.model) && this.hello(true), STAND);
    } else if (message.op === "deaf") this.heard = false;
    else if (message.op === "stopping") this.acknowledged = true;
    else if (message.op === "after") this.bar?.hear(message);
    else if (message.op === "left") {
      this.heard = true;
      leave(this.model, message);
    } else if (message.op === "ops") {
      this.skew = Date.now() / 1000 - message.now;
      const had = this.ops.length - message.first + 1;
      if (had < 0) return this.askAgain(); // something was lost on the way: the kernel sends it again
      this.asked = 0;
      for (const op of message.ops.slice(had)) this.keep(op);
      this.over ||= message.ops.some((op) => op?.t === "end"); // an interrupt would hit the next cell from here on
      if (!this.bar && this.over) {
        this.bar = new AfterBar(this, this.ops.find((op) => op?.t === "run")?.id);
        this.bar.appear();
      }
    }
    for (const listener of this.listeners) listener();
  }
  // Once, and not for everything that comes before the answer to it.
  askAgain() {
    if (Date.now() - (this.asked ?? 0) < ASK_AGAIN) return;
    this.asked = Date.now();
    this.hello(true);
  }
  keep(op) {
    if (op?.t === "fold") {
      const first = this.ops.findIndex((one) => one?.n === op.n);
      for (let i = first; i >= 0 && i < this.ops.length; i += 1) if (this.ops[i]?.n === op.n) this.ops[i] = null;
      if (first >= 0) this.ops[first] = op;
    }
    this.ops.push(op);
  }
  stop() {
    const kernel = this.model.widget_manager?.kernel;
    // JupyterLab's own interrupt needs no callback in the kernel. One way only, as long as it is not known to have
    // failed: what comes second would hit the end of a cell that the first has stopped.
    if (!this.heard && kernel?.interrupt) return void kernel.interrupt();
    this.acknowledged = false;
    this.send({ op: "stop" });
    setTimeout(() => !this.acknowledged && !this.over && kernel?.interrupt?.(), ACK_TIMEOUT);
  }
}

const VIEW = "application/vnd.jupyter.widget-view+json";

function viewOf(model, id) {
  return cellWith(model, (data) => data[VIEW]?.model_id === id);
}

// A page that was loaded in mid-run from a notebook that was saved before it: the run gets its place again.
function stand(model, id) {
  const cell = [...(model.widget_manager?.context?.model?.cells ?? [])].find((one) => one.id === model.get("cell"));
  if (!cell?.outputs || viewOf(model, id)) return;
  const data = { [VIEW]: { version_major: 2, version_minor: 0, model_id: id }, "text/plain": "nbagent is at work." };
  cell.outputs.clear();
  cell.trusted = true; // as JupyterLab does with a cell that runs: nothing is left in it that was there before
  cell.outputs.add({ output_type: "display_data", data, metadata: {} });
}

// The run is over, and this page was loaded after it began: the output is still the widget. Where the page is
// JupyterLab's, the static trace is put in its place, so that it is saved with the notebook.
function leave(model, message) {
  const found = viewOf(model, message.model);
  found?.cell.outputs.set(found.output, { output_type: "display_data", data: message.data, metadata: {} });
}

// Each view gets a model object of its own for the one widget: the name tells that they are the same.
const channels = new Map();

function channelOf(model) {
  const name = model.get("name");
  if (!channels.has(name)) channels.set(name, new Channel(model));
  return channels.get(name);
}

function initialize({ model }) {
  channelOf(model); // before any view: what is sent while the page still draws must not be lost
  return () => channels.delete(model.get("name"));
}

function render({ model, el: root }) {
  const channel = channelOf(model);
  const run = new Run(root, channel);
  let shownOps = 0;
  let frame = 0;
  const draw = () => {
    frame = 0;
    root.classList.toggle("nba-is-deaf", !channel.heard);
    const fresh = channel.ops.slice(shownOps);
    shownOps = channel.ops.length;
    run.apply(fresh);
  };
  const listener = () => {
    frame ||= requestAnimationFrame(draw);
  };
  channel.listeners.add(listener);
  listener();
  return () => {
    channel.listeners.delete(listener);
    cancelAnimationFrame(frame);
    run.close();
  };
}

export default { initialize, render };
