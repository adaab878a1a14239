"use strict";
// Formatting of times, sizes and JSON lines.
const words = (() => {
  const two = (n) => String(n).padStart(2, "0");

  // Numbers are rounded before they are split, so that 59.9 s does not become 0:60.
  const whole_clock = (t) => {
    const s = Math.round(t), minutes = Math.floor(s / 60);
    return s < 3600 ? `${minutes}:${two(s % 60)}` : `${Math.floor(s / 3600)}:${two(minutes % 60)}:${two(s % 60)}`;
  };
  const is_short = (t) => t < 99.9995;
  const clock = (t) => {
    const tenths = Math.round(t * 10);
    if (is_short(t)) return t.toFixed(3);
    return tenths < 36000 ? `${Math.floor(tenths / 600)}:${(tenths % 600 / 10).toFixed(1).padStart(4, "0")}` : whole_clock(t);
  };
  const moment = (t) => is_short(t) ? `${clock(t)} s` : clock(t);
  const span_of_time = (s) => {
    if (s < 0.9995) return `${Math.round(s * 1000)} ms`;
    if (s < 59.95) return `${s.toFixed(s < 9.995 ? 2 : 1)} s`;
    const whole = Math.round(s), minutes = Math.round(s / 60);
    return whole < 3600 ? `${Math.floor(whole / 60)} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  };
  const on_axis = (t, step) => {
    if (step >= 60) return whole_clock(t);
    if (!is_short(t)) return clock(t);
    return `${t.toFixed(step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3)} s`;
  };
  const size_of = (n) => n < 1000 ? `${n}` : n < 1e6 ? `${(n / 1000).toFixed(1)} k` : `${(n / 1e6).toFixed(1)} M`;

  // The end of the string that begins at `start`, in valid JSON.
  const string_end = (text, start) => {
    for (let end = text.indexOf('"', start + 1); ; end = text.indexOf('"', end + 1)) {
      let before = end;
      while (text[before - 1] === "\\") before -= 1;
      if ((end - before) % 2 === 0) return end + 1;
    }
  };
  const DEEPEST = 40;  // limit of the indentation, because a frame may be nested deeply
  // Indent a line of JSON. Only the space between its tokens changes. Digits, order and duplicate
  // keys stay as received; a JSON parser would not keep them.
  const indented = (line) => {
    try { JSON.parse(line); } catch { return line; }
    const space = /\s*/y, plain = /[^\s"{}[\],:]+/y, closing = /\s*[}\]]/y, parts = [];
    const matched = (pattern, from) => { pattern.lastIndex = from; return pattern.test(line) ? pattern.lastIndex : from; };
    let depth = 0, at = matched(space, 0);
    const new_line = () => parts.push("\n", "  ".repeat(Math.min(depth, DEEPEST)));
    while (at < line.length) {
      const mark = line[at];
      const end = mark === '"' ? string_end(line, at) : "{}[],:".includes(mark) ? at + 1 : matched(plain, at);
      if (mark === "}" || mark === "]") { depth -= 1; new_line(); }
      parts.push(line.slice(at, end));
      at = matched(space, end);
      if (mark === ",") new_line();
      else if (mark === ":") parts.push(" ");
      else if (mark === "{" || mark === "[") {
        const empty = matched(closing, end);
        if (empty > end) { parts.push(line[empty - 1]); at = matched(space, empty); }
        else { depth += 1; new_line(); }
      }
    }
    return parts.join("");
  };
  return { clock, moment, span_of_time, on_axis, size_of, indented };
})();
