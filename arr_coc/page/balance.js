/* Balance: three maps and three tensions -> relevance, and the places that get tokens: the arithmetic of
   arr_coc/balancing.py and attending.py, in the browser, over `allocate.js` and `paint.js`. Numbers in, numbers out; no page is
   touched. tests/test_browser_lens.py holds it against Python's, with constants and all.

   `sum` is what `why.sum_of` wrote; maps become flat lists, row by row; tensions are [compress, exploit, focus]. */
const arrBalance = (() => {
  const EPS = 1e-6, REACH = 1, TOP_SHARE = 20, GIST = 0.5, EVEN = 6;  // place of a scalar

  const descending = (values) => values.map((_, i) => i).sort((i, j) => values[j] - values[i] || i - j);

  function stretched(values) {  // to [0, 1]; an even map becomes 0.5 everywhere
    const low = Math.min(...values), span = Math.max(...values) - low;
    return values.map((value) => (span > EPS ? (value - low) / span : 0.5));
  }

  function widest(values, [h, w]) {  // the largest within REACH places
    return values.map((_, i) => {
      const row = Math.floor(i / w), column = i % w;
      let most = 0;
      for (let y = Math.max(0, row - REACH); y <= Math.min(h - 1, row + REACH); y++) {
        for (let x = Math.max(0, column - REACH); x <= Math.min(w - 1, column + REACH); x++) {
          most = Math.max(most, values[y * w + x]);
        }
      }
      return most;
    });
  }

  function distance(values, [h, w]) {  // to the nearest of the strongest places, over the farthest
    const top = descending(values).slice(0, Math.max(1, Math.floor(h * w / TOP_SHARE)));
    const nearest = values.map((_, i) => Math.min(...top.map(
      (j) => Math.hypot(Math.floor(i / w) - Math.floor(j / w), i % w - j % w))));
    const farthest = Math.max(...nearest, EPS);
    return nearest.map((far) => far / farthest);
  }

  /* The three maps as they are multiplied, and what weighs them: two exponents, and the share of what stands out. */
  function factors(sum, [compress, exploit]) {
    const [floor, , pointed, varied, , least] = sum.scalars;
    const detail = sum.propositional.flat(), out = sum.perspectival.flat();
    const asked = sum.participatory ? sum.participatory.flat() : detail.map((value, i) => (value + out[i]) / 2);
    const wide = widest(asked, sum.grid);
    const weights = {participatory: (1 - compress) * pointed, propositional: compress * varied, perspectival: exploit};
    return {
      weights,
      participatory: asked.map((value, i) =>
        Math.max(least, exploit * wide[i] + (1 - exploit) * value) ** weights.participatory),
      propositional: detail.map((value) => Math.max(least, value) ** weights.propositional),
      perspectival: out.map((value) => floor + exploit * value + (1 - exploit) * (1 - value)),
    };
  }

  function relevance(sum, tensions, found = factors(sum, tensions)) {
    const [, gain, , , contrast] = sum.scalars, even = 1 - tensions[2] ** 2;
    const seed = stretched(found.participatory.map(
      (value, i) => value * found.propositional[i] * found.perspectival[i]));
    const far = distance(seed, sum.grid);
    const mixed = seed.map((value, i) => (1 - even) * value + even * value * (1 + gain * far[i]) / (1 + gain));
    return stretched(mixed).map((value) => value ** contrast);
  }

  function rounded(value) {  // a half to the even side, as Python does
    const low = Math.floor(value), rest = value - low;
    return rest > 0.5 || (rest === 0.5 && low % 2) ? low + 1 : low;
  }

  function uniform([h, w], count) {  // so many places spread evenly
    const rows = Math.min(h, Math.max(1, rounded(Math.sqrt(count * h / w))));
    const columns = Math.min(w, Math.max(1, Math.floor(count / rows))), taken = [];
    for (let y = 0; y < rows; y++) {
      for (let x = 0; x < columns; x++) {
        taken.push(Math.floor((y + 0.5) * h / rows) * w + Math.floor((x + 0.5) * w / columns));
      }
    }
    const held = new Set(taken.slice(0, count)), golden = (Math.sqrt(5) - 1) / 2;
    const order = Array.from({length: h * w}, (_, i) => i * golden % 1);
    const free = descending(order.map((value) => -value)).filter((i) => !held.has(i));
    return [...held, ...free.slice(0, count - held.size)];
  }

  function tokens(sum, [compress, , focus]) {  // how many go to the best places, and how many evenly
    const look = sum.look ? sum.look[0] * sum.look[1] : 0;
    const fits = look <= Math.floor(3 * sum.budget / 4);
    const stays = sum.glance === 'periphery' || (sum.glance === 'auto' && fits && compress > GIST);
    const all = sum.budget - (stays ? look : 0), evenly = rounded((sum.scalars[EVEN] ?? 1) * (1 - focus ** 2) * all);
    return {all, evenly, best: all - evenly, glance: stays ? look : 0};
  }

  /* The cells that get tokens, [level, row, column], row by row; null of an allocator that is not known here. */
  function cells(sum, tensions, map = relevance(sum, tensions)) {
    const allocate = Object.hasOwn(arrAllocate, sum.allocator) ? arrAllocate[sum.allocator] : null;
    if (!allocate) return null;
    const {all, evenly} = tokens(sum, tensions), found = (budget) => allocate(map, budget, sum.grid, tensions[0]);
    if (sum.allocator === 'quadtree') return found(all);  // coarse cells cover everything already
    const native = (places) => places.map((i) => [0, Math.floor(i / sum.grid[1]), i % sum.grid[1]]);
    if (!evenly) return native(found(all));
    const order = [...map], best = found(Math.max(1, all - evenly));
    uniform(sum.grid, evenly).forEach((i) => { order[i] = 2; });
    best.forEach((i) => { order[i] = 3; });
    return native(descending(order).slice(0, Math.min(all, best.length + evenly)).sort((a, b) => a - b));
  }

  function strongest(map, cells, [h, w]) {  // the most relevant place of each cell, [level, row, column]
    return cells.map(([level, row, column]) => {
      const side = 2 ** level, found = [];
      for (let y = row * side; y < Math.min(h, (row + 1) * side); y++) {
        found.push(...map.slice(y * w + column * side, y * w + Math.min(w, (column + 1) * side)));
      }
      return Math.max(...found);
    });
  }

  function ranks(values) {  // from 1, the largest; equal ones share the better rank
    const falling = [...values].sort((a, b) => b - a), first = new Map();
    falling.forEach((value, n) => first.has(value) || first.set(value, n + 1));
    return values.map((value) => first.get(value));
  }

  const ranked = (map, cells, grid) => ranks(strongest(map, cells, grid));

  function brightness(map, cells, grid) {  // how brightly each place is drawn, from 0 to 1
    const places = rows(ranks(map), grid), order = ranked(map, cells, grid);
    return arrPaint.brightness({grid, places, cells, order}).flat();
  }
  const rows = (flat, [h, w]) => Array.from({length: h}, (_, y) => flat.slice(y * w, (y + 1) * w));

  return {factors, relevance, tokens, cells, ranked, brightness, rows};
})();
