"use strict";
// The conversation: messages, and tool calls with input and result. `make` inserts text only.
const conversation = (() => {
  const NAMES = { user: "You", model: "Model", tool: "Tool", cli: "Claude Code", outcome: "Outcome" };
  const MARKS = { ok: "✓", failed: "✕", "": "…" };
  const SMALL = 700, LONG = 20000, MANY = 200;

  const cut = (make, text, cls) => {
    const block = make("div", { class: cls });
    block.append(text.slice(0, LONG));
    if (text.length > LONG) {
      const more = make("button", { type: "button", class: "more" }, `Show all ${text.length} characters`);
      more.addEventListener("click", (event) => { event.stopPropagation(); block.textContent = text; });
      block.append(make("br"), more);
    }
    return block;
  };
  const folded = (make, title, summary, open, parts) => {
    const box = make("details", {}, make("summary", {}, make("b", {}, title), make("span", { class: "about" }, summary)));
    const fill = () => { if (box.open && box.children.length === 1) box.append(...parts()); };
    box.addEventListener("toggle", fill);
    box.open = open;
    fill();
    return box;
  };

  const body_of = (make, item) => {
    if (item.who === "tool") {
      const small = item.input.length + item.text.length <= SMALL;
      const result = item.state ? (item.text || "(empty)") : "(no result recorded)";
      return folded(make, `${MARKS[item.state]} ${item.title}`, item.summary, small || item.state === "failed", () => [
        make("h4", {}, "input"), cut(make, item.input, "code"),
        make("h4", {}, item.state === "failed" ? "error" : "result"), cut(make, result, "code"),
      ]);
    }
    if (item.title === "thinking") return folded(make, "thinking", item.text.slice(0, 120), false, () => [cut(make, item.text, "words")]);
    return cut(make, item.who === "outcome" ? `${MARKS[item.state]} ${item.text}` : item.text, "words");
  };

  const fill = (target, items, { make, moment, span_of_time, choose }) => {
    const node_of = (item, at) => {
      const when = item.end === null ? moment(item.t) : `${moment(item.t)} · ${span_of_time(item.end - item.t)}`;
      const show = make("button", { type: "button", class: "quiet", title: "Show the frame" }, when);
      show.addEventListener("click", () => choose(item.frames[0]));
      const who = item.depth ? `Subagent · ${NAMES[item.who]}` : NAMES[item.who];
      const node = make("article", { class: `said ${item.who} ${item.state} ${item.depth ? "deep" : ""}` },
        make("header", {}, make("b", {}, who), show), body_of(make, item));
      node.dataset.item = at;
      return node;
    };
    let done = 0;
    const more = make("button", { type: "button", class: "more" });
    const next = () => {
      more.before(...items.slice(done, done + MANY).map((item, at) => node_of(item, done + at)));
      done = Math.min(done + MANY, items.length);
      more.hidden = done >= items.length;
      more.textContent = `Show ${Math.min(MANY, items.length - done)} more of ${items.length}`;
    };
    more.addEventListener("click", next);
    target.append(more);
    next();
    if (!items.length) target.append(make("p", { class: "hint" }, "This recording contains no messages."));
  };

  // Conversation and frames share one area. `then` is called when the tab changes.
  const tabs = ($, then) => {
    const names = ["conversation", "frames"];
    const open = (name) => {
      for (const one of names) {
        $(one).hidden = one !== name;
        $(`tab-${one}`).setAttribute("aria-selected", String(one === name));
        $(`tab-${one}`).tabIndex = one === name ? 0 : -1;
      }
      $("frame-tools").hidden = name !== "frames";
      then();
    };
    names.forEach((name, at) => {
      $(`tab-${name}`).addEventListener("click", () => open(name));
      $(`tab-${name}`).addEventListener("keydown", (event) => {
        if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
        open(names[1 - at]);
        $(`tab-${names[1 - at]}`).focus();
      });
    });
    return open;
  };
  return { fill, tabs };
})();
