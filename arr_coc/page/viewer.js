/* The viewer: draws where a look went onto its picture, in the browser alone.
   arrViewer(root) serves every .arr-viewer that is ever put into root; data come in attributes. */
function arrViewer(root) {
  const MAGMA = [[0, 0, 4], [29, 17, 71], [81, 18, 124], [131, 38, 129], [183, 55, 121],
    [231, 82, 99], [252, 137, 97], [254, 196, 136], [252, 253, 191]];
  const CIVIDIS = [[0, 34, 78], [26, 56, 111], [67, 78, 108], [97, 101, 111], [125, 124, 120],
    [155, 148, 118], [188, 174, 108], [222, 201, 88], [254, 232, 56]];
  const SEEN = 32;  // pixels of a native token's side
  const PASSING = 8;  // blocks along the longer side of what got no token of its own
  const pictures = new Map();  // decoded once, so that an update does not flicker
  let view = null, wipe = 100;

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

  function heat(base, look) {
    const image = pixels(base), data = image.data;
    const level = spread(look.brightness, base.width, base.height);
    for (let i = 0; i < data.length; i += 4) {
      const grey = (0.299 * data[i] + 0.587 * data[i + 1] + 0.114 * data[i + 2]) / 255;
      const at = level[i] / 255 * (MAGMA.length - 1), n = Math.min(MAGMA.length - 2, at | 0);
      const under = 255 * (0.34 * grey * (1 - 0.7 * level[i] / 255) + 0.05);
      for (let c = 0; c < 3; c++) {
        const colour = MAGMA[n][c] + (MAGMA[n + 1][c] - MAGMA[n][c]) * (at - n);
        data[i + c] = colour * (0.45 + 0.55 * grey) + under;
      }
    }
    return image;
  }

  function boxes(base, look) {
    const [h, w] = look.grid, across = base.width / w, down = base.height / h;
    return look.cells.map((cell) => {
      const [top, left, bottom, right] = bounds(cell, look.grid);
      const x = Math.round(left * across), y = Math.round(top * down);
      return [x, y, Math.round(right * across) - x, Math.round(bottom * down) - y, cell[0]];
    });
  }

  function kept(base, look) {
    const made = draw(base, base.width, base.height), paint = made.getContext('2d');
    paint.fillStyle = 'rgba(14, 14, 20, 0.8)';
    paint.fillRect(0, 0, made.width, made.height);
    paint.strokeStyle = 'rgba(250, 178, 90, 0.9)';
    for (const [x, y, width, height] of boxes(base, look)) {
      paint.drawImage(base, x, y, width, height, x, y, width, height);
      paint.strokeRect(x + 0.5, y + 0.5, width - 1, height - 1);
    }
    return pixels(made);
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

  function saw(base, look) {
    const [h, w] = look.grid;
    const native = draw(base, w * SEEN, h * SEEN), made = canvas(native.width, native.height);
    const paint = made.getContext('2d');
    paint.imageSmoothingQuality = 'high';
    const rest = look.glance ? draw(base, look.glance[1] * SEEN, look.glance[0] * SEEN)
      : passing(base, look.grid, made.width, made.height);
    paint.drawImage(rest, 0, 0, made.width, made.height);
    const coarseFirst = boxes(native, look).sort((a, b) => b[4] - a[4]);
    for (const [x, y, width, height] of coarseFirst) {
      const cell = canvas(SEEN, SEEN), inner = cell.getContext('2d');
      inner.imageSmoothingQuality = 'high';
      inner.drawImage(native, x, y, width, height, 0, 0, SEEN, SEEN);
      paint.drawImage(cell, x, y, width, height);
    }
    return pixels(draw(made, base.width, base.height));
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

  const DRAW = {heat, kept, saw, sized};

  function nth(n) {
    const last = n % 100 >= 11 && n % 100 <= 13 ? 0 : n % 10;
    return `${n}${['th', 'st', 'nd', 'rd'][last] || 'th'}`;
  }

  function standing(look, index) {  // of a kept cell among the kept, in words
    const rank = look.order[index], count = look.cells.length;
    const words = 3 * rank <= count || rank === 1 ? 'it matters most'
      : 3 * rank <= 2 * count ? 'it matters less' : 'it hardly matters';
    return `kept, ${nth(rank)} of ${count}: ${words}`;
  }

  function told(look, row, column) {  // what is said of one place
    const [h, w] = look.grid, near = (map) => map && map[row][column].toFixed(2);
    const index = look.cells.findIndex((cell) => {
      const [top, left, bottom, right] = bounds(cell, look.grid);
      return top <= row && row < bottom && left <= column && column < right;
    });
    const side = index < 0 ? 1 : 2 ** look.cells[index][0];
    const fate = index < 0
      ? `not kept, ${nth(look.places[row][column])} of ${h * w}. It has no token of its own: `
        + `${look.glance ? 'only in the blurry view of the whole' : 'seen only in passing, mostly coarsely'}`
      : `${standing(look, index)}. ${side === 1 ? 'Full detail' : `One token for ${side}×${side} places`} `
        + `(level ${look.cells[index][0]}, budget ${Math.round(look.budgets[index])})`;
    const parts = [['detail', look.propositional], ['stands out', look.perspectival],
      ['question', look.participatory]].filter(([, map]) => map);
    return `Row ${row + 1} of ${h}, column ${column + 1} of ${w}: ${fate}; `
      + `${parts.map(([name, map]) => `${name} ${near(map)}`).join(', ')}.`;
  }

  function mount(box) {
    box.dataset.ready = '1';
    const look = box.dataset.look ? JSON.parse(box.dataset.look) : null;
    const find = (name) => box.querySelector(name), over = find('.arr-over');
    if (!look || !over) return;
    const done = {}, stage = find('.arr-stage'), readout = find('.arr-readout');
    const cursor = find('.arr-cursor'), slider = find('.arr-wipe'), quiet = readout.textContent;
    let base = null, place = null;

    function paint() {
      const chosen = find('input[type=radio]:checked').value;
      view = chosen;
      box.dataset.view = chosen;
      if (!base || chosen === 'plain') return;
      if (!done[chosen]) done[chosen] = DRAW[chosen](base, look);
      over.width = base.width;
      over.height = base.height;
      over.getContext('2d').putImageData(done[chosen], 0, 0);
      over.setAttribute('aria-label', find('input[type=radio]:checked').dataset.alt);
    }
    function point(row, column) {
      const [h, w] = look.grid, index = look.cells.findIndex((cell) => {
        const [top, left, bottom, right] = bounds(cell, look.grid);
        return top <= row && row < bottom && left <= column && column < right;
      });
      place = [Math.max(0, Math.min(h - 1, row)), Math.max(0, Math.min(w - 1, column))];
      const [top, left, bottom, right] = index < 0
        ? [place[0], place[1], place[0] + 1, place[1] + 1] : bounds(look.cells[index], look.grid);
      Object.assign(cursor.style, {top: `${100 * top / h}%`, left: `${100 * left / w}%`,
        height: `${100 * (bottom - top) / h}%`, width: `${100 * (right - left) / w}%`});
      cursor.hidden = view === 'sized';
      readout.textContent = told(look, ...place);
    }
    function leave() {
      cursor.hidden = true;
      readout.textContent = quiet;
    }
    function at(event) {
      const area = stage.getBoundingClientRect(), [h, w] = look.grid;
      let y = (event.clientY - area.top) / area.height, x = (event.clientX - area.left) / area.width;
      if (view === 'sized') {  // the place under the finger is where the mesh says
        const n = look.mesh.length - 1, clip = (v) => Math.max(0, Math.min(n, Math.round(v * n)));
        [y, x] = look.mesh[clip(y)][clip(x)];
      }
      point(Math.min(h - 1, Math.max(0, Math.floor(y * h))), Math.min(w - 1, Math.max(0, Math.floor(x * w))));
    }
    const cells = find('.arr-cells');
    cells.addEventListener('pointermove', (event) => event.pointerType === 'mouse' && at(event));
    cells.addEventListener('pointerdown', at);
    cells.addEventListener('pointerleave', (event) => event.pointerType === 'mouse' && leave());
    cells.addEventListener('blur', leave);
    cells.addEventListener('keydown', (event) => {
      const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
      if (event.key === 'Escape') leave();
      if (!step) return;
      event.preventDefault();
      place = place || [look.grid[0] >> 1, look.grid[1] >> 1];
      const to = [place[0] + step[0], place[1] + step[1]];
      if (to[0] >= 0 && to[1] >= 0 && to[0] < look.grid[0] && to[1] < look.grid[1]) point(...to);
    });
    const slide = () => {
      wipe = Number(slider.value);
      over.style.clipPath = `inset(0 0 0 ${100 - wipe}%)`;  // the view at the right, under its word
    };
    slider.addEventListener('input', slide);
    box.querySelectorAll('input[type=radio]').forEach((radio) => radio.addEventListener('change', () => {
      paint();
      if (place) cursor.hidden = view === 'sized';
    }));
    const wanted = view && box.querySelector(`input[value="${view}"]`);
    if (wanted) wanted.checked = true;
    slider.value = wipe;
    slide();
    const shown = find('.arr-base'), known = pictures.get(shown.src);
    const ready = (image) => {
      pictures.clear();
      pictures.set(shown.src, image);
      // Small pictures are drawn larger; long ones came larger and stay so.
      const scale = Math.max(1, 640 / Math.max(image.naturalWidth, image.naturalHeight));
      base = draw(image, Math.max(2, Math.round(scale * image.naturalWidth)),
        Math.max(2, Math.round(scale * image.naturalHeight)));
      paint();
    };
    if (known) ready(known);
    else {
      const image = new Image();
      image.onload = () => ready(image);
      image.src = shown.src;
    }
  }

  function map(shown) {  // one map as honest squares, one per place
    shown.dataset.ready = '1';
    const rows = JSON.parse(shown.dataset.map), flat = rows.flat(), low = Math.min(...flat);
    const span = Math.max(Math.max(...flat) - low, 0.05), stops = CIVIDIS.length - 1;
    Object.assign(shown, {width: rows[0].length, height: rows.length});
    const paint = shown.getContext('2d'), image = paint.createImageData(shown.width, shown.height);
    flat.forEach((value, i) => {
      const at = (value - low) / span * stops, n = Math.min(stops - 1, at | 0);
      const colour = CIVIDIS[n].map((c, k) => c + (CIVIDIS[n + 1][k] - c) * (at - n));
      image.data.set([...colour, 255], 4 * i);
    });
    paint.putImageData(image, 0, 0);
  }

  // An update may replace nodes or only change their attributes, which also takes data-ready away:
  // the viewer is then put in anew, without the listeners of its last decision.
  const serve = () => {
    root.querySelectorAll('.arr-viewer:not([data-ready])').forEach((box) => {
      const fresh = box.cloneNode(true);
      box.replaceWith(fresh);
      mount(fresh);
    });
    root.querySelectorAll('.arr-map:not([data-ready])').forEach(map);
  };
  new MutationObserver(serve).observe(root, {
    childList: true, subtree: true, attributes: true,
    attributeFilter: ['data-ready', 'data-look', 'data-map'],
  });
  serve();
}
