// Text, code, terminal output, tables and figures as DOM. Goes before widget.js, in one module.
//
// Everything that a model, a tool or data may have written reaches the page as text nodes only: no markup is
// ever parsed here, no address is ever fetched, and a link is an address that the user can read first.

const TRACEBACK_LINES = 12;
const HIGHLIGHT_LIMIT = 8000; // characters that are coloured anew in each frame while they stream

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

function copyButton(text) {
  const node = button("nba-copy", "Copy", async () => {
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      const area = el("textarea", ""); // a page that was not served safely has no clipboard of its own
      area.value = text();
      node.after(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    node.textContent = "Copied";
    setTimeout(() => (node.textContent = "Copy"), 1500);
  });
  node.setAttribute("aria-label", "Copy the code");
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
