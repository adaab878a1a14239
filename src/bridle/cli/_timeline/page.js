"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { frames, spans, lanes, duration } = data;
  const $ = (id) => document.getElementById(id);
  const ROW = 26, BAR = 20, GAP = 3, MARKS = { failed: "✕", denied: "⊘", stopped: "◼", open: "…" };
  const SIDES = { in: ["→", "to the CLI"], out: ["←", "from the CLI"], err: ["!", "stderr"], meta: ["·", "about the process"] };

  // Text from the recording is inserted as text, never as markup.
  const make = (tag, props = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(props)) {
      if (name === "class") node.className = value;
      else if (name in node) node[name] = value;
      else node.setAttribute(name, value);
    }
    node.append(...children);
    return node;
  };

  const { clock, moment, span_of_time, on_axis, size_of, indented } = words;
  const lane_label = Object.fromEntries(lanes.map((lane) => [lane.id, lane.label]));

  // ---------------------------------------------------------------- from time to position
  // A hidden pause has a small fixed width, regardless of its duration.

  let folds = [];
  const fold = (on) => {
    const quiet = on ? data.quiet : [];
    const silent = quiet.reduce((sum, [from, to]) => sum + to - from, 0);
    const width = Math.max((duration - silent) * 0.04, 0.05);
    let saved = 0;
    folds = quiet.map(([from, to]) => {
      const one = { from, to, at: from - saved, width: Math.min(width, to - from) };
      saved += to - from - one.width;
      return one;
    });
    return Math.max(duration - saved, 0.001);
  };
  const place = (t) => {
    let saved = 0;
    for (const one of folds) {
      if (t <= one.from) break;
      if (t < one.to) return one.at + (t - one.from) / (one.to - one.from) * one.width;
      saved += one.to - one.from - one.width;
    }
    return t - saved;
  };
  const time_at = (x) => {
    let saved = 0;
    for (const one of folds) {
      if (x <= one.at) break;
      if (x < one.at + one.width) return one.from + (x - one.at) / one.width * (one.to - one.from);
      saved += one.to - one.from - one.width;
    }
    return x + saved;
  };

  // ---------------------------------------------------------------- what is shown

  let extent = 1, view = { from: 0, to: 1 };
  let chosen = { span: null, frame: null };
  let shown = frames.map((_, index) => index);
  let matches = null;       // the frames found by a search; null without a search
  let scope = null;         // if set, only the frames of this span are listed
  const hidden_groups = new Set(["stream"]);  // deltas: the messages contain their text
  const spans_of_frame = frames.map(() => []);
  spans.forEach((span, index) => span.frames.forEach((frame) => spans_of_frame[frame].push(index)));

  let is_due = false;
  const draw_soon = () => {
    if (!is_due) requestAnimationFrame(() => { is_due = false; draw_timeline(); });
    is_due = true;
  };

  // ---------------------------------------------------------------- the head

  $("name").textContent = data.name;
  const facts = { ...data.facts, lasted: span_of_time(duration), frames: String(frames.length) };
  for (const name of ["model", "cli", "lasted", "frames", "cost", "exit", "mode", "started", "directory", "branch", "tag", "session"]) {
    const value = facts[name];
    if (value === undefined) continue;
    $("facts").append(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  }
  if (data.gap) {
    $("gap").textContent = `This session is damaged or incomplete: ${data.gap}. The page shows the rest.`;
    $("gap").hidden = false;
  }

  // ---------------------------------------------------------------- the timeline

  const tracks = new Map(), bars = new Map();
  const used = lanes.filter((lane) => spans.some((span) => span.lane === lane.id));
  for (const lane of used) {
    const mine = spans.filter((span) => span.lane === lane.id);
    const rows = 1 + Math.max(...mine.map((span) => span.row));
    const track = make("div", { class: "track" });
    track.style.height = `${rows * (BAR + GAP) + GAP}px`;
    track.style.setProperty("--h", lane.hue);
    if (lane.hue === "none") {
      track.style.setProperty("--h", "0");
      for (const part of ["bar", "ink", "edge"]) track.style.setProperty(`--${part}-s`, "0%");
    }
    const name = make("div", { class: "lane-name" }, lane.label, make("b", {}, String(mine.length)));
    $("lanes").append(make("div", { class: "lane", role: "group", "aria-label": lane.label }, name, track));
    tracks.set(lane.id, track);
  }

  const width = () => Math.max(tracks.size ? [...tracks.values()][0].clientWidth : 0, 50);
  const pixel = (t, w = width()) => (place(t) - view.from) / (view.to - view.from) * w;

  function bar_for(index) {
    const span = spans[index], mark = MARKS[span.state];
    const lasted = span.end > span.start ? span_of_time(span.end - span.start) : "a moment";
    const told = `${span.title}: ${lane_label[span.lane]}, at ${moment(span.start)}, ${lasted}, ${span.state}, ${span.frames.length} frames`;
    const bar = make("button", { type: "button", class: `bar ${span.state}`, title: told, "aria-label": told, tabIndex: -1 });
    if (mark) bar.append(make("span", { class: "mark" }, mark), " ");
    bar.append(span.depth ? `↳ ${span.title}` : span.title);
    bar.dataset.span = index;
    bar.style.top = `${GAP + span.row * (BAR + GAP)}px`;
    tracks.get(span.lane).append(bar);
    return bar;
  }

  function draw_timeline() {
    const w = width();
    const roving = chosen.span ?? spans.findIndex((span) => place(span.end) >= view.from);
    const covered = new Map();  // by row, the right edge of what is drawn already
    spans.forEach((span, index) => {
      const left = pixel(span.start, w), right = pixel(span.end, w), row = `${span.lane} ${span.row}`;
      const kept = index === roving || bars.get(index) === document.activeElement;
      const out_of_sight = right < -8 || left > w + 8 || (right - left < 4 && left < (covered.get(row) ?? -9) + 1);
      if (!out_of_sight) covered.set(row, Math.max(right, left));
      if (out_of_sight && !kept) {
        bars.get(index)?.remove();
        bars.delete(index);
        return;
      }
      if (!bars.has(index)) bars.set(index, bar_for(index));
      const bar = bars.get(index), from = Math.min(Math.max(left, -6), Math.max(w - 4, left - 12)), wide = Math.max(Math.min(right, w + 8) - from, 4);
      bar.style.left = `${from}px`;
      bar.style.width = `${wide}px`;
      bar.classList.toggle("small", wide < 34);
      bar.classList.toggle("tiny", wide < 16);
      bar.classList.toggle("selected", index === chosen.span);
      bar.classList.toggle("dim", matches !== null && !span.frames.some((frame) => matches.has(frame)));
      bar.tabIndex = index === roving ? 0 : -1;
    });
    draw_axis(w);
    draw_window();
  }

  const STEPS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 86400];
  function draw_axis(w) {
    const per_pixel = (view.to - view.from) / w;
    const step = STEPS.find((one) => one / per_pixel >= 84) ?? STEPS.at(-1) * Math.ceil(84 * per_pixel / STEPS.at(-1));
    const ticks = [], rules = [];
    let last = -84;
    for (let t = Math.ceil(time_at(view.from) / step - 1e-9) * step; t <= time_at(view.to) + 1e-9; t += step) {
      const inside = folds.find((one) => t > one.from && t < one.to);
      if (inside) { t = Math.floor(inside.to / step) * step; continue; }
      const x = pixel(t, w);
      if (x - last < 60) continue;
      last = x;
      ticks.push(make("span", { class: "tick" }, on_axis(t, step)));
      rules.push(make("div", { class: "rule" }));
      ticks.at(-1).style.left = rules.at(-1).style.left = `${x}px`;
    }
    for (const one of folds) {
      const left = pixel(one.from, w), right = pixel(one.to, w);
      if (right < 0 || left > w) continue;
      const band = make("div", { class: "fold" }), label = make("span", { class: "tick" }, `⋯ ${span_of_time(one.to - one.from)}`);
      band.style.left = label.style.left = `${left}px`;
      band.style.width = `${right - left}px`;
      rules.push(band);
      if (right - left > 60) ticks.push(label);
    }
    $("axis").replaceChildren(...ticks);
    $("grid").replaceChildren(...rules);
  }

  // ---------------------------------------------------------------- overview and zoom

  function draw_overview() {
    const canvas = $("overview").querySelector("canvas"), scale = window.devicePixelRatio || 1;
    const w = canvas.clientWidth, h = canvas.clientHeight, pen = canvas.getContext("2d");
    [canvas.width, canvas.height] = [w * scale, h * scale];
    pen.scale(scale, scale);
    const high = h / Math.max(used.length, 1), style = getComputedStyle(document.documentElement);
    const light = style.getPropertyValue("--edge-l"), strong = style.getPropertyValue("--edge-s");
    used.forEach((lane, row) => {
      pen.fillStyle = lane.hue === "none" ? `hsl(0 0% ${light})` : `hsl(${lane.hue} ${strong} ${light})`;
      for (const span of spans.filter((one) => one.lane === lane.id)) {
        const x = place(span.start) / extent * w;
        pen.fillRect(x, row * high + 0.5, Math.max(place(span.end) / extent * w - x, 1.5), Math.max(high - 1, 1));
      }
    });
  }
  function draw_window() {
    const box = $("window");
    box.style.left = `${view.from / extent * 100}%`;
    box.style.width = `${(view.to - view.from) / extent * 100}%`;
    box.classList.toggle("whole", view.to - view.from >= extent * 0.999);
  }
  function look(from, to) {
    const wide = Math.min(Math.max(to - from, Math.min(0.002, extent)), extent);
    const start = Math.min(Math.max(from, 0), extent - wide);
    view = { from: start, to: start + wide };
    draw_soon();
  }
  const move = (by) => look(view.from + by, view.to + by);
  const zoom = (factor, around = 0.5) => {
    const at = view.from + (view.to - view.from) * around, wide = (view.to - view.from) * factor;
    look(at - wide * around, at + wide * (1 - around));
  };
  function reveal(span) {
    const from = place(span.start), to = place(span.end), wide = view.to - view.from;
    if (to < view.from || from > view.to) look((from + to) / 2 - wide / 2, (from + to) / 2 + wide / 2);
  }
  function refold() {
    const middle = time_at((view.from + view.to) / 2), share = (view.to - view.from) / extent;
    extent = fold($("fold").checked);
    const at = place(middle);
    look(at - share * extent / 2, at + share * extent / 2);
    draw_overview();
  }

  // ---------------------------------------------------------------- the list

  const drawn = new Map();
  function draw_rows() {
    const box = $("rows");
    $("spacer").style.height = `${shown.length * ROW}px`;
    const first = Math.max(Math.floor(box.scrollTop / ROW) - 8, 0);
    const last = Math.min(Math.ceil((box.scrollTop + box.clientHeight) / ROW) + 8, shown.length);
    const wanted = new Set(shown.slice(first, last));
    for (const [index, row] of drawn) if (!wanted.has(index)) { row.remove(); drawn.delete(index); }
    for (let at = first; at < last; at++) {
      const index = shown[at];
      if (!drawn.has(index)) { drawn.set(index, row_for(index)); $("spacer").append(drawn.get(index)); }
      const row = drawn.get(index);
      row.style.top = `${at * ROW}px`;
      row.setAttribute("aria-posinset", at + 1);
      row.setAttribute("aria-setsize", shown.length);
      row.setAttribute("aria-selected", index === chosen.frame);
      row.classList.toggle("mine", chosen.span !== null && spans[chosen.span].frames.includes(index));
    }
    const active = drawn.has(chosen.frame) ? `frame-${chosen.frame}` : "";
    if (active) box.setAttribute("aria-activedescendant", active); else box.removeAttribute("aria-activedescendant");
  }
  function row_for(index) {
    const frame = frames[index], [arrow, side] = SIDES[frame.d];
    const row = make("div", { class: "row", id: `frame-${index}`, role: "option" });
    row.setAttribute("aria-label", `${index + 1}, ${moment(frame.t)}, ${side}, ${frame.k}, ${frame.s}`);
    row.dataset.frame = index;
    row.append(
      make("span", { class: "n" }, String(index + 1)),
      make("span", { class: "t" }, clock(frame.t)),
      make("span", { class: `d d-${frame.d}`, title: side }, arrow),
      make("span", { class: "k" }, frame.k + (frame.n > 1 ? ` ×${frame.n}` : "")),
      make("span", { class: "s" }, frame.s),
      make("span", { class: "z" }, size_of(frame.l.length)),
    );
    return row;
  }
  function scroll_to(index) {
    const at = shown.indexOf(index), box = $("rows"), top = box.scrollTop, bottom = top + box.clientHeight;
    if (at < 0 || (at * ROW >= top && (at + 1) * ROW <= bottom)) return;
    const is_next = at * ROW > top - 2 * ROW && (at + 1) * ROW < bottom + 2 * ROW;
    if (!is_next) box.scrollTop = (at - 2) * ROW;
    else box.scrollTop = at * ROW < top ? at * ROW : (at + 1) * ROW - box.clientHeight;
  }

  const lowered = [];
  const text_of = (index) => lowered[index] ??= `${frames[index].k}\n${frames[index].s}\n${frames[index].l}`.toLowerCase();
  function filter() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = (index) => words.every((word) => text_of(index).includes(word));
    matches = words.length ? new Set([...frames.keys()].filter(found)) : null;
    const wanted = scope === null ? null : new Set(spans[scope].frames);
    shown = [...frames.keys()].filter((index) => !hidden_groups.has(frames[index].g)
      && (matches === null || matches.has(index)) && (wanted === null || wanted.has(index)));
    $("count").textContent = shown.length === frames.length ? `${frames.length} frames` : `${shown.length} of ${frames.length} frames`;
    $("scope").hidden = scope === null;
    if (scope !== null) $("scope").textContent = `only: ${spans[scope].title.slice(0, 40)} ✕`;
    draw_rows();
    draw_soon();
  }

  // ---------------------------------------------------------------- the conversation

  const open_tab = conversation.tabs($, () => draw_rows());
  conversation.fill($("conversation"), data.conversation, { make, moment, span_of_time, choose: (index) => choose_frame(index) });

  // ---------------------------------------------------------------- details

  const LONG = 200000, COLOURED = 60000, MANY = 200;
  function paint(target, text) {
    const token = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;
    let at = 0;
    for (const found of text.matchAll(token)) {
      const kind = found[1] ? (found[2] ? "key" : "string") : found[3] ? "number" : "literal";
      const words = found[1] ?? found[0];
      target.append(text.slice(at, found.index), make("span", { class: `j-${kind}` }, words));
      at = found.index + words.length;
    }
    target.append(text.slice(at));
  }
  function json_of(index) {
    const text = indented(frames[index].l), block = make("pre", { tabIndex: 0 });
    block.setAttribute("aria-label", `Frame ${index + 1}`);
    const show = (all) => {
      const part = all ? text : text.slice(0, LONG);
      block.replaceChildren();
      if (part.length <= COLOURED) paint(block, part); else block.append(part);
      if (part.length < text.length) block.append("\n", make("button", { type: "button", class: "more", onclick: () => show(true) }, `Show all ${size_of(text.length)} characters`));
    };
    show(false);
    return block;
  }
  function frame_box(index, open) {
    const frame = frames[index];
    const box = make("details", {}, make("summary", {},
      make("span", { class: `d-${frame.d}`, title: SIDES[frame.d][1] }, SIDES[frame.d][0]),
      make("span", { class: "k" }, frame.k), make("span", { class: "t" }, `#${index + 1} · ${moment(frame.t)}`)));
    box.dataset.frame = index;
    const fill = () => { if (box.open && box.children.length === 1) box.append(json_of(index)); };
    box.addEventListener("toggle", fill);
    box.open = open;
    fill();
    return box;
  }
  function frame_boxes(list, target) {
    const small = list.length <= 8;
    let done = 0;
    const more = make("button", { type: "button", class: "more" });
    const next = () => {
      const part = list.slice(done, done + MANY);
      more.before(...part.map((index, at) => frame_box(index, small || (done === 0 && at === 0))));
      done += part.length;
      more.hidden = done >= list.length;
      more.textContent = `Show ${Math.min(MANY, list.length - done)} more of ${list.length} frames`;
    };
    more.addEventListener("click", next);
    target.append(more);
    next();
  }
  function show_details() {
    const body = $("detail-body");
    body.replaceChildren();
    if (chosen.span !== null) show_span(body, spans[chosen.span], chosen.span);
    else if (chosen.frame !== null) show_frame(body, frames[chosen.frame], chosen.frame);
    else {
      $("detail-title").textContent = "Session";
      show_session(body);
    }
    $("detail").scrollTop = 0;
  }
  function show_session(body) {
    const turns = [...spans.keys()].filter((index) => spans[index].lane === "turns");
    if (turns.length) {
      body.append(make("h3", {}, turns.length === 1 ? "1 turn" : `${turns.length} turns`), make("div", { class: "turns" }, ...turns.map((index) => {
        const { title, state, start, end, facts } = spans[index];
        const outcome = [facts.outcome ?? state, span_of_time(end - start), facts.cost].filter(Boolean).join(" · ");
        return make("button", { type: "button", class: state, onclick: () => choose_span(index) },
          make("span", { class: "m" }, MARKS[state] ?? "✓"), make("span", { class: "p" }, title), make("span", { class: "o" }, outcome));
      })));
    }
    const shares = used.map((lane) => [lane, busy(lane.id)]).filter(([lane, took]) => took > 0 && lane.id !== "turns");
    if (shares.length) {
      body.append(make("h3", {}, "Where the time went"), make("div", { class: "shares" }, ...shares.flatMap(([lane, took]) => {
        const fill = make("i"), share = make("span", { class: "share" }, fill);
        fill.style.setProperty("--h", lane.hue);
        fill.style.width = `${took / duration * 100}%`;
        return [make("span", {}, lane.label), share, make("span", {}, span_of_time(took))];
      })));
    }
    body.append(make("p", { class: "hint" }, "Select a bar in the timeline, a time in the conversation or a frame in the list to see its details."));
  }
  function busy(lane) {
    let took = 0, until = 0;
    for (const span of spans.filter((one) => one.lane === lane)) {
      took += Math.max(span.end - Math.max(span.start, until), 0);
      until = Math.max(until, span.end);
    }
    return took;
  }
  function pairs(entries) {
    return make("dl", { class: "pairs" }, ...entries.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  }
  function show_span(body, span, index) {
    $("detail-title").textContent = lane_label[span.lane];
    const lasted = span.end > span.start ? span_of_time(span.end - span.start) : "a moment";
    body.append(
      make("h3", {}, span.title),
      make("span", { class: `badge ${span.state}` }, span.state === "open" ? "no end recorded" : span.state),
      pairs([["time", span.end > span.start ? `${moment(span.start)} to ${moment(span.end)}, ${lasted}` : moment(span.start)], ...Object.entries(span.facts)]),
      make("div", { class: "links" },
        make("button", { type: "button", onclick: () => { scope = scope === index ? null : index; open_tab("frames"); filter(); } }, "List only these frames"),
        make("button", { type: "button", onclick: () => { const a = place(span.start), b = place(span.end), pad = Math.max((b - a) * 0.15, 0.01); look(a - pad, b + pad); } }, "Zoom to it")),
    );
    frame_boxes(span.frames, body);
  }
  function show_frame(body, frame, index) {
    $("detail-title").textContent = `Frame ${index + 1} of ${frames.length}`;
    const links = spans_of_frame[index].map((at) => make("button", { type: "button", onclick: () => choose_span(at) }, `${lane_label[spans[at].lane]}: ${spans[at].title.slice(0, 48)}`));
    body.append(make("h3", {}, frame.k),
      pairs([["time", moment(frame.t)], ["direction", SIDES[frame.d][1]], ["size", `${frame.l.length} characters${frame.p ? ", cut off" : ""}`]]));
    if (links.length) body.append(make("div", { class: "links" }, ...links));
    body.append(frame_box(index, true));
  }

  // ---------------------------------------------------------------- choosing

  function choose_span(index, focus = false) {
    chosen = { span: index, frame: null };
    if (index !== null) { reveal(spans[index]); scroll_to(spans[index].frames[0]); }
    settle(index === null ? "" : `s${index + 1}`);
    if (focus && index !== null) { draw_timeline(); bars.get(index)?.focus({ preventScroll: false }); }
  }
  function choose_frame(index) {
    chosen = { span: null, frame: index };
    if (index !== null) scroll_to(index);
    settle(index === null ? "" : `f${index + 1}`);
  }
  function settle(hash) {
    show_details();
    draw_rows();
    draw_soon();
    try { history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search); } catch { /* not everywhere */ }
  }
  function neighbour(index, by) {
    const lane = spans[index].lane, next = index + by;  // spans are sorted by lane and start
    return spans[next] && spans[next].lane === lane ? next : index;
  }
  function other_lane(index, by) {
    const at = used.findIndex((lane) => lane.id === spans[index].lane), lane = used[at + by];
    if (!lane) return index;
    const away = (span) => Math.abs(span.start - spans[index].start);
    let best = index, least = Infinity;
    spans.forEach((span, number) => { if (span.lane === lane.id && away(span) < least) { best = number; least = away(span); } });
    return best;
  }

  // ---------------------------------------------------------------- pointer and keys

  $("lanes").addEventListener("click", (event) => {
    const bar = event.target.closest(".bar");
    if (bar) choose_span(Number(bar.dataset.span));
  });
  $("lanes").addEventListener("keydown", (event) => {
    const bar = event.target.closest(".bar");
    if (!bar || event.ctrlKey || event.metaKey || event.altKey) return;
    const index = Number(bar.dataset.span);
    const moves = { ArrowLeft: () => neighbour(index, -1), ArrowRight: () => neighbour(index, 1), ArrowUp: () => other_lane(index, -1), ArrowDown: () => other_lane(index, 1) };
    if (!moves[event.key]) return;
    event.preventDefault();
    choose_span(moves[event.key](), true);
  });
  for (const track of tracks.values()) {
    let held = null;
    track.addEventListener("pointerdown", (event) => {
      if (event.button || event.target.closest(".bar")) return;
      held = { x: event.clientX };
      track.setPointerCapture(event.pointerId);
      track.classList.add("held");
    });
    track.addEventListener("pointermove", (event) => {
      if (!held) return;
      move((held.x - event.clientX) / width() * (view.to - view.from));
      held.x = event.clientX;
    });
    for (const end of ["pointerup", "pointercancel"]) track.addEventListener(end, () => { held = null; track.classList.remove("held"); });
  }
  $("tracks").addEventListener("wheel", (event) => {
    const sideways = event.shiftKey ? event.deltaY : event.deltaX;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const box = [...tracks.values()][0]?.getBoundingClientRect();
      if (box) zoom(Math.exp(event.deltaY * 0.0022), Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1));
    } else if (sideways) {
      event.preventDefault();
      move(sideways / width() * (view.to - view.from));
    }
  }, { passive: false });

  let drag = null;
  $("overview").addEventListener("pointerdown", (event) => {
    const box = $("overview").getBoundingClientRect(), at = (event.clientX - box.left) / box.width * extent;
    const inside = event.target === $("window");
    drag = inside ? { grip: at - view.from } : { start: at };
    $("overview").setPointerCapture(event.pointerId);
  });
  $("overview").addEventListener("pointermove", (event) => {
    if (!drag) return;
    const box = $("overview").getBoundingClientRect(), at = (event.clientX - box.left) / box.width * extent;
    const wide = view.to - view.from;
    if ("grip" in drag) look(at - drag.grip, at - drag.grip + wide);
    else if (Math.abs(at - drag.start) > extent * 0.005) look(Math.min(at, drag.start), Math.max(at, drag.start));
  });
  for (const end of ["pointerup", "pointercancel"]) $("overview").addEventListener(end, () => { drag = null; });
  $("overview").addEventListener("dblclick", () => look(0, extent));

  $("zoom-in").addEventListener("click", () => zoom(0.5));
  $("zoom-out").addEventListener("click", () => zoom(2));
  $("zoom-fit").addEventListener("click", () => look(0, extent));
  $("fold").addEventListener("change", refold);
  $("scope").addEventListener("click", () => { scope = null; filter(); });
  $("help").addEventListener("click", () => $("keys").showModal());

  $("rows").addEventListener("scroll", draw_rows, { passive: true });
  $("rows").addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (row) choose_frame(Number(row.dataset.frame));
  });
  $("rows").addEventListener("keydown", (event) => {
    const page = Math.max(Math.floor($("rows").clientHeight / ROW) - 1, 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && chosen.frame !== null) { $("detail").focus(); return; }
    if (!(event.key in steps) || event.ctrlKey || event.metaKey || event.altKey || !shown.length) return;
    event.preventDefault();
    const from = chosen.frame ?? (chosen.span !== null ? spans[chosen.span].frames[0] : shown[0]);
    const at = shown.indexOf(from), next = chosen.frame === null && event.key === "ArrowDown" ? Math.max(at, 0) : at + steps[event.key];
    choose_frame(shown[Math.min(Math.max(next, 0), shown.length - 1)]);
  });

  let waiting = 0;
  $("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(filter, frames.length > 2000 ? 120 : 0); });
  for (const group of data.groups) {
    const number = frames.filter((frame) => frame.g === group.id).length;
    if (!number) continue;
    const toggle = make("button", { type: "button", "aria-pressed": String(!hidden_groups.has(group.id)) }, `${group.label} ${number}`);
    toggle.addEventListener("click", () => {
      if (!hidden_groups.delete(group.id)) hidden_groups.add(group.id);
      toggle.setAttribute("aria-pressed", String(!hidden_groups.has(group.id)));
      filter();
    });
    $("groups").append(toggle);
  }

  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input, textarea");
    if (event.key === "Escape" && !$("keys").open) {
      if ($("search").value) { $("search").value = ""; filter(); }
      else if (scope !== null) { scope = null; filter(); }
      else { chosen = { span: null, frame: null }; settle(""); }
      return;
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
    const next = (by) => () => { if (spans.length) choose_span(chosen.span === null ? 0 : Math.min(Math.max(chosen.span + by, 0), spans.length - 1)); };
    const keys = {
      "/": () => { open_tab("frames"); $("search").focus(); }, c: () => open_tab("conversation"), f: () => open_tab("frames"), "?": () => $("keys").showModal(), "[": next(-1), "]": next(1),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => look(0, extent),
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });

  const THEMES = { "": ["Auto", "same as the system"], light: ["Light", "light"], dark: ["Dark", "dark"] };
  function dress(theme) {
    if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
    $("theme").textContent = THEMES[theme][0];
    $("theme").setAttribute("aria-label", `Colours: ${THEMES[theme][1]}`);
    draw_overview();
  }
  $("theme").addEventListener("click", () => {
    const names = Object.keys(THEMES), now = document.documentElement.dataset.theme ?? "";
    dress(names[(names.indexOf(now) + 1) % names.length]);
  });

  // ---------------------------------------------------------------- begin

  const silent = data.quiet.reduce((sum, [from, to]) => sum + to - from, 0);
  $("fold-label").hidden = !data.quiet.length;
  $("fold").checked = silent > duration * 0.3;
  extent = fold($("fold").checked);
  view = { from: 0, to: extent };
  new ResizeObserver(() => { draw_overview(); draw_rows(); draw_soon(); }).observe(document.querySelector("main"));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw_overview);
  open_tab(data.conversation.length ? "conversation" : "frames");
  filter();
  show_details();
  draw_timeline();
  draw_overview();
  const [, kind, number] = /^#([fs])(\d+)$/.exec(location.hash) ?? [];
  if (kind === "f" && frames[number - 1]) choose_frame(number - 1);
  else if (kind === "s" && spans[number - 1]) choose_span(number - 1);
  document.documentElement.dataset.ready = "true";
})();
