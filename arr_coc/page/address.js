/* Address: the browser's address follows card, question and budget, so that it can be sent and Back works.
   It follows the link under Share, which the server keeps; `trigger` opens an address that was gone back to. */
function arrAddress(root, trigger) {
  const NAMES = ['arr_example', 'arr_q', 'arr_budget'], HUB = 'https://huggingface.co', QUICK_MS = 1500;
  if (!window.gradio_config?.root) return;  // within another site: the address is that site's
  const framed = window.parent !== window;
  const hub = framed && (location.ancestorOrigins?.[0] === HUB || document.referrer.startsWith(`${HUB}/`));
  const link = () => document.querySelector('#arr-links .arr-link')?.dataset.query || '';
  const part = (query, name) => new URLSearchParams(query).get(name);
  // While the page opens, or goes back, what changes was not asked for by the person.
  let shown = link(), settling = true, pushed = 0;

  function alone(query) {  // whether nothing but the budget is another
    return NAMES.slice(0, 2).every((name) => part(query, name) === part(shown, name));
  }
  function follow() {
    const query = link();
    if (!query || query === shown) return;
    const dragged = alone(query) && Date.now() - pushed < QUICK_MS;
    shown = query;
    // A picture of one's own is in no address: the last card's stays.
    if (settling || part(query, 'arr_example') === null) return;
    const search = new URLSearchParams(location.search);
    NAMES.forEach((name) => search.set(name, part(query, name)));
    const address = `${location.pathname}?${search}`;
    pushed = Date.now();
    // Within a frame Back is the outer page's own.
    if (framed || dragged) history.replaceState(null, '', address);
    else history.pushState(null, '', address);
    // The Hub's convention. Our own words alone: the frame's other ones, a signature among them, are not for sight.
    if (hub) {
      const ours = new URLSearchParams(NAMES.map((name) => [name, part(query, name)]));
      window.parent.postMessage({queryString: ours.toString()}, HUB);
    }
  }
  for (const name of ['pointerdown', 'keydown'])
    addEventListener(name, () => { settling = false; }, true);
  addEventListener('popstate', () => {
    settling = true;
    trigger('select', {query: location.search, run: window.arrState?.later()});
  });
  new MutationObserver(follow).observe(document.getElementById('arr-links'), {
    childList: true, subtree: true, attributes: true, attributeFilter: ['data-query'],
  });
}
