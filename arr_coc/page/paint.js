/* Paint: a picture and a decision about it -> what is shown of them, on canvases. Of the page only the picture is read. */
window.arrPaint = (() => {
  const MAGMA = [[0, 0, 4], [29, 17, 71], [81, 18, 124], [131, 38, 129], [183, 55, 121],
    [231, 82, 99], [252, 137, 97], [254, 196, 136], [252, 253, 191]];
  const CIVIDIS = [[0, 34, 78], [26, 56, 111], [67, 78, 108], [97, 101, 111], [125, 124, 120],
    [155, 148, 118], [188, 174, 108], [222, 201, 88], [254, 232, 56]];
  const SEEN = 32;  // pixels of a native token's side
  const FAINTEST_KEPT = 0.42, BRIGHTEST_REST = 0.2;  // as in arr_coc/ranking.py
  const PASSING = 8;  // blocks along the longer side of what got no token of its own

  const canvas = (width, height) => Object.assign(document.createElement('canvas'), {width, height});
  const draw = (image, width, height) => {
    const made = canvas(width, height), paint = made.getContext('2d', {willReadFrequently: true});
    paint.imageSmoothingQuality = 'high';
    paint.drawImage(image, 0, 0, width, height);
    return made;
  };
  const pixels = (made) => made.getContext('2d').getImageData(0, 0, made.width, made.height);
  const bounds = ([level, row, column], [h, w]) => {
    const side = 2 ** level, top = row * side, left = column * side;
    return [top, left, Math.min(h, top + side), Math.min(w, left + side)];
  };

  const light = (i, data) => 0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2];

  function spread(map, width, height) {  // (h, w) in [0, 1] -> bytes over the picture, in squares
    const h = map.length, w = map[0].length, flat = map.flat();
    const low = Math.min(...flat), span = Math.max(Math.max(...flat) - low, 0.05);
    const small = canvas(w, h), paint = small.getContext('2d'), image = paint.createImageData(w, h);
    flat.forEach((value, i) => {
      const byte = 255 * (value - low) / span;
      image.data.set([byte, byte, byte, 255], 4 * i);
    });
    paint.putImageData(image, 0, 0);
    const made = canvas(width, height), large = made.getContext('2d', {willReadFrequently: true});
    large.imageSmoothingEnabled = false;
    large.drawImage(small, 0, 0, width, height);
    return pixels(made).data;
  }

  /* How brightly each place is drawn, rows of numbers from 0 to 1: by rank, every kept one above every other. */
  function brightness({grid: [h, w], places, cells, order}) {
    const height = (rank, count) => 1 - (rank - 1) / Math.max(1, count - 1);
    const shown = places.map((row) => row.map((rank) => BRIGHTEST_REST * height(rank, h * w)));
    const coarseFirst = cells.map((_, n) => n).sort((a, b) => cells[b][0] - cells[a][0]);
    for (const n of coarseFirst) {
      const [top, left, bottom, right] = bounds(cells[n], [h, w]);
      const level = FAINTEST_KEPT + (1 - FAINTEST_KEPT) * height(order[n], cells.length);
      for (let row = top; row < bottom; row++) shown[row].fill(level, left, right);
    }
    return shown;
  }

  function heat(base, look) {  // of what was decided, or of the brightness that is given
    const image = pixels(base), data = image.data;
    const level = spread(look.brightness || brightness(look), base.width, base.height);
    for (let i = 0; i < data.length; i += 4) {
      const grey = light(i, data) / 255;
      const at = level[i] / 255 * (MAGMA.length - 1), n = Math.min(MAGMA.length - 2, at | 0);
      const under = 255 * (0.34 * grey * (1 - 0.7 * level[i] / 255) + 0.05);
      for (let c = 0; c < 3; c++) {
        const colour = MAGMA[n][c] + (MAGMA[n + 1][c] - MAGMA[n][c]) * (at - n);
        data[i + c] = colour * (0.45 + 0.55 * grey) + under;
      }
    }
    return image;
  }

  function cellAt({cells}, row, column) {  // the number of the kept cell at a place, or -1
    return cells.findIndex(([level, y, x]) => y === row >> level && x === column >> level);
  }

  function boxes(base, look) {
    const [h, w] = look.grid, across = base.width / w, down = base.height / h;
    return look.cells.map((cell) => {
      const [top, left, bottom, right] = bounds(cell, look.grid);
      const x = Math.round(left * across), y = Math.round(top * down);
      return [x, y, Math.round(right * across) - x, Math.round(bottom * down) - y, cell[0]];
    });
  }

  function soft(base, dark) {  // the picture pale and without edges, to lie under what is kept
    const less = (side) => Math.max(2, Math.round(side / 14));
    const made = draw(draw(base, less(base.width), less(base.height)), base.width, base.height);
    const image = pixels(made), data = image.data, page = dark ? 22 : 252, pale = dark ? 0.62 : 0.6;
    for (let i = 0; i < data.length; i += 4) {
      const grey = light(i, data);
      for (let c = 0; c < 3; c++) data[i + c] = (0.6 * grey + 0.4 * data[i + c]) * (1 - pale) + page * pale;
    }
    made.getContext('2d').putImageData(image, 0, 0);
    return made;
  }

  function ranked(look) {  // every place, [row, column], the most relevant first
    const width = look.grid[1], flat = look.places.flat();
    const order = flat.map((_, i) => i).sort((i, j) => flat[i] - flat[j] || i - j);
    return order.map((i) => [Math.floor(i / width), i % width]);
  }

  /* What is kept, each cell with its standing among them from 1 down to 0: as it was decided, or of these
     the best `first`, or the best `count` places of the picture. */
  function standing(look, {first = null, count = null}) {
    if (count !== null) {
      return ranked(look).slice(0, count).map(([row, column], n) =>
        ({cell: [0, row, column], height: 1 - n / Math.max(1, count - 1)}));
    }
    const last = Math.max(1, look.cells.length - 1);
    const all = look.cells.map((cell, n) => ({cell, height: 1 - (look.order[n] - 1) / last}));
    return first === null ? all : all.sort((a, b) => b.height - a.height).slice(0, first);
  }

  function kept(base, look, choice = {}, dark = false, ground = soft(base, dark)) {
    const [h, w] = look.grid, across = base.width / w, down = base.height / h;
    const made = draw(ground, base.width, base.height), paint = made.getContext('2d');
    const taken = Array.from({length: h}, () => new Uint8Array(w));
    for (const {cell, height} of standing(look, choice)) {
      const [top, left, bottom, right] = bounds(cell, look.grid);
      const x = Math.round(left * across), y = Math.round(top * down);
      const area = [x, y, Math.round(right * across) - x, Math.round(bottom * down) - y];
      paint.globalAlpha = 0.7 + 0.3 * height;
      paint.drawImage(base, ...area, ...area);
      for (let row = top; row < bottom; row++) taken[row].fill(1, left, right);
    }
    paint.globalAlpha = 1;
    outline(paint, taken, across, down, dark);
    return made;
  }

  function outline(paint, taken, across, down, dark) {  // around what is kept, not between kept cells
    const line = (row, column, toRow, toColumn) => {
      paint.moveTo(Math.round(column * across), Math.round(row * down));
      paint.lineTo(Math.round(toColumn * across), Math.round(toRow * down));
    };
    const free = (row, column) => !(taken[row] && taken[row][column]);
    paint.beginPath();
    taken.forEach((cells, row) => cells.forEach((is, column) => {
      if (!is) return;
      if (free(row - 1, column)) line(row, column, row, column + 1);
      if (free(row + 1, column)) line(row + 1, column, row + 1, column + 1);
      if (free(row, column - 1)) line(row, column, row + 1, column);
      if (free(row, column + 1)) line(row, column + 1, row + 1, column + 1);
    }));
    paint.lineWidth = Math.max(1.5, paint.canvas.width / 420);
    paint.strokeStyle = dark ? '#fbbf24' : '#c2410c';
    paint.stroke();
  }

  /* Which kept places the answer hangs on: glowing by what leaving each out costs, those framed that give the
     answer alone. */
  const FAINT = 0.1;  // of a probability: what loses less stays pale, though it be the most
  function mattered(base, look, dark) {
    const {places, loss, smallest} = look.mattered, [h, w] = look.grid;
    const across = base.width / w, down = base.height / h, most = Math.max(...loss, FAINT);
    const made = draw(soft(base, dark), base.width, base.height), paint = made.getContext('2d');
    const taken = Array.from({length: h}, () => new Uint8Array(w));
    places.forEach(([row, column], n) => {
      const x = Math.round(column * across), y = Math.round(row * down);
      const area = [x, y, Math.round((column + 1) * across) - x, Math.round((row + 1) * down) - y];
      paint.globalAlpha = 0.55;
      paint.drawImage(base, ...area, ...area);
      paint.globalAlpha = 0.75 * Math.sqrt(Math.max(0, loss[n]) / most);
      paint.fillStyle = '#e5383b';
      paint.fillRect(...area);
    });
    paint.globalAlpha = 1;
    (smallest || []).forEach((n) => { taken[places[n][0]][places[n][1]] = 1; });
    outline(paint, taken, across, down, dark);
    return made;
  }

  /* The decision as a short film, `t` from 0 to 1: the blurred first look, what it makes glow, and then the
     kept places fly in, the best first. */
  function film(base, look, dark) {
    const FROM = 0.5, LAND = 0.4, FLIGHT = 0.1, order = standing(look, {first: look.cells.length});
    const [h, w] = look.grid, across = base.width / w, down = base.height / h;
    const seen = look.looked || look.grid.map((side) => Math.max(2, Math.round(side / 4)));
    const glance = draw(draw(base, 4 * seen[1], 4 * seen[0]), base.width, base.height);
    const glow = heat(base, look), ground = soft(base, dark), warm = canvas(base.width, base.height);
    warm.getContext('2d').putImageData(glow, 0, 0);
    return (t) => {
      if (t >= FROM) {
        const starts = (n) => FROM + LAND * n / order.length, landed = order.filter((_, n) => starts(n) + FLIGHT <= t);
        const shown = kept(base, look, {first: landed.length}, dark, ground), air = shown.getContext('2d');
        for (let n = landed.length; n < order.length && starts(n) < t; n++) {  // from the lower edge to their places
          const [top, left, bottom, right] = bounds(order[n].cell, look.grid), far = (1 - (t - starts(n)) / FLIGHT) ** 2;
          const wide = (right - left) * across, high = (bottom - top) * down, size = 1 + 1.5 * far;
          const x = (left + right) / 2 * across, y = (top + bottom) / 2 * down;
          const toX = x + (base.width / 2 - x) * far, toY = y + (base.height - y) * far;
          air.globalAlpha = 1 - 0.7 * far;
          air.drawImage(base, left * across, top * down, wide, high,
            toX - wide * size / 2, toY - high * size / 2, wide * size, high * size);
        }
        air.globalAlpha = 1;
        return shown;
      }
      const made = draw(glance, base.width, base.height), paint = made.getContext('2d');
      paint.globalAlpha = 0.85 * Math.min(1, Math.max(0, (t - 0.25) / 0.2));
      paint.drawImage(warm, 0, 0);
      return made;
    };
  }

  function passing(base, [h, w], width, height) {  // the whole in blocks, each its pixels' mean, dark
    const longer = Math.max(h, w), fit = (side) => Math.max(1, Math.round(PASSING * side / longer));
    const across = fit(w), down = fit(h), made = canvas(width, height), paint = made.getContext('2d');
    let small = base;
    while (small.width > across || small.height > down) {  // by halves: a browser may skip pixels else
      small = draw(small, Math.max(across, small.width >> 1), Math.max(down, small.height >> 1));
    }
    paint.imageSmoothingEnabled = false;
    paint.drawImage(small, 0, 0, width, height);
    paint.fillStyle = 'rgba(20, 20, 28, 0.68)';
    paint.fillRect(0, 0, width, height);
    return made;
  }

  function whole(base, [h, w]) {  // the picture as so many tokens have it: a full or a shrunk look
    return draw(base, w * SEEN, h * SEEN);
  }

  function saw(base, look) {  // the picture at the resolution that each place was given
    const native = whole(base, look.grid), made = canvas(native.width, native.height);
    const paint = made.getContext('2d');
    paint.imageSmoothingQuality = 'high';
    const rest = look.glance ? whole(base, look.glance) : passing(base, look.grid, made.width, made.height);
    paint.drawImage(rest, 0, 0, made.width, made.height);
    const coarseFirst = boxes(native, look).sort((a, b) => b[4] - a[4]);
    for (const [x, y, width, height] of coarseFirst) {
      const cell = canvas(SEEN, SEEN), inner = cell.getContext('2d');
      inner.imageSmoothingQuality = 'high';
      inner.drawImage(native, x, y, width, height, 0, 0, SEEN, SEEN);
      paint.drawImage(cell, x, y, width, height);
    }
    return made;
  }

  function sized(base, look) {  // every pixel is fetched from where the mesh says it came from
    const {width, height} = base, from = pixels(base).data, nodes = look.mesh.length - 1;
    const image = new ImageData(width, height), to = image.data, mesh = look.mesh;
    const mix = (j, i, fv, fu, c) => (mesh[j][i][c] * (1 - fu) + mesh[j][i + 1][c] * fu) * (1 - fv)
      + (mesh[j + 1][i][c] * (1 - fu) + mesh[j + 1][i + 1][c] * fu) * fv;
    for (let y = 0; y < height; y++) {
      const v = y / (height - 1) * nodes, j = Math.min(nodes - 1, v | 0), fv = v - j;
      for (let x = 0; x < width; x++) {
        const u = x / (width - 1) * nodes, i = Math.min(nodes - 1, u | 0), fu = u - i;
        const sy = mix(j, i, fv, fu, 0) * (height - 1), sx = mix(j, i, fv, fu, 1) * (width - 1);
        const y0 = Math.min(height - 2, sy | 0), x0 = Math.min(width - 2, sx | 0);
        const gy = sy - y0, gx = sx - x0, p = 4 * (y0 * width + x0), q = p + 4 * width;
        for (let c = 0; c < 3; c++) {
          to[4 * (y * width + x) + c] = (from[p + c] * (1 - gx) + from[p + 4 + c] * gx) * (1 - gy)
            + (from[q + c] * (1 - gx) + from[q + 4 + c] * gx) * gy;
        }
        to[4 * (y * width + x) + 3] = 255;
      }
    }
    return image;
  }

  function map(shown, rows) {  // values in [0, 1] as honest squares, one per place
    const flat = rows.flat(), stops = CIVIDIS.length - 1;
    Object.assign(shown, {width: rows[0].length, height: rows.length});
    const paint = shown.getContext('2d'), image = paint.createImageData(shown.width, shown.height);
    flat.forEach((value, i) => {
      const at = value * stops, n = Math.min(stops - 1, at | 0);
      const colour = CIVIDIS[n].map((c, k) => c + (CIVIDIS[n + 1][k] - c) * (at - n));
      image.data.set([...colour, 255], 4 * i);
    });
    paint.putImageData(image, 0, 0);
  }

  // Whoever reads light letters has a dark page around the picture.
  const isDark = (box) => getComputedStyle(box).color.match(/\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) > 384;

  function pictured(use) {  // the picture on the page, now and whenever there is another
    let src = '';
    const look = () => {
      const shown = document.querySelector('.arr-viewer .arr-base');
      if (!shown || shown.src === src) return;
      src = shown.src;
      const image = new Image();
      image.onload = () => { if (image.src === src) use(image); };
      image.src = src;
    };
    new MutationObserver(look).observe(document.getElementById('arr-look') || document.body, {
      childList: true, subtree: true, attributes: true, attributeFilter: ['src'],
    });
    look();
  }

  return {draw, bounds, cellAt, brightness, heat, kept, mattered, saw, whole, sized, soft, film, map, isDark, pictured, SEEN};
})();
