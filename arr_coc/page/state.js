/* State: what the page shows, what its results belong to, and the run that is open.
   Results carry a stamp (.arr-of); what does not match the page fades and says why (data-stale).
   While a run is open the server is asked whether it still lives. */
function arrState(root, trigger) {
  const PIECES = ['arr-look', 'arr-answers', 'arr-strip', 'arr-maps', 'arr-gauges', 'arr-cost', 'arr-side'];
  const EVERY_MS = 1000, PATIENCE_MS = 1800, FRAMES = 120, MARGIN = 160;
  const LOST = 'The server stopped answering; what was finished stays. Once it is back, ask again.';
  const BACK = 'The server is back. Press Compare to ask again.';
  const alarm = root.querySelector('.arr-alarm');
  let now = null, asked = null, run = 0, open = false, lost = false, revived = false, alive = true;

  const plain = (text) => (text || '').trim().replace(/\s+/g, ' ');
  const shown = ([picture, question, ...settings]) =>
    ({picture, question: plain(question), settings: JSON.stringify(settings)});
  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
  const still = () => matchMedia('(prefers-reduced-motion: reduce)').matches;
  const next = () => { run = Math.max(run + 1, Date.now()); };
  const say = (words) => { if (alarm.textContent !== words) alarm.textContent = words; };

  function why({picture, question, settings}) {  // a stamp that does not match, in words
    if (picture !== now.picture) return 'for the previous picture';
    if (question !== undefined && plain(question) !== now.question) return 'for the previous question';
    return settings === undefined || JSON.stringify(JSON.parse(settings)) === now.settings ? '' : 'with other settings';
  }
  function refresh() {
    if (!now) return;
    for (const id of PIECES) {
      const piece = document.getElementById(id), stamp = piece && piece.querySelector('.arr-of');
      const words = stamp ? why(stamp.dataset) : '';
      if (piece && (piece.dataset.stale || '') !== words) {
        if (words) piece.dataset.stale = words;
        else delete piece.dataset.stale;
      }
    }
    const answer = document.querySelector('#arr-answers .arr-of');
    if (open && answer && answer.dataset.run === String(run) && 'done' in answer.dataset) end();
  }

  // Compare is dead while the very same is being asked; whatever else is asked overtakes it.
  const wanted = () => !open || revived || !same(now, asked);
  const settle = () => { if (wanted() !== alive) trigger('select', {}); };
  function button() {
    alive = wanted();
    return {__type__: 'update', interactive: alive};
  }
  function press() {
    if (!wanted()) return;
    let left = FRAMES;
    (function attempt() {
      const go = document.querySelector('#arr-go');
      if (!go.disabled) go.click();
      else if (left--) requestAnimationFrame(attempt);
    })();
  }

  function reach() {  // the answers come where the person is
    const place = document.getElementById('arr-answers'), box = place.getBoundingClientRect();
    if (box.top >= 0 && Math.min(box.bottom, box.top + MARGIN) <= innerHeight) return;
    place.scrollIntoView({block: 'start', behavior: still() ? 'auto' : 'smooth'});
  }

  function begin(values) {
    asked = now = shown(values);
    next();
    open = true;
    lost = revived = alive = false;
    say('');
    refresh();
    reach();
    watch(run);
  }
  function end() {  // whether a run was open
    const was = open;
    open = revived = false;
    alive = true;  // whoever ends a run frees the button
    if (was && !lost) say('');
    return was;
  }
  function over() {
    end();
    next();
    return {__type__: 'update', interactive: true};
  }

  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  async function answers(url) {
    const stop = new AbortController(), late = setTimeout(() => stop.abort(), PATIENCE_MS);
    try {
      return (await fetch(url, {cache: 'no-store', signal: stop.signal})).ok;
    } catch {
      return false;
    } finally {
      clearTimeout(late);
    }
  }
  async function watch(mine) {
    const config = window.gradio_config;
    if (!config?.root) return;  // inside another site
    const url = `${config.root}${config.api_prefix || ''}/app_id`;
    while (await wait(EVERY_MS), mine === run && (open || lost)) {
      const lives = await answers(url) || (!lost && await answers(url));
      if (mine !== run || !(open || lost) || lives !== lost) continue;
      lost = !lives;
      revived = lives && open;
      say(lost ? LOST : open ? BACK : '');
      if (lost) remember();
      settle();
    }
  }

  // The framework loads the page anew once a server is back: what was asked is asked of the new page.
  function remember() {
    const link = document.querySelector('.arr-link')?.dataset.query;
    const query = new URLSearchParams(location.search);
    new URLSearchParams(link || '').forEach((value, name) => query.set(name, value));
    if (now.question) query.set('arr_q', now.question);
    history.replaceState(null, '', `${location.pathname}?${query}`);
    try { sessionStorage.setItem('arr-back', '1'); } catch { /* no storage, no sentence */ }
  }
  try {
    if (sessionStorage.getItem('arr-back')) say(BACK);
    sessionStorage.removeItem('arr-back');
  } catch { /* no storage, no sentence */ }

  new MutationObserver(refresh).observe(document.querySelector('#arr-page'), {
    childList: true, subtree: true, attributes: true,
    attributeFilter: ['data-run', 'data-picture', 'data-question', 'data-settings', 'data-done'],
  });
  function look(values) {
    now = shown(values);
    refresh();
    settle();
  }
  if (window.arrNow) look(window.arrNow);
  return {begin, look, over, end, press, button, run: () => String(run)};
}
