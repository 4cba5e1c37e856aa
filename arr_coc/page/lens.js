/* Lens: what the full, the focused and the shrunk look saw, side by side, and one lens over the same place of all
   three. In the browser alone: `paint.js` rebuilds each from the picture on the page, and what it is given.
   arrLens(root) serves every .arr-looks that is ever put into root. Nothing moves by itself. */
function arrLens(root) {
  const LOOKS = ['full', 'focused', 'shrunk'];
  const NARROW = 700, LONG = 2;  // pixels of a screen, sides of a picture, from which the lens stands below
  const AREA = 0.13;  // of the picture's longer side, seen through the lens
  const {SEEN} = arrPaint;
  const standing = new Map();  // each group on the page, and how it is drawn
  let image = null;
  const within = (value, low, high) => Math.min(high, Math.max(low, value));

  function mount(box) {
    box.dataset.ready = '1';
    standing.get(box)?.stop.abort();  // an update keeps the box and its listeners, and takes data-ready away
    const stop = new AbortController(), {signal} = stop;
    const data = JSON.parse(box.dataset.saw), [h, w] = data.grid, said = box.parentElement.querySelector('.arr-lens-said');
    const panes = LOOKS.map((name) => {
      const pane = box.querySelector(`[data-look=${name}]`), find = (what) => pane.querySelector(what);
      return {name, stage: find('.arr-under-lens'), seen: find('.arr-seen'), lens: find('.arr-lens'),
        pixels: find('.arr-pixels')};
    });
    let at = data.at, sight = null, aspect = 1;

    const place = () => [within(Math.floor(at[0] * h), 0, h - 1), within(Math.floor(at[1] * w), 0, w - 1)];

    function given() {  // pixels of the place under the lens, by look, and in words
      const cell = data.cells[arrPaint.cellAt(data, ...place())], side = (n, all) => Math.round(SEEN * n / all);
      const [rows, columns] = data.small, block = cell && SEEN / 2 ** cell[0];
      return {
        full: `${SEEN} × ${SEEN} px`,
        focused: cell ? `${block} × ${block} px, kept` : data.after ? 'seen, then dropped' : 'only in passing',
        shrunk: `${side(columns, w)} × ${side(rows, h)} px`,
      };
    }
    function through({lens}, drawn) {  // what stands under the lens, magnified
      const density = within(devicePixelRatio || 1, 1, 2), size = Math.round(lens.clientWidth * density) || 2;
      // As square as in the picture: a small grid may have other proportions.
      const across = AREA * Math.max(1, 1 / aspect) * drawn.width, down = AREA * Math.max(1, aspect) * drawn.height;
      Object.assign(lens, {width: size, height: size});
      const paint = lens.getContext('2d');
      paint.imageSmoothingEnabled = false;  // the very pixels that the look was given
      const [left, top] = [at[1] * drawn.width - across / 2, at[0] * drawn.height - down / 2];
      paint.drawImage(drawn, left, top, across, down, 0, 0, size, size);
    }
    function move(to, loud = true) {
      at = to.map((value) => within(value, 0, 1));
      const words = given(), [row, column] = place();
      for (const pane of panes) {
        pane.stage.style.setProperty('--arr-down', `${100 * at[0]}%`);
        pane.stage.style.setProperty('--arr-across', `${100 * at[1]}%`);
        pane.pixels.textContent = words[pane.name];
        if (sight) through(pane, sight[pane.name]);
      }
      if (!loud) return;
      said.textContent = `Row ${row + 1} of ${h}, column ${column + 1} of ${w}. Full look: ${words.full}. `
        + `Focused look: ${words.focused}. Shrunk picture: ${words.shrunk}.`;
    }
    function lay() {  // the lens over the pictures, or below them
      box.classList.toggle('arr-lens-below', innerWidth <= NARROW || aspect > LONG || aspect < 1 / LONG);
      move(at, false);
    }
    function show(found) {
      if (!found) return;
      const base = arrPaint.draw(found, found.naturalWidth, found.naturalHeight);
      const full = arrPaint.whole(base, data.grid);
      aspect = base.width / base.height;
      sight = {full, focused: arrPaint.saw(base, data), shrunk: arrPaint.whole(base, data.small)};
      for (const pane of panes) {
        pane.stage.style.setProperty('--arr-aspect', aspect);
        pane.stage.style.setProperty('--arr-area', `${100 * AREA * Math.max(1, 1 / aspect)}%`);
        Object.assign(pane.seen, {width: full.width, height: full.height});
        pane.seen.getContext('2d').drawImage(sight[pane.name], 0, 0, full.width, full.height);
      }
      lay();
    }

    function follow(event) {
      const pane = panes.find(({seen}) => seen.parentElement.contains(event.target));
      if (!pane) return;
      const area = pane.seen.getBoundingClientRect();
      move([(event.clientY - area.top) / area.height, (event.clientX - area.left) / area.width]);
    }
    box.addEventListener('pointerdown', follow, {signal});
    box.addEventListener('pointermove', (event) => (event.pointerType === 'mouse' || event.buttons) && follow(event), {signal});
    box.addEventListener('keydown', (event) => {
      const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
      if (!step && event.key !== 'Home') return;
      event.preventDefault();
      const [row, column] = place();
      move(step ? [within(row + step[0], 0, h - 1) + 0.5, within(column + step[1], 0, w - 1) + 0.5].map(
        (value, i) => value / data.grid[i]) : data.at);
    }, {signal});
    standing.set(box, {show, lay, stop});
    show(image);
  }

  const serve = () => {
    for (const box of standing.keys()) if (!box.isConnected) standing.delete(box);
    root.querySelectorAll('.arr-looks:not([data-ready])').forEach(mount);
  };
  new MutationObserver(serve).observe(root, {
    childList: true, subtree: true, attributes: true, attributeFilter: ['data-saw', 'data-ready'],
  });
  arrPaint.pictured((found) => {
    image = found;
    standing.forEach(({show}) => show(found));
  });
  addEventListener('resize', () => standing.forEach(({lay}) => lay()));
  serve();
}
