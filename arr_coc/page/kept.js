/* Kept: what was finished when the server went away. The framework loads the page anew once a server is back;
   answers and what they cost are handed on to the new page in sessionStorage, and stand there as what they are. */
function arrKept(root) {
  const PLACE = 'arr-kept';
  const place = root.querySelector('.arr-kept');
  let held = null;

  function store(text) {
    try {
      if (text) sessionStorage.setItem(PLACE, text);
      else sessionStorage.removeItem(PLACE);
      return true;
    } catch {
      return false;  // no storage, or no room in it
    }
  }
  function take() {
    try {
      return JSON.parse(sessionStorage.getItem(PLACE));
    } catch {
      return null;
    }
  }
  function bare(element) {  // a copy that speaks of no run any more
    const copy = element.cloneNode(true);
    copy.removeAttribute('aria-live');
    copy.querySelectorAll('[role=status]').forEach((part) => part.removeAttribute('role'));
    copy.querySelectorAll('.arr-answer:not([data-done])').forEach((answer) => {
      const said = Object.assign(document.createElement('p'), {className: 'arr-idle', textContent: 'Interrupted.'});
      answer.replaceChildren(answer.querySelector('h2'), said);
    });
    return copy.outerHTML;
  }
  function gathered() {  // null where nothing was finished that the new page would not show by itself
    const find = (name) => document.querySelector(name), answers = find('#arr-answers .arr-answers');
    if (!answers?.querySelector('[data-done]') || find('#arr-strip .arr-recorded')) return null;
    const strip = find('#arr-strip .arr-strip');
    return {
      question: find('#arr-answers .arr-of')?.dataset.question || '',
      picture: find('#arr-look .arr-base')?.src || '',
      html: bare(answers) + (strip ? bare(strip) : ''),
    };
  }

  function keep() {
    const now = gathered() || held;
    if (now && !store(JSON.stringify(now))) store(JSON.stringify({...now, picture: ''}));
  }
  function drop() {
    held = null;
    place.hidden = true;
    place.querySelector('.arr-kept-body').replaceChildren();
  }
  function show() {
    held = take();
    store('');
    if (!held) return;
    const picture = place.querySelector('img');
    picture.hidden = !held.picture;
    if (held.picture) picture.src = held.picture;
    place.querySelector('.arr-kept-question').textContent = held.question;
    place.querySelector('.arr-kept-body').innerHTML = held.html;
    place.hidden = false;
  }

  place.querySelector('button').addEventListener('click', drop);
  return {keep, drop, show};
}
