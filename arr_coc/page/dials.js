/* Dials: the tensions, to drag. `equation.js` draws what follows while one is dragged; the server is told when it is
   let go. arrGauges(root) serves every gauge that is ever put into root. */

/* A gauge has a hundred steps: one that was not moved keeps the very value that was decided. */
window.arrTensions = () =>
  [...document.querySelectorAll('.arr-gauge input')].map((gauge) =>
    (gauge.value === gauge.getAttribute('value') ? Number(gauge.dataset.exact) : 1 - Number(gauge.value) / 100));

function arrGauges(root, trigger) {
  // What was set and is not answered yet: the gauges as they stood, and of which decision. Of presses in a row the
  // first is answered while later ones wait.
  let set = null;
  const gauges = () => [...root.querySelectorAll('.arr-gauge input')];
  const decision = () => ['run', 'picture'].map((name) => root.querySelector('.arr-of')?.dataset[name]).join();
  root.addEventListener('change', (event) => {
    if (!event.target.closest('.arr-gauge')) return;
    set = {values: gauges().map(({value}) => value), of: decision()};
    window.arrDialed = JSON.stringify(window.arrTensions());
    trigger('release', {});
  });
  document.addEventListener('click', (event) => { if (event.target.closest?.('#arr-reset')) set = null; }, true);
  root.addEventListener('input', (event) => {
    const gauge = event.target.closest('.arr-gauge');
    if (!gauge) return;
    const at = Number(event.target.value), words = JSON.parse(gauge.dataset.words)[at > 60 ? 0 : at >= 40 ? 1 : 2];
    const value = (1 - at / 100).toFixed(2);
    gauge.querySelector('output').textContent = value;
    gauge.querySelector('.arr-said-gauge').textContent = words;
    event.target.setAttribute('aria-valuetext', `${event.target.dataset.tension} ${value}. ${words}`);
  });
  const settle = () => {
    const all = gauges();
    const answered = all.every((gauge, i) => gauge.getAttribute('value') === set?.values[i]);
    if (answered || set?.of !== decision()) set = null;
    all.forEach((gauge, i) => {
      gauge.value = set ? set.values[i] : gauge.getAttribute('value');
      if (gauge.value !== gauge.getAttribute('value')) gauge.dispatchEvent(new Event('input', {bubbles: true}));
    });
  };
  new MutationObserver(settle).observe(root, {subtree: true, attributes: true, attributeFilter: ['value', 'data-run']});
}
