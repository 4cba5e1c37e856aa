/* Allocate: a map of relevance and a number of tokens -> the cells that get one: the allocators of
   arr_coc/allocators.py, in the browser. Numbers in, numbers out. tests/test_browser_lens.py holds it against
   Python's, with constants and all.

   Maps are flat lists, row by row, over a grid [rows, columns]. An allocator gives the places that it keeps, row by
   row, as numbers; only "quadtree" gives cells, [level, row, column]. */
const arrAllocate = (() => {
  const PARTICULAR = 0.95, COMPRESSED = 0.6, MINIMUM = 4, SIDE = 2;

  const descending = (values) => values.map((_, i) => i).sort((i, j) => values[j] - values[i] || i - j);
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  const ordered = (places) => places.sort((a, b) => a - b);

  const topk = (map, budget) => ordered(descending(map).slice(0, budget));

  function adaptive(map, budget, grid, compress) {  // as many as the map asks for
    const median = [...map].sort((a, b) => a - b)[Math.floor((map.length - 1) / 2)];
    const excess = map.map((value) => Math.max(0, value - median)).sort((a, b) => b - a), all = total(excess);
    if (all <= 0) return topk(map, budget);
    let reached = 0, wanted = 1;
    for (const value of excess) {
      reached += value;
      if (reached >= (PARTICULAR + (COMPRESSED - PARTICULAR) * compress) * all) break;
      wanted += 1;
    }
    return topk(map, Math.min(budget, Math.max(MINIMUM, wanted)));
  }

  function window_(map, budget, [h, w]) {  // whole windows while they fit, then single places
    const windows = [];
    for (let top = 0; top < h; top += SIDE) {
      for (let left = 0; left < w; left += SIDE) {
        const places = [];
        for (let y = top; y < Math.min(h, top + SIDE); y++) {
          for (let x = left; x < Math.min(w, left + SIDE); x++) places.push(y * w + x);
        }
        windows.push(places);
      }
    }
    const means = windows.map((places) => total(places.map((i) => map[i])) / places.length), kept = new Set();
    for (const n of descending(means)) {
      if (kept.size + windows[n].length > budget) break;
      windows[n].forEach((i) => kept.add(i));
    }
    for (const i of descending(map)) if (kept.size < budget) kept.add(i);
    return ordered([...kept]);
  }

  function sums(map, [h, w]) {  // over the cells of every level, in squares of the map, as rows
    const levels = [Array.from({length: h}, (_, y) => map.slice(y * w, (y + 1) * w).map((value) => value ** 2))];
    while (levels[0].length * levels[0][0].length > 1) {
      const below = levels[0], at = (y, x) => below[y]?.[x] ?? 0;
      levels.unshift(Array.from({length: Math.ceil(below.length / 2)}, (_, y) =>
        Array.from({length: Math.ceil(below[0].length / 2)}, (_, x) =>
          at(2 * y, 2 * x) + at(2 * y, 2 * x + 1) + at(2 * y + 1, 2 * x) + at(2 * y + 1, 2 * x + 1))));
    }
    return levels.reverse();
  }

  function quadtree(map, budget, grid) {  // every place covered once, finest where relevance is
    const levels = sums(map, grid), waiting = [], done = [];
    const quarters = ([level, row, column]) => {
      const below = levels[level - 1], parts = [];
      for (let y = 2 * row; y < Math.min(2 * row + 2, below.length); y++) {
        for (let x = 2 * column; x < Math.min(2 * column + 2, below[0].length); x++) parts.push([level - 1, y, x]);
      }
      return parts;
    };
    function add(cell) {
      let parts = cell[0] ? quarters(cell) : [];
      while (parts.length === 1) {
        cell = parts[0];
        parts = cell[0] ? quarters(cell) : [];
      }
      const [level, row, column] = cell;
      if (!level) done.push(cell);
      else waiting.push({cell, parts, reward: levels[level][row][column] / (parts.length - 1)});
    }
    const before = (a, b) => b.reward - a.reward || b.cell[0] - a.cell[0] || a.cell[1] - b.cell[1]
      || a.cell[2] - b.cell[2];
    add([levels.length - 1, 0, 0]);
    while (waiting.length) {
      const best = waiting.reduce((a, b) => (before(a, b) <= 0 ? a : b));
      waiting.splice(waiting.indexOf(best), 1);
      if (done.length + waiting.length + best.parts.length > budget) done.push(best.cell);
      else best.parts.forEach(add);
    }
    const top = ([level, row, column]) => [row * 2 ** level, column * 2 ** level];
    return done.sort((a, b) => top(a)[0] - top(b)[0] || top(a)[1] - top(b)[1]);
  }

  return {topk, adaptive, window: window_, quadtree};
})();
