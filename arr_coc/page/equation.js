/* Equation: the three ways of knowing as pictures, weighed and multiplied, and what comes of them. While a gauge is
   dragged everything is reckoned and drawn anew here, by `balance.js` and `paint.js`, in the browser alone.
   arrEquation(root) serves every .arr-equation that is ever put into root. */
function arrEquation(root) {
  const SIDE = 320, DECADES = 3, CLOSE = 0.005;  // pixels of a picture; powers of ten from dark to bright; of a tension
  const MAPS = ['participatory', 'propositional', 'perspectival'];
  const standing = new Map();  // each equation on the page, and how it is drawn
  let image = null;
  const number = (value) => value.toFixed(2);
  const count = (n, word) => `${n} ${word}${n === 1 ? '' : 's'}`;
  const {rows} = arrBalance;

  // Factors differ by powers of ten: brightness follows their logarithm, so that multiplying adds up to the eye.
  const shade = (value) => Math.min(1, Math.max(0, 1 + Math.log10(Math.max(value, 1e-12)) / DECADES));

  function weighed(weights, sum) {  // what is said under each map, and why
    const {participatory, propositional, perspectival} = weights, [floor, , pointed, varied] = sum.scalars.map(number);
    return {
      participatory: [`to the power ${number(participatory)}`, `(1 − compress) × ${pointed}`],
      propositional: [`to the power ${number(propositional)}`, `compress × ${varied}`],
      perspectival: [`${number(perspectival)}, quiet places ${number(1 - perspectival)}`,
        `exploit, and what it leaves to its opposite; no place has less than ${floor}`],
    };
  }

  function told(sum, tensions, kept) {  // which tensions the answer is from, where those shown are others
    const moved = tensions.some((value, i) => Math.abs(value - sum.answered[i]) > CLOSE);
    const own = sum.answered.map(number).join(', ');
    if (!moved) return `The answer is from these tensions: ${own}.`;
    const before = new Set(sum.kept.map(String)), word = sum.allocator === 'quadtree' ? 'cells' : 'places';
    const others = kept && kept.filter((cell) => !before.has(String(cell))).length;
    const changes = !kept ? '' : `${others} of ${kept.length} ${word} would be others. `;
    return `${changes}The answer is still from ${own}, until you press Compare with these.`;
  }

  function mount(box) {
    box.dataset.ready = '1';
    const sum = JSON.parse(box.dataset.sum), [h, w] = sum.grid, said = box.parentElement.querySelector('.arr-from');
    const part = (key) => box.querySelector(`[data-part=${key}]`);
    let base = null, ground = null, shown = sum.tensions;

    function label(key, words, why = '') {
      const canvas = part(key), weight = canvas.closest('figure').querySelector('.arr-weight');
      weight.textContent = words;
      weight.title = why;
      canvas.setAttribute('aria-label', `${canvas.dataset.name}: ${words}`);
    }
    function put(key, drawn) {
      const canvas = part(key);
      Object.assign(canvas, {width: drawn.width, height: drawn.height});
      if (drawn instanceof ImageData) canvas.getContext('2d').putImageData(drawn, 0, 0);
      else canvas.getContext('2d').drawImage(drawn, 0, 0);
    }
    function draw(tensions) {
      shown = tensions;
      const found = arrBalance.factors(sum, tensions), map = arrBalance.relevance(sum, tensions, found);
      const kept = tensions === sum.tensions ? sum.cells : arrBalance.cells(sum, tensions, map);
      const words = weighed(found.weights, sum);
      for (const key of MAPS) {
        arrPaint.map(part(key), rows(found[key].map(shade), sum.grid));
        label(key, sum[key] ? words[key][0] : `${words[key][0]}; nothing pointed: the mean of the others`, words[key][1]);
      }
      const spent = arrBalance.tokens(sum, tensions), {evenly} = spent;
      const glance = spent.glance ? `, ${spent.glance} to a blurry view of the whole` : '';
      label('relevance', `best at ${place(map)}`);
      const given = kept && (sum.allocator === 'quadtree' ? `${count(kept.length, 'token')} in coarse and fine cells`
        : `${count(kept.length - evenly, 'token')} to the best, ${evenly} evenly`);
      label('tokens', kept ? `${given}${glance}` : 'follow when you let go');
      part('tokens').closest('figure').classList.toggle('arr-waits', !kept);
      if (base) picture(map, kept);
      const words2 = told(sum, tensions, kept);
      if (said.textContent !== words2) said.textContent = words2;
    }
    function place(map) {
      const best = map.indexOf(Math.max(...map));
      return `row ${Math.floor(best / w) + 1}, column ${best % w + 1}`;
    }
    function picture(map, kept) {  // what comes of the product, on the picture itself
      const level = arrBalance.brightness(map, kept || [], sum.grid);
      put('relevance', arrPaint.heat(base, {brightness: rows(level, sum.grid)}));
      if (!kept) return;
      const dark = arrPaint.isDark(box), order = arrBalance.ranked(map, kept, sum.grid);
      ground = ground || arrPaint.soft(base, dark);
      put('tokens', arrPaint.kept(base, {grid: sum.grid, cells: kept, order}, {}, dark, ground));
    }
    function show(found) {  // the picture that it is about
      base = ground = null;
      if (found) {
        const scale = SIDE / Math.max(found.naturalWidth, found.naturalHeight);
        const side = (length) => Math.max(2, Math.round(scale * length));
        base = arrPaint.draw(found, side(found.naturalWidth), side(found.naturalHeight));
      }
      draw(shown);
    }
    standing.set(box, {draw, show});
    show(image);
  }

  const serve = () => {
    for (const box of standing.keys()) if (!box.isConnected) standing.delete(box);
    root.querySelectorAll('.arr-equation:not([data-ready])').forEach(mount);
  };
  document.addEventListener('input', (event) => {
    if (!event.target.closest?.('.arr-gauge')) return;
    requestAnimationFrame(() => standing.forEach(({draw}) => draw(window.arrTensions())));
  });
  new MutationObserver(serve).observe(root, {
    childList: true, subtree: true, attributes: true, attributeFilter: ['data-sum', 'data-ready'],
  });
  arrPaint.pictured((found) => {
    image = found;
    standing.forEach(({show}) => show(found));
  });
  serve();
}
