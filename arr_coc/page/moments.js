/* Moments: shows the moment of a clip, or the picture, that the slider stands at. The slider takes the keys and
   speaks; the strip above it takes pointers and touch. */
function arrMoments(root) {
  const VIEWS = {map: 'Kept places', heat: 'Relevance', bent: 'Sized by tokens'};
  const MIN_MS = 120;  // between two moments of a clip that is played
  let playing = 0;
  let files = 0, asked = 0;  // how often other files were given, and how often when it was asked
  const find = (name) => root.querySelector(name);
  const columns = () => [...root.querySelectorAll('.arr-moment')];
  const slider = () => find('.arr-moment-at input');

  function show(number) {
    const all = columns(), at = all[number - 1];
    if (!at) return;
    slider().value = number;
    slider().setAttribute('aria-valuetext', at.dataset.said);
    all.forEach((column) => column.classList.toggle('arr-moment-now', column === at));
    for (const image of root.querySelectorAll('.arr-moments-both img')) {
      image.src = at.dataset[image.dataset.is];
      image.alt = `${VIEWS[image.dataset.is]}, ${at.dataset.said}`;
    }
    const said = find('.arr-moment-said');  // seen while it plays, read aloud where it stands still
    said.setAttribute('aria-live', playing ? 'off' : 'polite');
    said.textContent = at.dataset.said;
  }
  const plain = (text) => text.trim().replace(/\s+/g, ' ');
  function stop() {
    clearTimeout(playing);
    playing = 0;
    const button = find('[data-play]');
    if (button) button.textContent = 'Play';
  }
  function step(number) {
    const all = columns();
    if (number > all.length) {
      stop();
      return show(all.length);
    }
    show(number);
    const seconds = (n) => parseFloat(all[Math.min(n, all.length) - 1].dataset.said);
    playing = setTimeout(step, Math.max(MIN_MS, 1000 * (seconds(number + 1) - seconds(number))), number + 1);
  }
  function point(event) {
    const strip = event.target.closest('.arr-moments');
    if (!strip || (event.type === 'pointermove' && !event.buttons)) return;
    stop();
    const number = columns().findIndex((column) => event.clientX < column.getBoundingClientRect().right);
    show(number < 0 ? columns().length : number + 1);
  }
  root.addEventListener('pointerdown', point);
  root.addEventListener('pointermove', point);
  root.addEventListener('input', (event) => {
    if (event.target !== slider()) return;
    stop();
    show(Number(event.target.value));
  });
  root.addEventListener('click', (event) => {
    if (!event.target.closest('[data-play]')) return;
    if (playing) {
      stop();
      return show(Number(slider().value));
    }
    event.target.textContent = 'Stop';
    playing = 1;
    step(1);
  });
  const serve = () => {
    const shown = find('.arr-several:not([data-ready])');
    if (!shown) return;
    shown.dataset.ready = '1';
    stop();
    // The moment that got most: an update leaves a moved slider where it is.
    if (slider()) show(Number(slider().getAttribute('value')));
    if (find('[data-play]')) watchable(shown);
    shown.dataset.files = asked;
    compare();
  };
  function watchable(shown) {  // the clip itself, as it lies in the place for files; the strip follows it
    const file = [...document.querySelectorAll('#arr-several-files a[href]')].map(({href}) => href)
      .find((href) => /\.(mp4|webm)$/i.test(new URL(href).pathname));
    if (!file || shown.querySelector('video')) return;
    const figure = document.createElement('figure'), clip = document.createElement('video');
    Object.assign(clip, {src: file, controls: true, muted: true, playsInline: true, preload: 'metadata'});
    clip.setAttribute('aria-label', 'The clip');
    clip.addEventListener('error', () => figure.remove());  // a browser may not know how it is coded
    clip.addEventListener('timeupdate', () => {
      if (clip.paused && !clip.seeking) return;
      stop();
      const times = columns().map((column) => parseFloat(column.dataset.said));
      show(1 + times.reduce((best, time, i) => Math.abs(time - clip.currentTime)
        < Math.abs(times[best] - clip.currentTime) ? i : best, 0));
    });
    figure.append(clip, Object.assign(document.createElement('figcaption'), {textContent: 'The clip'}));
    find('.arr-moments-both').prepend(figure);
  }
  document.addEventListener('input', (event) => {
    if (event.target.closest('#arr-several-question, #arr-budget')) compare();
  });
  document.addEventListener('click', (event) => {  // a card brings its own file
    if (event.target.closest('#arr-several-ask, #arr-clips button')) asked = files;
  }, true);
  new MutationObserver(serve).observe(root, {childList: true, subtree: true});
  serve();
  function compare() {  // does another question, file or budget stand there by now?
    const shown = find('.arr-several[data-ready]');
    if (!shown) return;
    const typed = document.querySelector('#arr-several-question textarea')?.value ?? '';
    const percent = document.querySelector('#arr-budget input[type=range]')?.value;
    const same = plain(typed) === plain(shown.dataset.question) && Number(shown.dataset.files) === files
      && (percent === undefined || Number(percent) === Number(shown.dataset.percent));
    const said = find('.arr-several-old'), words = same ? '' : said.dataset.old;
    if (said.textContent !== words) said.textContent = words;
    shown.classList.toggle('arr-several-stale', !same);
  }
  function another() {  // other files were given
    files += 1;
    compare();
  }
  return {another, compare};
}
