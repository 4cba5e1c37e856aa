/* Dials: the tensions, to drag. `equation.js` draws what follows while one is dragged; the server is told when it is
   let go. arrGauges(root) serves every gauge that is ever put into root. */

/* A gauge has a hundred steps: one that was not moved keeps the very value that was decided. */
window.arrTensions = () =>
  [...document.querySelectorAll('.arr-gauge input')].map((gauge) =>
    (gauge.value === gauge.getAttribute('value') ? Number(gauge.dataset.exact) : 1 - Number(gauge.value) / 100));

function arrGauges(root, trigger) {
  root.addEventListener('change', (event) => {
    if (event.target.closest('.arr-gauge')) trigger('release', {tensions: window.arrTensions()});
  });
  root.addEventListener('input', (event) => {
    const gauge = event.target.closest('.arr-gauge');
    if (!gauge) return;
    const at = Number(event.target.value), words = JSON.parse(gauge.dataset.words)[at > 60 ? 0 : at >= 40 ? 1 : 2];
    const value = (1 - at / 100).toFixed(2);
    gauge.querySelector('output').textContent = value;
    gauge.querySelector('.arr-said-gauge').textContent = words;
    event.target.setAttribute('aria-valuetext', `${event.target.dataset.tension} ${value}. ${words}`);
  });
  const settle = () => root.querySelectorAll('.arr-gauge input').forEach((gauge) => {
    gauge.value = gauge.getAttribute('value');
  });
  new MutationObserver(settle).observe(root, {subtree: true, attributes: true, attributeFilter: ['value']});
}
