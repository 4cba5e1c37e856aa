"""Whether a map makes sense, asked and answered in a real browser."""

import json

import httpx
import pytest
from app_server import recorded_examples, start
from playwright.sync_api import expect
from test_browser import PHONE, ask, browser, finished, visit, watched

from arr_coc.service import labels

__all__ = ["browser"]


@pytest.mark.thorough
@pytest.mark.slow
def test_a_visitor_answers_by_keyboard_on_a_phone_and_changes_the_answer(browser, tmp_path):
    file = tmp_path / "people.jsonl"
    variables = {"ARR_COC_EXAMPLES": str(recorded_examples()), labels.LABELS: str(file)}
    server = start(variables)
    try:
        told = httpx.get(server.url + "gradio_api/info", timeout=60).json()
        assert "/makes_sense" in told["named_endpoints"]
        with watched(browser, viewport=PHONE) as tab:
            visit(tab, app=lambda: server)

            yes, no = tab.get_by_role("radio", name="Yes"), tab.get_by_role("radio", name="No")
            expect(tab.locator("#arr-sense")).to_contain_text("not the picture")
            yes.focus()
            tab.keyboard.press("Space")
            heard = tab.locator("#arr-said-sense [role=status]")
            expect(heard).to_have_text("Kept: yes.")
            no.click()
            expect(heard).to_have_text("Kept: no.")
            box = tab.locator("#arr-sense").bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE["width"]
            ask(tab, "what is in the picture?")
            finished(tab)
            expect(heard).to_have_text("")  # another map has come
            expect(no).not_to_be_checked()
            yes.click()
            expect(heard).to_have_text("Kept: yes.")
            first, changed, other = [json.loads(line) for line in file.read_text().splitlines()]
            assert first["label"] == changed["label"] != other["label"]
            assert [first["makes_sense"], changed["makes_sense"]] == [True, False]
            assert other["question"] == "what is in the picture?"
            # What is refused leaves what was chosen, and kept, before it.
            file.rename(file.with_suffix(".before"))
            file.mkdir()
            no.click()
            expect(heard).to_have_text(labels.UNWRITTEN)
            expect(yes).to_be_checked()
            ask(tab, "where is it?")
            finished(tab)
            expect(yes).not_to_be_checked()
            no.click()
            expect(heard).to_have_text(labels.UNWRITTEN)
            expect(no).not_to_be_checked()  # nothing was kept of this map
            file.rmdir()
            yes.click()
            no.click()  # in haste
            expect(heard).to_have_text("Kept: no.")
            expect(no).to_be_checked()
            assert tab.errors == [] and tab.elsewhere == []
    finally:
        server.process.kill()
        server.process.wait()
