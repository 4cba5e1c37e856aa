/* You: "You first". Takes clicks, taps and keys on the blurred picture, and paints what both sides spent.
   arrYou(root, trigger) serves whatever round is put into root; `trigger` asks the server. */
function arrYou(root, trigger) {
  const WIDTH = 480;  // pixels of a painted picture
  let round = null;  // of the shown picture: its grid, its budget, places in the order of spending, the cursor

  const find = (name) => root.querySelector(name);
  const plural = (n) => `${n} token${n === 1 ? '' : 's'}`;
  const named = ([row, column]) => `row ${row + 1}, column ${column + 1}`;
  const at = (place) => round.places.findIndex(([row, column]) => row === place[0] && column === place[1]);

  function box(place, kind, words) {
    const [h, w] = round.grid, made = document.createElement('i');
    made.className = kind;
    made.textContent = words;
    Object.assign(made.style, {left: `${100 * place[1] / w}%`, top: `${100 * place[0] / h}%`,
      width: `${100 / w}%`, height: `${100 / h}%`});
    return made;
  }
  function draw(words = '') {
    const left = round.budget - round.places.length, marks = round.places.map((place, n) => box(place, 'arr-you-mark', n + 1));
    if (round.cursor) marks.push(box(round.cursor, 'arr-you-cursor', ''));
    find('.arr-you-marks').replaceChildren(...marks);
    find('.arr-you-left').textContent = `${words}${plural(left)} left`;
    find('[data-you=spend]').disabled = round.waits || !round.places.length;
    for (const name of ['clear', 'new', 'above']) find(`[data-you=${name}]`).disabled = round.waits;
  }
  function spend(place) {
    if (round.waits) return;
    const known = at(place);
    if (known >= 0) round.places.splice(known, 1);
    else if (round.places.length < round.budget) round.places.push(place);
    else return draw('All are spent: click one to take it back. ');
    draw(known >= 0 ? `Taken back at ${named(place)}. ` : `Spent at ${named(place)}. `);
  }
  function move(step) {
    if (round.waits) return;
    const [h, w] = round.grid, [row, column] = round.cursor || [h >> 1, w >> 1];
    round.cursor = [Math.min(h - 1, Math.max(0, row + step[0])), Math.min(w - 1, Math.max(0, column + step[1]))];
    const known = at(round.cursor);
    draw(`${named(round.cursor)}${known < 0 ? '' : `, your ${known + 1}`}. `.replace('row', 'Row'));
  }

  let called = false;  // whether another round was asked for
  function begin(shown) {
    const {grid, budget} = JSON.parse(shown.dataset.youRound);
    round = {grid, budget, places: [], cursor: null, waits: false};
    draw();
    const {top} = shown.getBoundingClientRect();
    if (called && (top < 0 || top > innerHeight)) shown.scrollIntoView({block: 'start'});
    called = false;
  }
  root.addEventListener('click', (event) => {
    const cells = event.target.closest('.arr-you-cells');
    if (!cells || !round) return;
    const area = cells.getBoundingClientRect(), [h, w] = round.grid;
    const row = Math.floor((event.clientY - area.top) / area.height * h);
    const column = Math.floor((event.clientX - area.left) / area.width * w);
    round.cursor = null;
    spend([Math.min(h - 1, Math.max(0, row)), Math.min(w - 1, Math.max(0, column))]);
  });
  root.addEventListener('keydown', (event) => {
    if (!event.target.closest('.arr-you-cells') || !round) return;
    const step = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
    if (!step && event.key !== 'Enter' && event.key !== ' ') return;
    event.preventDefault();
    if (step) return move(step);
    round.cursor = round.cursor || [round.grid[0] >> 1, round.grid[1] >> 1];
    spend(round.cursor);
  });
  root.addEventListener('focusout', () => {
    if (!round || !round.cursor || round.waits) return;
    round.cursor = null;
    draw();
  });

  const loaded = (url) => new Promise((done) => {
    const image = new Image();
    image.onload = () => done(image);
    image.src = url;
  });
  async function end(both) {
    round = null;
    const images = await Promise.all([loaded(both.dataset.glance), loaded(both.dataset.sharp)]);
    both.querySelectorAll('canvas').forEach((canvas) => paint(canvas, ...images));
    both.dataset.painted = '1';
    const at = document.activeElement;  // who has gone elsewhere meanwhile is not called back
    if (at === document.body || root.contains(at)) find('.arr-you-score').focus({preventScroll: true});
  }
  function paint(canvas, glance, sharp) {  // the glance, the spent places sharp, each with its number
    const {grid: [h, w], places, needed} = JSON.parse(canvas.dataset.spent), paper = canvas.getContext('2d');
    const height = Math.round(WIDTH * sharp.naturalHeight / sharp.naturalWidth), from = [sharp.naturalWidth / w, sharp.naturalHeight / h];
    Object.assign(canvas, {width: WIDTH, height});
    paper.imageSmoothingQuality = 'high';
    paper.drawImage(glance, 0, 0, WIDTH, height);
    paper.fillStyle = 'rgb(250 250 248 / 38%)';
    paper.fillRect(0, 0, WIDTH, height);
    const size = [WIDTH / w, height / h];
    places.forEach(([row, column], n) => {
      const x = column * size[0], y = row * size[1];
      paper.drawImage(sharp, column * from[0], row * from[1], ...from, x, y, ...size);
      paper.lineWidth = needed !== null && n < needed ? 3 : 1.5;
      paper.strokeStyle = needed !== null && n < needed ? '#c2410c' : '#475069';
      paper.strokeRect(x + 1, y + 1, size[0] - 2, size[1] - 2);
    });
    const letters = Math.max(9, Math.min(13, size[0] * 0.4));
    paper.font = `600 ${letters}px system-ui, sans-serif`;
    places.forEach(([row, column], n) => {  // over all tiles, in a corner: the tile itself is to be seen
      const words = String(n + 1), width = paper.measureText(words).width + 4;
      paper.fillStyle = needed !== null && n < needed ? '#9a3412' : '#475069';
      paper.fillRect(column * size[0], row * size[1], width, letters + 3);
      paper.fillStyle = '#fff';
      paper.fillText(words, column * size[0] + 2, row * size[1] + letters);
    });
  }

  root.addEventListener('click', (event) => {
    const wanted = event.target.closest('[data-you]')?.dataset.you;
    if (wanted === 'copy') arrCopy(find('.arr-you-share code'), find('.arr-said'));
    else if (wanted === 'clear') {
      round.places = [];
      draw();
    } else if (wanted === 'spend') {
      round.waits = true;
      draw('The model looks… ');
      trigger('submit', {places: round.places});
    } else if (wanted) {
      if (round) round.waits = true;
      called = true;
      root.querySelectorAll('[data-you]').forEach((button) => { button.disabled = true; });
      trigger('select', {you: wanted});
    }
  });

  // The framework replaces what is inside: whatever is new is served once.
  const serve = () => {
    const shown = find('.arr-you:not([data-ready])');
    if (!shown) return;
    shown.dataset.ready = '1';
    const both = find('.arr-you-both'), text = find('.arr-you-share code');
    if (text) text.textContent = `${text.dataset.boast} ${arrHome(root)}`;
    if (both) end(both);
    else begin(shown);
  };
  new MutationObserver(serve).observe(root, {
    childList: true, subtree: true, attributes: true, attributeFilter: ['data-ready'],
  });
  serve();
  function again() {  // after a refusal: what was spent stands, and may be tried once more
    if (round) {
      round.waits = false;
      draw();
    }
    root.querySelectorAll('[data-you]').forEach((button) => {
      if (button.dataset.you !== 'spend') button.disabled = false;
    });
  }
  return {again};
}
