/* The viewer: shows where a look went on its picture, in the browser alone; `paint.js` draws.
   arrViewer(root) serves every .arr-viewer that is ever put into root; data come in attributes.
   Under the page's own viewer (#arr-look) the budget is dragged, and a decision is played once. */
function arrViewer(root, trigger) {
  const BUDGET = '#arr-budget input[type=range]', BY_SHARE = 'share';
  const {bounds, cellAt} = arrPaint, FILM_MS = 4000, SIDE = 640, TIER = 3, isMain = Boolean(root.closest('#arr-look'));
  const pictures = new Map();  // decoded once, so that an update does not flicker
  let view = null, wipe = 100;
  let begun = isMain ? null : -Infinity;  // when the film of the first decision began

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

  function told(look, row, column, count) {  // what is said of one place; `count`: kept by a dragged budget
    const [h, w] = look.grid, rank = look.places[row][column], near = (map) => map && (map[row][column] / 100).toFixed(2);
    const index = cellAt(look, row, column);
    const side = index < 0 ? 1 : 2 ** look.cells[index][0], isDragged = view === 'kept' && count !== null;
    const passing = look.after ? 'the encoder saw it closely, then it was dropped'
      : look.glance ? 'only in the blurry view of the whole' : 'seen only in passing, mostly coarsely';
    const fate = isDragged && rank <= count ? `kept with this budget, ${nth(rank)} of ${count}`
      : isDragged || index < 0 ? `not kept, ${nth(rank)} of ${h * w}. It has no token of its own: ${passing}`
      : `${standing(look, index)}. ${side === 1 ? 'Full detail' : `One token for ${side}×${side} places`} `
        + `(level ${look.cells[index][0]}, budget ${Math.round(look.budgets[index])})`;
    const asked = look.mattered ? look.mattered.places.findIndex(([y, x]) => y === row && x === column) : -1;
    const cost = asked < 0 || view !== 'mattered' ? ''
      : ` Without it the answer's probability ${loses(look.mattered.loss[asked])}`
        + `${look.mattered.smallest?.includes(asked) ? '; one of the few that give it alone' : ''}.`;
    const parts = [['detail', look.propositional], ['stands out', look.perspectival],
      ['question', look.participatory]].filter(([, map]) => map);
    return `Row ${row + 1} of ${h}, column ${column + 1} of ${w}: ${fate}; `
      + `${parts.map(([name, map]) => `${name} ${near(map)}`).join(', ')}.${cost}`;
  }

  function loses(loss) {  // a probability, in words
    const points = Math.round(100 * loss);
    const much = `${Math.abs(points)} point${Math.abs(points) === 1 ? '' : 's'}`;
    return points > 0 ? `loses ${much}` : points < 0 ? `gains ${much}` : 'hardly changes';
  }

  function mount(box) {
    box.dataset.ready = '1';
    const look = box.dataset.look ? JSON.parse(box.dataset.look) : null;
    const find = (name) => box.querySelector(name), over = find('.arr-over');
    if (!look || !over) return;
    const done = {}, stage = find('.arr-stage'), readout = find('.arr-readout'), film = find('.arr-play');
    const cursor = find('.arr-cursor'), slider = find('.arr-wipe');
    let base = null, place = null, count = null, ground = null, quiet = readout.textContent, skip = null;

    const dark = () => arrPaint.isDark(box);
    const draw = {
      kept: () => {
        ground = ground || arrPaint.soft(base, dark());
        return arrPaint.kept(base, look, {count}, dark(), ground);
      },
      heat: () => arrPaint.heat(base, look),
      mattered: () => arrPaint.mattered(base, look, dark()),
      saw: () => arrPaint.draw(arrPaint.saw(base, look), base.width, base.height),
      sized: () => arrPaint.sized(base, look),
    };
    function show(drawn) {
      over.width = base.width;
      over.height = base.height;
      const paper = over.getContext('2d');
      if (drawn instanceof ImageData) paper.putImageData(drawn, 0, 0);
      else paper.drawImage(drawn, 0, 0);
    }
    function paint() {
      const chosen = find('input[type=radio]:checked').value;
      view = chosen;
      box.dataset.view = chosen;
      if (!base || chosen === 'plain') return;
      if (!done[chosen]) done[chosen] = draw[chosen]();
      if (chosen === 'mattered') beside(find('.arr-decided'));
      show(done[chosen]);
      over.setAttribute('aria-label', find('input[type=radio]:checked').dataset.alt);
    }
    function beside(decided) {  // the decision, small, next to what it turned out to hang on
      const heat = done.heat || (done.heat = draw.heat());
      Object.assign(decided, {width: heat.width, height: heat.height});
      decided.getContext('2d').putImageData(heat, 0, 0);
    }
    function tell(words, loud = true) {  // over the picture while there is something to tell
      readout.textContent = words;
      readout.classList.toggle('arr-telling', loud);
    }
    function spend(percent) {  // the budget is dragged: as many places, the most relevant first
      const places = look.grid[0] * look.grid[1];
      const tokens = Math.max(1, Math.floor(percent / 100 * places + 1e-9));
      const wanted = tokens === look.budget ? null : tokens;
      if (wanted === count) return;
      count = wanted;
      delete done.kept;
      if (skip) skip();
      find('input[value=kept]').checked = true;
      quiet = count === null ? readout.dataset.hint : `${tokens} of ${places} places, the most relevant first`;
      tell(quiet, count !== null);
      paint();
    }
    function play(start) {
      const frame = arrPaint.film(base, look, dark());
      const skipping = ['pointerdown', 'keydown'], words = film.textContent;
      skip = () => {
        skip = null;
        begun = -Infinity;
        document.getElementById('arr-answers')?.classList.remove('arr-awaited');
        delete box.dataset.playing;
        film.textContent = words;
        skipping.forEach((name) => removeEventListener(name, leaveOff, true));
        if (box.isConnected) paint();
        document.getElementById('arr-answers')?.classList.add('arr-answered');
      };
      const leaveOff = (event) => { if (skip && !event.target.closest?.('.arr-play')) skip(); };
      skipping.forEach((name) => addEventListener(name, leaveOff, true));
      box.dataset.playing = '1';
      film.textContent = 'Skip';
      document.getElementById('arr-answers')?.classList.remove('arr-answered');
      document.getElementById('arr-answers')?.classList.add('arr-awaited');
      requestAnimationFrame(function step(now) {
        if (!box.isConnected) document.getElementById('arr-answers')?.classList.remove('arr-awaited');
        if (!box.isConnected) skipping.forEach((name) => removeEventListener(name, leaveOff, true));
        if (!skip || !box.isConnected) return;  // another viewer in its place goes on with it
        const t = Math.max(0, now - start) / FILM_MS;
        if (t >= 1) return skip();
        show(frame(t));
        requestAnimationFrame(step);
      });
    }
    function point(row, column) {
      const [h, w] = look.grid, index = cellAt(look, row, column);
      place = [row, column];
      const [top, left, bottom, right] = bounds(look.cells[index] ?? [0, row, column], look.grid);
      Object.assign(cursor.style, {top: `${100 * top / h}%`, left: `${100 * left / w}%`,
        height: `${100 * (bottom - top) / h}%`, width: `${100 * (right - left) / w}%`});
      cursor.hidden = view === 'sized';
      tell(told(look, ...place, count));
    }
    function rest() {  // what a dragged budget says is said of the places it keeps, and of no other view
      const follows = count !== null && view === 'kept';
      tell(follows || count === null ? quiet : readout.dataset.hint, follows);
    }
    function leave() {
      cursor.hidden = true;
      rest();
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
    // The whole stage: a place is told under a thing that can be asked about, too.
    stage.addEventListener('pointermove', (event) => event.pointerType === 'mouse' && at(event));
    stage.addEventListener('pointerdown', at);
    stage.addEventListener('pointerleave', (event) => event.pointerType === 'mouse' && leave());
    stage.addEventListener('pointercancel', leave);  // a finger that scrolls the page
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
      if (count !== null) rest();
      if (place) cursor.hidden = view === 'sized';
    }));
    film.addEventListener('click', () => {
      if (skip) return skip();
      find('input[value=kept]').checked = true;
      paint();
      play(performance.now());
    });
    box.spend = spend;
    // A view that this look does not have must not be taken over by the one that stands in its place.
    const first = box.dataset.opens || view;
    const wanted = first && (box.querySelector(`input[value="${first}"]`) || find('input[value=kept]'));
    if (wanted) wanted.checked = true;
    slider.value = wipe;
    slide();
    const shown = find('.arr-base'), known = pictures.get(shown.src);
    const ready = (image) => {
      pictures.clear();
      pictures.set(shown.src, image);
      // Views are drawn at one size; long pictures came larger and stay so.
      const long = box.classList.contains('arr-long-picture');
      const scale = long ? 1 : SIDE / Math.max(image.naturalWidth, image.naturalHeight);
      base = arrPaint.draw(image, Math.max(2, Math.round(scale * image.naturalWidth)),
        Math.max(2, Math.round(scale * image.naturalHeight)));
      paint();
      const share = isMain && document.querySelector(BUDGET);
      // What was asked with this very budget, or with a tier in its place, shows what it was given.
      const stamp = isMain && document.querySelector('#arr-look .arr-of')?.dataset.settings;
      const [percent, tier] = stamp ? JSON.parse(stamp) : [null, BY_SHARE];
      if (share && tier === BY_SHARE && percent !== Number(share.value)) spend(Number(share.value));
      const now = performance.now(), moves = !matchMedia('(prefers-reduced-motion: reduce)').matches;
      begun = begun ?? (moves && count === null ? now : -Infinity);
      if (now - begun < FILM_MS) play(begun);
    };
    if (known) ready(known);
    else {
      const image = new Image();
      image.onload = () => box.isConnected && ready(image);
      image.src = shown.src;
    }
  }

  // An update may replace nodes or only change their attributes, which also takes data-ready away:
  // the viewer is then put in anew, without the listeners of its last decision.
  // What had the focus has it again in the new one, if it is there: a keyboard goes on from it.
  const SIGNS = ['data-card', 'value', 'class'];
  let last = null;
  document.addEventListener('focusin', ({target}) => { last = root.contains(target) ? target : null; });
  const counterpart = (box) => {
    const sign = SIGNS.find((name) => last.getAttribute(name));
    return sign && box.querySelector(`${last.localName}[${sign}="${CSS.escape(last.getAttribute(sign))}"]`);
  };
  const serve = () => {
    root.querySelectorAll('.arr-viewer:not([data-ready])').forEach((box) => {
      const fresh = box.cloneNode(true);
      box.replaceWith(fresh);
      mount(fresh);
      const lost = last && !last.isConnected && [null, document.body].includes(document.activeElement);
      if (lost) counterpart(fresh)?.focus({preventScroll: true});
    });
  };
  if (isMain && trigger) {
    root.addEventListener('click', (event) => {
      const thing = event.target.closest('[data-card]');
      if (thing) trigger('select', {card: Number(thing.dataset.card), run: window.arrState?.later()});
    });
    window.arrSpend = (percent) => {  // dragged, typed, or set by a button
      if (window.arrNow && window.arrNow[TIER] !== BY_SHARE) return;  // a tier decides, not the budget
      if (percent >= 5 && percent <= 100) root.querySelectorAll('.arr-viewer').forEach((box) => box.spend?.(percent));
    };
    document.addEventListener('input', (event) => {
      if (event.target.matches?.(BUDGET)) window.arrSpend(Number(event.target.value));
    });
  }
  new MutationObserver(serve).observe(root, {
    childList: true, subtree: true, attributes: true,
    attributeFilter: ['data-ready', 'data-look'],
  });
  serve();
}
