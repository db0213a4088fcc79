// The live view of one run. The kernel sends numbered operations; this page folds them into DOM.
//
// Everything that a model, a tool or data may have written reaches the page as text nodes only: no markup is
// ever parsed here, no address is ever fetched, and a link is an address that the user can read first.

const FOLD_TO_TEXT_AFTER = 50; // steps kept as full DOM; older ones keep their title only
const TRACEBACK_LINES = 12;
const HIGHLIGHT_LIMIT = 8000; // characters that are coloured anew in each frame while they stream
const LAST_KNOCK = 5000; // ms
const ACK_TIMEOUT = 1000; // ms without a word from the kernel after Stop, then the kernel is interrupted

function el(tag, cls, ...kids) {
  const node = document.createElement(tag);
  if (cls) node.className = cls;
  node.append(...kids.filter((kid) => kid !== null && kid !== ""));
  return node;
}

function button(cls, label, onclick) {
  const node = el("button", `nba-button ${cls}`, label);
  node.type = "button";
  node.addEventListener("click", onclick);
  return node;
}

function duration(seconds) {
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
}

const count = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

// -- Python colours ------------------------------------------------------------------------------------

const KEYWORDS = new Set(
  ("False None True and as assert async await break class continue def del elif else except finally for from global if " +
    "import in is lambda nonlocal not or pass raise return try while with yield").split(" "),
);
const TOKENS =
  /(#[^\n]*)|([rRbBfFuU]{0,2}(?:'''(?:\\[^]|[^\\])*?(?:'''|$(?![^]))|"""(?:\\[^]|[^\\])*?(?:"""|$(?![^]))|'(?:\\[^]|[^'\\\n])*'?|"(?:\\[^]|[^"\\\n])*"?))|(\b(?:0[xXoObB][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?j?)\b)|([\p{L}_][\p{L}\p{N}_]*)/gu;

function highlighted(code) {
  const out = document.createDocumentFragment();
  let end = 0;
  let previous = "";
  for (const found of code.matchAll(TOKENS)) {
    const [text, comment, string, number] = found;
    let kind = comment ? "comment" : string ? "string" : number ? "number" : "";
    if (!kind && KEYWORDS.has(text)) kind = "keyword";
    else if (!kind && (previous === "def" || previous === "class")) kind = "name";
    previous = text;
    if (!kind) continue;
    if (found.index > end) out.append(code.slice(end, found.index));
    out.append(el("span", `nba-py-${kind}`, text));
    end = found.index + text.length;
  }
  out.append(code.slice(end));
  return out;
}

// -- Markdown: a small subset, block by block ----------------------------------------------------------

const INLINE = /`([^`\n]+)`|\*\*(?=\S)([^*\n]+?)\*\*|!?\[([^\]\n]*)\]\(([^)\s]+)[^)\n]*\)|(https?:\/\/[^\s<>"')\]]+)/g;

function link(label, address) {
  // An image stands as its address too: fetching it would send what the address holds.
  let url = null;
  try {
    url = new URL(address);
  } catch {
    return document.createTextNode(`${label} (${address})`);
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return document.createTextNode(`${label} (${address})`);
  const node = el("a", "", label && label !== address ? `${label} (${address})` : address);
  node.href = url.href;
  node.target = "_blank";
  node.rel = "noopener noreferrer";
  return node;
}

function inline(text) {
  const out = document.createDocumentFragment();
  let end = 0;
  for (const found of text.matchAll(INLINE)) {
    const [whole, code, bold, label, address, bare] = found;
    out.append(text.slice(end, found.index));
    if (code !== undefined) out.append(el("code", "", code));
    else if (bold !== undefined) out.append(el("strong", "", bold));
    else if (whole.startsWith("!")) out.append(`[image ${label}: ${address}]`);
    else out.append(link(bare ?? label, bare ?? address));
    end = found.index + whole.length;
  }
  out.append(text.slice(end));
  return out;
}

function markdownBlock(text) {
  const fence = /^\s*(```|~~~)([^\n]*)\n?([^]*?)(?:\n?\s*\1\s*)?$/.exec(text);
  if (fence) {
    const code = /^\s*(py|python|python3|ipython)?\s*$/.test(fence[2]) ? highlighted(fence[3]) : fence[3];
    return el("pre", "nba-code", el("code", "", code));
  }
  const box = el("div", "nba-block");
  let list = null;
  let paragraph = null;
  for (const line of text.split("\n")) {
    const heading = /^#{1,6}\s+(.*)/.exec(line);
    const item = /^\s*(?:([-*+])|(\d+)[.)])\s+(.*)/.exec(line);
    if (heading) {
      box.append(el("div", "nba-heading", inline(heading[1])));
      list = paragraph = null;
    } else if (item) {
      const tag = item[1] ? "ul" : "ol";
      if (!list || list.localName !== tag) {
        list = el(tag, "");
        if (item[2]) list.start = Number(item[2]);
        box.append(list);
      }
      list.append(el("li", "", inline(item[3])));
      paragraph = null;
    } else if (line.trim()) {
      if (!paragraph) {
        paragraph = el("p", "");
        box.append(paragraph);
      } else paragraph.append("\n");
      paragraph.append(inline(line));
      list = null;
    }
  }
  return box;
}

