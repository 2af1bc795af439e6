// The differences of two lists of lines (Myers, "An O(ND) difference algorithm", 1986).

const MOST = 1500;

/**
 * Rows of `{kind, old, new}`: `same`, `changed` (a removed line beside an added one) or `alone` (one without the other), with places
 * counted from 0. Null if more than `MOST` lines differ.
 */
export function lineDiff(a, b) {
  let begin = 0;
  while (begin < a.length && begin < b.length && a[begin] === b[begin]) begin += 1;
  let end = 0;
  while (end < a.length - begin && end < b.length - begin && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const middle = edits(a.slice(begin, a.length - end), b.slice(begin, b.length - end));
  if (middle === null) return null;
  const rows = [];
  for (let at = 0; at < begin; at += 1) rows.push({ kind: "same", old: at, new: at });
  rows.push(...paired(middle, begin));
  for (let at = end; at > 0; at -= 1) rows.push({ kind: "same", old: a.length - at, new: b.length - at });
  return rows;
}

/** The shortest script as a list of `[old or null, new or null]`. */
function edits(a, b) {
  const trace = [];
  let reach = new Map([[1, 0]]);
  const most = Math.min(MOST, a.length + b.length);
  for (let distance = 0; distance <= most; distance += 1) {
    trace.push(new Map(reach));
    for (let k = -distance; k <= distance; k += 2) {
      const down = k === -distance || (k !== distance && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
      let x = down ? reach.get(k + 1) : reach.get(k - 1) + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) { x += 1; y += 1; }
      reach.set(k, x);
      if (x >= a.length && y >= b.length) return walkedBack(trace, a.length, b.length);
    }
  }
  return null;
}

function walkedBack(trace, x, y) {
  const script = [];
  for (let distance = trace.length - 1; distance >= 0; distance -= 1) {
    const reach = trace[distance];
    const k = x - y;
    const down = k === -distance || (k !== distance && (reach.get(k - 1) ?? -1) < (reach.get(k + 1) ?? -1));
    const from = down ? k + 1 : k - 1;
    const startX = reach.get(from) ?? 0;
    const startY = startX - from;
    while (x > startX && y > startY) { x -= 1; y -= 1; script.push([x, y]); }
    if (distance === 0) break;
    if (down) { y -= 1; script.push([null, y]); } else { x -= 1; script.push([x, null]); }
  }
  return script.reverse();
}

/** Removed lines beside the added ones that follow or precede them. */
function paired(script, offset) {
  const rows = [];
  let removed = [];
  let added = [];
  const flush = () => {
    for (let at = 0; at < Math.max(removed.length, added.length); at += 1) {
      const [old, fresh] = [removed[at] ?? null, added[at] ?? null];
      rows.push({ kind: old !== null && fresh !== null ? "changed" : "alone", old, new: fresh });
    }
    [removed, added] = [[], []];
  };
  for (const [old, fresh] of script) {
    if (old !== null && fresh !== null) { flush(); rows.push({ kind: "same", old: old + offset, new: fresh + offset }); }
    else if (old !== null) removed.push(old + offset);
    else added.push(fresh + offset);
  }
  flush();
  return rows;
}
