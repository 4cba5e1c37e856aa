"""Budgets: those that the cards were recorded at, to press instead of dragging, as escaped HTML.

page.css shows them where what stands on the page was recorded.
"""

from collections.abc import Iterable

from arr_coc.config import SHARE
from arr_coc.service.recordings import Recording

# The slider hears it as it hears a finger; the viewer and the server hear the slider.
SCRIPT = """
element.addEventListener('click', (event) => {
    const pressed = event.target.closest('[data-percent]');
    const slider = document.querySelector('#arr-budget input[type=range]');
    if (!pressed || !slider) return;
    slider.value = pressed.dataset.percent;
    slider.dispatchEvent(new Event('input', {bubbles: true}));
});
"""


def percents(recordings: Iterable[Recording]) -> list[int]:
    """What they were recorded at, in rising order."""
    shares = {other["share"] for one in recordings for other in one.get("budgets", [])}
    return sorted({round(100 * share) for share in shares | {SHARE}})


def section(recordings: Iterable[Recording]) -> str:
    """A button for each; nothing where there is only one."""
    known = percents(recordings)
    buttons = "".join(
        f'<button type="button" class="arr-percent" data-percent="{percent}" '
        f'aria-label="Budget {percent} %">{percent}</button>'
        for percent in known
    )
    return f'<p class="arr-budgets"><span>Recorded at</span>{buttons}<span>%</span></p>' * (
        len(known) > 1
    )
