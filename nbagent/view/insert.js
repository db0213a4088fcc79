// Puts cells below another cell of the notebook, when the kernel says so. Until then it only says whether it can.

function insertionPoint(model, id) {
  const cells = [...(model.widget_manager?.context?.model?.cells ?? [])];
  const at = cells.findIndex((cell) => cell.id === id);
  return at < 0 ? null : cells.slice(at + 1).map((cell) => cell.sharedModel.getSource());
}

function render({ model }) {
  const hear = (message) => {
    if (message.op !== "insert") return;
    const below = insertionPoint(model, message.below) ?? [];
    const there = message.cells.every((source, index) => below[index] === source);
    if (!there && !insertBelow(model, message.below, message.cells)) return;
    model.send({ op: there ? "there" : "inserted" });
  };
  model.on("msg:custom", hear);
  model.send({ op: insertionPoint(model, model.get("below")) === null ? "cannot" : "ready" });
  return () => model.off("msg:custom", hear);
}

export default { render };
