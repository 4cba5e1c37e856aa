/* The race: plays finished looks side by side at their true relative speed, from data in attributes.
   arrRace(root) serves every .arr-race that is ever put into root. */
function arrRace(root) {
  const LONGEST = 5;  // seconds that the slowest look takes to play
  const still = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

  function show(row, look, now) {  // one look as it stood `now` seconds after its start
    const end = look.first + look.write, share = Math.min(1, now / end);
    row.querySelector('.arr-lane').style.clipPath = `inset(0 ${100 * (1 - share)}% 0 0)`;
    const words = look.text.split(' ');
    const written = now < look.first ? 0
      : look.write > 0 ? Math.ceil(words.length * Math.min(1, (now - look.first) / look.write + 1e-9)) || 1
        : words.length;
    let at = 0;
    const stage = look.stages.find(([, spent]) => now < (at += spent));
    const said = row.querySelector('.arr-race-text');
    said.textContent = written ? words.slice(0, written).join(' ') : stage ? `${stage[0]}…` : '';
    said.classList.toggle('arr-waits', !written);
  }

  function play(box, button) {
    const data = box.dataset.race, looks = JSON.parse(data), rows = [...box.querySelectorAll('.arr-race-row')];
    const end = Math.max(...looks.map((look) => look.first + look.write));
    const slower = LONGEST / end, said = box.querySelector('.arr-race-speed');
    said.textContent = still() ? 'Shown finished: your system asks for no motion.'
      : slower >= 1 ? `Played ${slower >= 10 ? Math.round(slower) : slower.toFixed(1)} times slower than it was, all at the same scale.`
        : `Played ${(1 / slower).toFixed(1)} times as quick as it was, all at the same scale.`;
    if (still()) {
      rows.forEach((row, i) => show(row, looks[i], end));
      return;
    }
    const start = performance.now(), run = (box.run = {});
    button.textContent = 'Replay again';
    (function frame() {
      if (box.run !== run || box.dataset.race !== data || !box.isConnected) return;
      const now = (performance.now() - start) / 1000 / slower;
      rows.forEach((row, i) => show(row, looks[i], now));
      if (now < end) requestAnimationFrame(frame);
    })();
  }

  root.addEventListener('click', (event) => {
    const button = event.target.closest('.arr-race-play');
    if (button) play(button.closest('.arr-race'), button);
  });
}
