/* State: what the page shows, what its results belong to, and the run that is open.
   Results carry a stamp (.arr-of); what does not match the page fades and says why (data-stale), to the eye and
   to a screen reader. While a run is open the server is asked whether it still lives. */
function arrState(root, trigger) {
  // A run that was ended on purpose the framework calls a failure too, once its step is over, once or twice.
  const ENDS_MS = 60000, TWICE_MS = 1000;
  function endings() {
    let ended = [], told = 0;  // when runs were of which no failure was heard yet; when one was
    function was() {  // whether a failure is that of such a run
      const at = Date.now();
      ended = ended.filter((one) => at - one < ENDS_MS);
      if (ended.shift()) told = at;
      return at - told < TWICE_MS;
    }
    return {add: () => { ended.push(Date.now()); }, was};
  }
  const PIECES = {
    'arr-hero': 'Sentence', 'arr-look': 'Map', 'arr-answers': 'Answers', 'arr-strip': 'What they cost', 'arr-saw': 'What each look saw', 'arr-maps': 'Reasons',
    'arr-gauges': 'Tensions', 'arr-cost': 'Chart of times', 'arr-side': 'Maps of other questions',
  };
  // A server that is silent for two questions in a row is gone: 1 s + 2 x 1.5 s is within 5 s. One that computes
  // for twelve clients on two cores was found to answer within 0.1 s; one answer that is late or lost is no alarm.
  const EVERY_MS = 1000, PATIENCE_MS = 1500, FRAMES = 120, MARGIN = 160, COMES_MS = 5000, UPLOAD_MS = 120000, SETTLES_MS = [1000, 3000, 9000];
  const LOST = 'The server stopped answering; what was finished stays. Once it is back, ask again.';
  const BACK = 'The server is back. Press Compare to ask again.';
  const GONE = 'The server is back. The picture you asked about is not there any more: give it, or choose another.';
  const AGAIN = 'The server answers again. What was asked may still come; if it does not, press Compare.';
  const alarm = root.querySelector('.arr-alarm'), heard = root.querySelector('.arr-heard'), kept = arrKept(root);
  let now = null, asked = null, run = 0, begun = 0, open = false, lost = false, revived = false, alive = true;
  let held = false;  // whether Compare had the focus when the run began
  const ends = endings(), several = endings();  // of the comparison; of the clips' section
  let parted = false;  // the server was lost, and nothing was asked since
  // Another picture or question was picked and is on its way: until when it is waited for, whether it is a file, and
  // whether Compare was pressed meanwhile; how many are. What could be asked of the picture before.
  let until = 0, isFile = false, pressed = false, coming = 0, offered = [];

  const plain = (text) => (text || '').trim().replace(/\s+/g, ' ');
  const shown = ([picture, question, ...settings]) =>
    ({picture, question: plain(question), settings: JSON.stringify(settings)});
  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
  const still = () => matchMedia('(prefers-reduced-motion: reduce)').matches;
  const later = () => Math.max(run + 1, Date.now());
  const put = (place, words) => { if (place.textContent !== words) place.textContent = words; };
  function say(words) {
    put(alarm, words);
    alarm.classList.toggle('arr-lost', lost);  // page.css hides the framework's own words then
  }

  // Settings but for the budget, which comes first.
  const others = (settings) => JSON.stringify(JSON.parse(settings).slice(1));
  function why({picture, question, settings}, follows) {  // a stamp that does not match, in words
    if (picture !== now.picture) return 'for the previous picture';
    if (question !== undefined && plain(question) !== now.question) return 'for the previous question';
    if (settings === undefined || JSON.stringify(JSON.parse(settings)) === now.settings) return '';
    if (others(settings) !== others(now.settings)) return 'with other settings';
    return follows ? '' : 'with another budget';
  }
  function mark(piece, name, words) {
    const marks = {'data-stale': words, role: 'group', 'aria-label': `${name} ${words}`};
    for (const [key, value] of Object.entries(marks)) {
      if (words) piece.setAttribute(key, value);
      else piece.removeAttribute(key);
    }
  }
  function refresh() {
    if (!now) return;
    const old = {};
    for (const [id, name] of Object.entries(PIECES)) {
      const piece = document.getElementById(id), stamp = piece && piece.querySelector('.arr-of');
      // The map of what is kept follows the budget; its other views are those of the decision.
      const view = piece?.querySelector('.arr-viewer')?.dataset.view;
      const words = stamp ? why(stamp.dataset, id === 'arr-look' && ['kept', 'plain'].includes(view)) : '';
      if (piece && (piece.dataset.stale || '') !== words) mark(piece, name, words);
      if (words) (old[words] = old[words] || []).push(name);
    }
    for (const chip of document.querySelectorAll('#arr-chips [aria-pressed]')) {
      const is = String(plain(chip.textContent) === now.question);
      if (chip.getAttribute('aria-pressed') !== is) chip.setAttribute('aria-pressed', is);
    }
    const told = Object.entries(old).map(([words, names]) => `Now ${words}: ${names.join(', ')}.`);
    put(heard, told.join(' '));
    const answer = document.querySelector('#arr-answers .arr-of');
    if (open && answer && answer.dataset.run === String(run) && 'done' in answer.dataset) {
      kept.drop();
      end();
    }
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

  // A press that comes before what was picked is meant for it: it waits, but not for ever.
  function comes(file = false) {
    until = Date.now() + (file ? UPLOAD_MS : COMES_MS);
    isFile = file;
    pressed = false;
    coming += 1;
    if (!file) return;
    const chips = document.querySelectorAll('#arr-chips button, #arr-pick [aria-pressed="true"]');
    offered = [...chips].map((chip) => plain(chip.textContent));
  }
  function came() {  // the last of what was picked has the page
    if (--coming <= 0) arrived();
  }
  function arrived() {
    const waited = pressed;
    until = coming = 0;
    pressed = false;
    document.querySelector('#arr-go').removeAttribute('aria-busy');
    if (waited) requestAnimationFrame(press);  // once what came is in the fields
  }
  document.addEventListener('click', (event) => {  // before the framework has heard of it
    if (event.target.closest?.('[data-card], #arr-draw, #arr-put')) return comes();
    const go = event.target.closest?.('#arr-go'), left = until - Date.now();
    if (!go || left <= 0) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (pressed) return;
    pressed = true;
    go.setAttribute('aria-busy', 'true');
    const waiting = until;
    setTimeout(() => waiting === until && arrived(), left);
  }, true);
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && event.target.closest?.('#arr-writing')) comes();
  }, true);
  for (const given of ['change', 'drop', 'paste']) {
    document.addEventListener(given, (event) => {
      const has = event.target.files || (event.dataTransfer || event.clipboardData)?.files;
      if (has?.length && event.target.closest?.('#arr-picture')) comes(true);
    }, true);
  }
  // Of the question that stands there once a picture of one's own is there.
  const unask = (key, question) => key.startsWith('own-') && offered.includes(plain(question)) ? '' : question;

  function reach() {  // the answers come where the person is
    const place = document.getElementById('arr-answers'), box = place.getBoundingClientRect();
    if (box.top >= 0 && Math.min(box.bottom, box.top + MARGIN) <= innerHeight) return;
    place.scrollIntoView({block: 'start', behavior: still() ? 'auto' : 'smooth'});
  }

  function refocus(left) {
    const go = document.querySelector('#arr-go');
    if (!go.disabled) go.focus({preventScroll: true});
    else if (left) requestAnimationFrame(() => refocus(left - 1));
  }
  function running(is) {  // Stop is there while something runs
    const has = document.activeElement;
    if (is) held = has?.id === 'arr-go';
    // Stop goes, and would take the focus along; Compare was dead, and has lost it.
    const leaves = !is && (has?.id === 'arr-stop' || (held && has === document.body));
    open = is;
    document.querySelector('#arr-page').classList.toggle('arr-running', is);
    if (leaves) refocus(FRAMES);
  }
  function begin(values) {
    asked = now = shown(values);
    run = begun = later();
    running(true);
    lost = revived = alive = parted = false;
    say('');
    refresh();
    reach();
    watch(run);
  }
  function end() {  // whether a run was open
    const was = open;
    running(false);
    revived = false;
    alive = true;  // whoever ends a run frees the button
    if (was && !lost) say('');
    return was;
  }
  // Whether the run that is open has failed, and not one before it that was ended on purpose.
  const failed = () => !ends.was() && end();
  // What an ended run still brings comes by another connection than its end, and may come after it.
  function tidy() {
    const answer = document.querySelector('#arr-answers .arr-of');
    if (!open && !lost && answer && answer.dataset.run !== String(run) && !('done' in answer.dataset)) {
      trigger('stop', {});
    }
  }
  function over() {
    if (end()) {
      ends.add();
      for (const ms of SETTLES_MS) setTimeout(tidy, ms);
    }
    run = later();
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
  const config = window.gradio_config, own = Boolean(config?.root);
  const url = own ? `${config.root}${config.api_prefix || ''}/app_id` : `${arrHome(root)}gradio_api/app_id`;
  // Inside another site the server may not be asked at all: silence says nothing then.
  const answerable = own ? Promise.resolve(true) : answers(url);
  async function watch(mine) {
    if (!await answerable) return;
    while (await wait(EVERY_MS), mine === run && (open || lost)) {
      const lives = await answers(url) || (!lost && await answers(url));
      if (mine !== run || !(open || lost) || lives !== lost) continue;
      if (lives) found();
      else lose();
    }
  }
  function found() {
    lost = false;
    revived = open;
    say(open ? AGAIN : BACK);
    settle();
  }
  function lose() {
    lost = parted = true;
    revived = false;
    say(LOST);
    remember();
    settle();
  }

  // The framework loads the page anew once a server is back: what was asked is asked of the new page.
  const isCards = () => now?.picture.startsWith('card-');
  function remember() {
    if (!own) return;  // the address is another site's
    const link = document.querySelector('.arr-link')?.dataset.query;
    const query = new URLSearchParams(location.search);
    new URLSearchParams(link || '').forEach((value, name) => query.set(name, value));
    if (isCards() && now.question) query.set('arr_q', now.question);
    else query.delete('arr_q');  // the picture it was asked about is not there after that
    history.replaceState(null, '', `${location.pathname}?${query}`);
  }
  try {
    if (sessionStorage.getItem('arr-back')) {
      say(sessionStorage.getItem('arr-back') === 'own' ? GONE : BACK);
      kept.show();
    }
    sessionStorage.removeItem('arr-back');
  } catch { /* no storage, no sentence */ }
  addEventListener('pagehide', () => {
    if (!parted) return;
    try { sessionStorage.setItem('arr-back', isCards() ? 'card' : 'own'); } catch { /* no storage, no sentence */ }
    kept.keep();
  });

  // While no run is open nobody asks the server: the framework notices first, whatever is pressed.
  const noticed = () => [...document.querySelectorAll('.toast-body')].some(
    (toast) => /connection .*lost/i.test(toast.textContent));
  function notice() {
    if (isFile && until && document.querySelector('.toast-body.error')) {  // the framework refused the file
      pressed = false;
      arrived();
    }
    if (lost || open || !noticed()) return;
    lose();
    watch(run);
  }
  new MutationObserver(notice).observe(document.body, {childList: true, subtree: true});
  new MutationObserver(refresh).observe(document.querySelector('#arr-page'), {
    childList: true, subtree: true, attributes: true,
    attributeFilter: ['data-run', 'data-picture', 'data-question', 'data-settings', 'data-done', 'data-view'],
  });
  function look(values) {
    now = shown(values);
    refresh();
    settle();
    // A sign or a picture of one's own has come: only now is it known that it was not refused.
    if (open && now.picture !== asked.picture) trigger('clear', {});
  }
  if (window.arrNow) look(window.arrNow);
  return {begin, look, over, failed, several, press, button, came, unask, run: () => String(run), begun: () => String(begun), later: () => String(later())};
}
