// The question before an action: what would run, why it is asked, and the ways to answer.

// A text area that shows its Python in colours: a coloured copy lies under the transparent text.
class Editor {
  constructor(code, label, colours = highlighted) {
    this.colours = colours;
    this.area = el("textarea", "nba-edit");
    this.area.spellcheck = false;
    this.area.wrap = "off";
    this.area.setAttribute("aria-label", `${label}. Tab indents; Escape, then Tab, leaves.`);
    this.under = el("pre", "nba-under");
    this.under.setAttribute("aria-hidden", "true");
    this.node = el("div", "nba-editor", this.under, this.area);
    this.node.hidden = true;
    this.area.addEventListener("input", () => this.paint());
    this.area.addEventListener("scroll", () => {
      this.under.scrollTop = this.area.scrollTop;
      this.under.scrollLeft = this.area.scrollLeft;
    });
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.value = code;
  }
  get value() {
    return this.area.value;
  }
  set value(code) {
    this.area.value = code;
    this.area.rows = Math.min(24, Math.max(3, code.split("\n").length + 1));
    this.paint();
  }
  paint() {
    this.under.replaceChildren(this.colours(this.area.value), "\n");
  }
  focus() {
    this.area.focus();
  }
  key(event) {
    if (event.key === "Escape") this.leaving = true;
    else if (event.key === "Tab" && !event.shiftKey && !this.leaving) this.type("    ", event);
    else if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) {
      const line = this.area.value.slice(0, this.area.selectionStart).split("\n").pop();
      this.type(`\n${/^\s*/.exec(line)[0]}${/:\s*$/.test(line) ? "    " : ""}`, event);
    } else if (event.key !== "Tab" && event.key !== "Shift") this.leaving = false;
  }
  type(text, event) {
    event.preventDefault();
    this.area.setRangeText(text, this.area.selectionStart, this.area.selectionEnd, "end");
    this.paint();
  }
}

// A question in words: what is written is the answer, and nothing is run by it.
function questionCard(action, op) {
  const answer = el("input", "nba-reply nba-words");
  answer.placeholder = "Your answer";
  answer.setAttribute("aria-label", "Your answer");
  const send = (kind) => {
    const words = kind === "approve" ? answer.value.trim() : "";
    if (kind === "approve" && !words) return answer.focus();
    [reply, skip].forEach((one) => (one.disabled = true));
    action.run.send({ op: kind, request: op.request, note: words });
    setTimeout(() => [reply, skip].forEach((one) => (one.disabled = false)), 3000);
  };
  answer.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    send("approve");
  });
  const reply = button("nba-approve nba-primary", "Answer", () => send("approve"));
  const skip = button("nba-deny", "You decide", () => send("deny"));
  const hint = el("div", "nba-quiet nba-deaf", "This page cannot answer while the cell runs: type your answer in the box below the cell.");
  const title = el("div", "nba-question", el("strong", "", "The agent asks"), el("span", "", op.code));
  const card = el("div", "nba-card", title, el("div", "nba-row", answer, reply, skip), hint);
  card.setAttribute("role", "group");
  card.setAttribute("aria-label", `The agent asks: ${op.code}`);
  return card;
}

// Questions of nbagent's own: nothing is run, so there is no code and nothing to grade.
const OWN_QUESTIONS = { plan: () => "Is this plan right?", max_cost: (op) => op.code };

const OWN_TITLES = { plan: "The plan", max_cost: "The budget" };

function planList(text) {
  const steps = text.split("\n").map((line) => line.replace(/^\s*\d+[.)]\s*(\[.\]\s*)?/, "")).filter(Boolean);
  return el("ol", "nba-proposed", ...steps.map((step) => el("li", "", step)));
}

function approvalCard(action, op) {
  if (op.tool === "ask_user") return questionCard(action, op);
  const own = OWN_QUESTIONS[op.tool]?.(op);
  const run = action.run;
  const plan = op.tool === "plan";
  const edit = plan ? new Editor(op.code, "The plan", (text) => text) : new Editor(op.code, "The code to run");
  const shown = plan ? planList(op.code) : action.code.node;
  const note = el("input", "nba-reply");
  note.placeholder = "Word to the agent (optional)";
  note.setAttribute("aria-label", "Word to the agent");
  const send = (kind, always) => {
    const letter = { op: kind, request: op.request };
    if (always) letter.always = always;
    if (note.value.trim()) letter.note = note.value.trim();
    if (kind === "approve" && !edit.node.hidden && edit.value !== op.code) letter.code = edit.value;
    buttons.forEach((one) => (one.disabled = true));
    run.send(letter);
    setTimeout(() => buttons.forEach((one) => (one.disabled = false)), 3000);
  };
  const approve = button("nba-approve nba-primary", "Approve", () => send("approve"));
  const deny = button("nba-deny", "Deny", () => send("deny"));
  const change = button("nba-change", "Edit", () => {
    edit.node.hidden = !edit.node.hidden;
    shown.hidden = !edit.node.hidden;
    change.textContent = edit.node.hidden ? "Edit" : "Undo edit";
    if (edit.node.hidden) edit.value = op.code;
    else edit.focus();
  });
  const always = (kind, words) => {
    if (!words) return null;
    const one = button(`nba-always nba-always-${kind}`, `Always: ${words}`, () => send("approve", kind));
    one.title = `Approve, and do not ask again in this session about ${words}`;
    return one;
  };
  const lasting = [always("pattern", op.always), always("session", op.session)].filter(Boolean);
  const more = lasting.length ? el("div", "nba-row nba-lasting", ...lasting) : null;
  const buttons = [approve, change, deny, ...lasting];
  const row = op.tool === "max_cost" ? el("div", "nba-row", approve, deny) : el("div", "nba-row", approve, change, deny, note);
  const hint = el("div", "nba-quiet nba-deaf", "This page cannot answer while the cell runs: type y or n in the box below the cell.");
  const title = el("div", "nba-question", el("strong", "", own || "Run this?"), el("span", own ? "nba-quiet" : `nba-risk nba-risk-${op.risk}`, op.why));
  const card = el("div", "nba-card", title, plan ? shown : null, edit.node, row, more, hint);
  card.setAttribute("role", "group");
  card.setAttribute("aria-label", own ? `The agent asks: ${own} ${op.why}` : `The agent asks: run this? It looks ${op.risk}: ${op.why}`);
  return card;
}