// Text that grows: whole blocks are made once, the open one is made anew while it is short.
class Prose {
  constructor(cls) {
    this.node = el("div", cls);
    this.tail = null;
    this.clear();
  }
  clear() {
    this.node.replaceChildren();
    this.text = "";
    this.open = ""; // the block under way
    this.fenced = false;
    this.tail = null;
    this.plain = null;
  }
  set(text) {
    this.clear();
    this.add(text);
    this.paint();
  }
  add(text) {
    this.text += text;
    const lines = (this.open + text).split("\n");
    this.open = "";
    lines.forEach((line, index) => {
      const whole = index < lines.length - 1;
      const marker = /^\s*(```|~~~)/.test(line);
      if (whole && !this.fenced && (marker || !line.trim())) this.finish();
      this.open += whole ? `${line}\n` : line;
      if (!whole) return;
      if (marker) {
        this.fenced = !this.fenced;
        if (!this.fenced) this.finish();
      }
    });
    // What is open starts with the fence, if one is open: it is read again with the next piece.
    if (this.fenced) this.fenced = false;
  }
  finish() {
    if (this.open.trim()) {
      this.tail?.remove();
      this.node.append(markdownBlock(this.open));
    }
    this.tail = this.plain = null;
    this.open = "";
  }
  paint() {
    if (!this.open.trim()) return;
    if (this.open.length > HIGHLIGHT_LIMIT) {
      const shown = this.plain?.data.length ?? 0;
      if (this.plain && this.open.startsWith(this.plain.data)) this.plain.appendData(this.open.slice(shown));
      else {
        this.plain = document.createTextNode(this.open);
        this.swap(el("div", "nba-plain", this.plain));
      }
    } else this.swap(markdownBlock(this.open));
  }
  swap(node) {
    if (this.tail) this.tail.replaceWith(node);
    else this.node.append(node);
    this.tail = node;
  }
}

// -- terminal text: ANSI colours and carriage returns --------------------------------------------------

const ANSI = /\x1b\[([0-9;:]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_=>]?|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;
const ANSI_NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

function xterm(n) {
  if (n < 16) return ANSI_NAMES[n % 8];
  if (n > 231) return null; // greys: the text's own colour is safer on any background
  const [r, g, b] = [Math.floor((n - 16) / 36), Math.floor((n - 16) / 6) % 6, (n - 16) % 6];
  const top = Math.max(r, g, b);
  if (!top || (r === g && g === b)) return null;
  const bit = (v) => (v > top / 2 ? 1 : 0);
  return ANSI_NAMES[bit(r) + 2 * bit(g) + 4 * bit(b)];
}

function restyle(style, codes) {
  const list = codes === "" ? [0] : codes.split(/[;:]/).map(Number);
  for (let i = 0; i < list.length; i += 1) {
    const code = list[i];
    if (code === 0) style = { colour: null, bold: false };
    else if (code === 1) style = { ...style, bold: true };
    else if (code === 22) style = { ...style, bold: false };
    else if (code === 39) style = { ...style, colour: null };
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) style = { ...style, colour: ANSI_NAMES[code % 10] };
    else if (code === 38 || code === 48) {
      if (list[i + 1] === 5) {
        if (code === 38) style = { ...style, colour: xterm(list[i + 2]) };
        i += 2;
      } else if (list[i + 1] === 2) i += 4;
    }
  }
  return style;
}

class Terminal {
  constructor(cls) {
    this.node = el("pre", `nba-output ${cls}`);
    this.style = { colour: null, bold: false };
    this.line = ""; // the unfinished one, as it came
    this.live = null;
  }
  add(text) {
    const all = (this.line + text).replaceAll("\r\n", "\n");
    const cut = all.lastIndexOf("\n") + 1;
    this.live?.remove();
    this.live = null;
    if (cut) {
      const lines = all.slice(0, cut).split("\n").map(lastState).join("\n");
      this.style = this.paint(this.node, lines, this.style);
    }
    this.line = all.slice(cut);
    if (!this.line) return;
    const ends = this.line.endsWith("\r") ? "\r" : "";
    this.line = lastState(this.line) + ends;
    this.live = el("span", "");
    this.paint(this.live, this.line, this.style);
    this.node.append(this.live);
  }
  paint(into, text, style) {
    let end = 0;
    const put = (piece) => {
      piece = piece.replaceAll("\r", "");
      if (!piece) return;
      if (!style.colour && !style.bold) into.append(piece);
      else into.append(el("span", `${style.colour ? `nba-ansi-${style.colour}` : ""} ${style.bold ? "nba-bold" : ""}`, piece));
    };
    for (const found of text.matchAll(ANSI)) {
      put(text.slice(end, found.index));
      if (found[1] !== undefined) style = restyle(style, found[1]);
      end = found.index + found[0].length;
    }
    put(text.slice(end));
    return style;
  }
}

function lastState(line) {
  if (!line.includes("\r")) return line;
  const states = line.split("\r").filter(Boolean);
  return states.length ? states[states.length - 1] : "";
}

// -- outputs -------------------------------------------------------------------------------------------

function traceback(text) {
  const lines = text.split("\n");
  const box = el("div", "nba-traceback");
  const put = (part) => {
    const terminal = new Terminal("nba-error");
    terminal.add(part);
    return terminal.node;
  };
  const last = put(lines.slice(-TRACEBACK_LINES).join("\n"));
  if (lines.length > TRACEBACK_LINES) {
    const rest = lines.length - TRACEBACK_LINES;
    const more = el("details", "nba-more", el("summary", "", `${count(rest, "earlier line")}`));
    more.append(put(lines.slice(0, rest).join("\n")));
    box.append(more);
  }
  box.append(last);
  return box;
}

function table(block) {
  const node = el("table", "nba-table");
  block.rows.forEach((cells, index) => {
    const head = index < block.heads;
    node.append(el("tr", "", ...cells.map((cell, i) => el(head || (i === 0 && block.heads) ? "th" : "td", "", cell))));
  });
  const box = el("div", "nba-scroll", node);
  box.tabIndex = 0;
  const size = /(\d+) rows × (\d+) columns/.exec(block.text);
  return size ? el("div", "", box, el("div", "nba-quiet", size[0])) : box;
}

function figure(block) {
  if (!/^image\/(png|jpeg)$/.test(block.mime)) return document.createTextNode(block.text);
  const image = el("img", "nba-figure");
  image.src = `data:${block.mime};base64,${block.data}`;
  image.alt = block.text || "Figure made by this step";
  return image;
}

function shown(block) {
  if (block.kind === "image") return figure(block);
  if (block.kind === "table") return table(block);
  if (block.kind === "error") return traceback(block.text);
  const terminal = new Terminal(block.kind === "stderr" ? "nba-stderr" : "");
  terminal.add(block.text);
  return terminal.node;
}

// -- one action ----------------------------------------------------------------------------------------

const WORDS = {
  ok: "", error: "failed", timeout: "ran out of time", interrupted: "stopped", denied: "denied",
  invalid: "not a valid call", unavailable: "tool unavailable", skipped: "skipped",
};

class Code {
  constructor() {
    this.code = el("code", "");
    this.node = el("pre", "nba-code", this.code);
    this.node.tabIndex = 0;
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
    this.outputs = el("div", "nba-outputs");
    this.card = el("div", "");
    this.foot = el("div", "nba-foot");
    this.node = el("div", "nba-action", this.code.node, this.card, this.outputs, this.foot);
    this.status = "proposed";
    this.tool = "";
  }
  describe(op) {
    this.tool = op.tool || this.tool;
    if (op.code !== undefined) this.code.set(op.code, this.tool);
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
    const facts = [this.tool, WORDS[op.status] ?? op.status, duration(op.seconds), op.summary, this.edited ? "edited by you" : ""];
    this.foot.textContent = facts.filter(Boolean).join(" · ");
    this.foot.classList.toggle("nba-bad", op.status !== "ok");
  }
  ask(op) {
    this.status = "waiting";
    this.describe(op);
    this.card.replaceChildren(approvalCard(this, op));
  }
  given(op) {
    this.status = op.approved ? "proposed" : "denied";
    const who = op.by === "nobody" ? "Nobody was there to answer" : op.by === "rule" ? "Decided by a rule" : "";
    this.card.replaceChildren(el("div", "nba-quiet", [op.approved ? "Approved" : "Denied", who].filter(Boolean).join(". ")));
  }
}

function approvalCard(action, op) {
  const run = action.run;
  const edit = el("textarea", "nba-edit");
  edit.value = op.code;
  edit.hidden = true;
  edit.spellcheck = false;
  edit.rows = Math.min(24, Math.max(3, op.code.split("\n").length + 1));
  edit.setAttribute("aria-label", "The code to run");
  const note = el("input", "nba-reply");
  note.placeholder = "Word to the agent (optional)";
  note.setAttribute("aria-label", "Word to the agent");
  const send = (kind) => {
    const letter = { op: kind, request: op.request };
    if (note.value.trim()) letter.note = note.value.trim();
    if (kind === "approve" && !edit.hidden && edit.value !== op.code) letter.code = edit.value;
    buttons.forEach((one) => (one.disabled = true));
    run.send(letter);
    setTimeout(() => buttons.forEach((one) => (one.disabled = false)), 3000);
  };
  const approve = button("nba-approve nba-primary", "Approve", () => send("approve"));
  const deny = button("nba-deny", "Deny", () => send("deny"));
  const change = button("nba-change", "Edit", () => {
    edit.hidden = !edit.hidden;
    action.code.node.hidden = !edit.hidden;
    change.textContent = edit.hidden ? "Edit" : "Undo edit";
    if (edit.hidden) edit.value = op.code;
    else edit.focus();
  });
  const buttons = [approve, change, deny];
  const row = el("div", "nba-row", approve, change, deny, note);
  const hint = el("div", "nba-quiet nba-deaf", "This page cannot answer while the cell runs: type y or n in the box below the cell.");
  const title = el("div", "nba-question", el("strong", "", "Run this?"), el("span", `nba-risk nba-risk-${op.risk}`, op.risk), el("span", "", op.why));
  const card = el("div", "nba-card", title, edit, row, hint);
  card.setAttribute("role", "group");
  card.setAttribute("aria-label", `The agent asks: run this? It looks ${op.risk}: ${op.why}`);
  return card;
}

// -- one step ------------------------------------------------------------------------------------------

class Step {
  constructor(run, number) {
    this.run = run;
    this.number = number;
    this.title = el("span", "nba-title");
    this.mark = el("span", "nba-mark");
    this.took = el("span", "nba-quiet nba-took");
    this.summary = el("summary", "nba-summary", el("span", "nba-number", String(number)), this.title, this.mark, this.took);
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
    const tools = [...this.actions.values()].map((action) => action.tool);
    this.title.textContent = first.replace(/^[\s#*]+|[*`]/g, "").slice(0, 200) || tools.join(", ") || this.draft.tool || "…";
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
  shrink() {
    // Far back: only its title stays, so that the page does not grow with the run.
    const line = el("div", "nba-summary nba-shrunk", el("span", "nba-number", String(this.number)), this.title, this.mark, this.took);
    this.node.replaceWith(line);
    this.actions.clear();
    this.shrunk = true;
  }
}

// -- the run -------------------------------------------------------------------------------------------

class Run {
  constructor(root, channel) {
    this.channel = channel;
    this.steps = new Map();
    this.now = 0;
    this.tokens = 0;
    this.status = el("span", "nba-status", "Starting…");
    this.status.setAttribute("role", "status");
    this.facts = el("span", "nba-facts nba-quiet");
    this.model = el("span", "nba-model nba-quiet");
    this.stop = button("nba-stop", "Stop", () => this.stopNow());
    this.stop.setAttribute("aria-label", "Stop the agent");
    this.dot = el("span", "nba-dot");
    this.dot.setAttribute("aria-hidden", "true");
    this.answer = el("div", "nba-answer");
    this.answer.hidden = true;
    this.list = el("div", "nba-steps");
    this.notes = el("div", "");
    const head = el("div", "nba-head", this.dot, this.status, this.facts, this.model, this.stop);
    root.classList.add("nba");
    root.setAttribute("role", "region");
    root.setAttribute("aria-label", "Agent run");
    root.dataset.lmSuppressShortcuts = "true"; // typing here is not a notebook command
    root.append(head, this.answer, this.notes, this.list);
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
      const aged = this.steps.get([...this.steps.keys()][this.steps.size - 1 - FOLD_TO_TEXT_AFTER]);
      if (aged && !aged.shrunk) aged.shrink();
    }
    return this.steps.get(number);
  }
  apply(ops) {
    const touched = new Set();
    for (const op of ops) {
      if (op.t === "run") this.begin(op);
      else if (op.t === "end") this.end(op);
      else if (op.t === "note" && !op.n) this.notes.append(el("div", "nba-note", op.x));
      else {
        const step = this.step(op.n);
        this.toStep(step, op);
        touched.add(step);
      }
    }
    for (const step of touched) if (!step.shrunk) step.paint();
    this.tick();
  }
  begin(op) {
    this.at = op.at;
    this.label = op.label;
    this.model.textContent = op.model;
    this.model.title = op.model;
    this.phase = "Thinking…";
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
      step.finished = true;
      step.undraft();
      step.took.textContent = duration(op.seconds);
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
    if (op.answer) {
      const prose = new Prose("");
      prose.set(op.answer);
      this.answer.append(prose.node);
      if (this.label) this.answer.append(el("div", "nba-quiet", this.label));
    }
    if (op.advice) this.answer.append(el("div", "nba-advice", op.advice));
    this.answer.hidden = !this.answer.childNodes.length;
    this.stop.hidden = true;
    if (op.answered) for (const step of this.steps.values()) if (!step.shrunk) step.fold();
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
    const facts = this.at ? [count(this.steps.size, "step"), this.tokens ? count(this.tokens, "token") : "", duration(this.over?.seconds ?? this.since(this.at))] : [];
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
    this.knock(100);
  }
  // The first words may wait for the running cell, until JupyterLab has made a subshell for widgets.
  knock(delay) {
    if (this.heard) return;
    this.hello();
    if (delay < LAST_KNOCK) setTimeout(() => this.knock(2 * delay), delay);
  }
  send(letter) {
    this.model.send({ id: `${Date.now()}-${Math.random().toString(36).slice(2)}`, ...letter });
  }
  hello(again = false) {
    this.send({ op: "hello", page: this.page, last: this.ops.length, again });
  }
  take(message) {
    if (message.op === "welcome") this.heard = true;
    else if (message.op === "deaf") this.heard = false;
    else if (message.op === "stopping") this.acknowledged = true;
    else if (message.op === "left") leave(this.model, message);
    else if (message.op === "ops") {
      this.skew = Date.now() / 1000 - message.now;
      const had = this.ops.length - message.first + 1;
      if (had < 0) return this.hello(true); // something was lost on the way: the kernel sends it again
      this.ops = this.ops.concat(message.ops.slice(had));
    }
    for (const listener of this.listeners) listener();
  }
  stop() {
    this.acknowledged = false;
    this.send({ op: "stop" });
    const interrupt = () => {
      // Second path, which needs no callback in the kernel: JupyterLab's own interrupt.
      if (!this.acknowledged) this.model.widget_manager?.kernel?.interrupt?.();
    };
    if (this.heard) setTimeout(interrupt, ACK_TIMEOUT);
    else interrupt();
  }
}

// The run is over, and this page was loaded after it began: the output is still the widget. Where the page is
// JupyterLab's, the static trace is put in its place, so that it is saved with the notebook.
function leave(model, message) {
  for (const cell of model.widget_manager?.context?.model?.cells ?? []) {
    for (let i = 0; i < (cell.outputs?.length ?? 0); i += 1) {
      const view = cell.outputs.get(i).data?.["application/vnd.jupyter.widget-view+json"];
      if (view?.model_id === message.model) {
        cell.outputs.set(i, { output_type: "display_data", data: message.data, metadata: {} });
      }
    }
  }
}

const channels = new WeakMap();

function channelOf(model) {
  if (!channels.has(model)) channels.set(model, new Channel(model));
  return channels.get(model);
}

function initialize({ model }) {
  channelOf(model); // before any view: what is sent while the page still draws must not be lost
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
