"""What a link to the page tells where it is posted: tags in the served page, and their picture."""

import io
import re

import httpx
import pytest
from app_server import OTHER_SHARE, server
from PIL import Image

from arr_coc.page.preview import SIZE, Told, address, head, with_tags


def get(url, **options):
    return httpx.get(url, timeout=60, **options)


def tags(page):
    found = re.findall(
        r'<meta (?:property|name)="((?:og|twitter):[^"]+|description)" content="([^"]*)"', page
    )
    names = [name for name, _ in found]
    assert len(names) == len(set(names)), "a tag is there twice"
    return dict(found)


def test_the_page_speaks_for_itself():
    url = server().url
    page = get(url).text
    told = tags(page)
    assert told["og:title"].startswith("ARR-COC-VIS: What is the number")
    assert "51 of 256 tokens" in told["og:description"] == told["description"]
    assert told["twitter:card"] == "summary_large_image"
    assert told["og:url"] == url and told["og:image"] == f"{url}preview.png"
    assert "Click to try out the app" not in page and "@Gradio" not in page
    picture = get(told["og:image"])
    assert picture.headers["content-type"] == "image/png"
    assert Image.open(io.BytesIO(picture.content)).size == SIZE


def test_a_link_to_a_card_and_a_budget_tells_of_these():
    url = server().url
    percent = round(100 * OTHER_SHARE)
    told = tags(get(url, params={"arr_example": 1, "arr_budget": percent}).text)
    first = tags(get(url).text)
    assert told["og:title"] != first["og:title"]
    assert "12 of 256 tokens" in told["og:description"]
    assert told["og:image"].endswith(f"?arr_example=1&amp;arr_budget={percent}")
    own = get(told["og:image"].replace("&amp;", "&")).content
    assert own != get(first["og:image"]).content


@pytest.mark.parametrize(
    "query",
    ["arr_example=99", "arr_q=${alert(1)}<b>", "arr_budget=33", "arr_example=x&arr_q=%00", "%%%"],
)
def test_what_was_not_recorded_tells_of_the_page(query):
    url = server().url
    reply = get(f"{url}?{query}")
    told = tags(reply.text)
    assert reply.status_code == 200 and told["og:title"].startswith("ARR-COC-VIS")
    assert "alert" not in "".join(told.values())
    if "99" not in query and "x&" not in query and "%%" not in query:
        assert "og:image" not in told
        assert get(f"{url}preview.png?{query}").status_code == 404


def test_the_rest_passes_untouched():
    url = server().url
    assert get(f"{url}config").json()["title"] == "ARR-COC-VIS"
    assert httpx.post(url).status_code in (404, 405)
    assert httpx.head(url).status_code in (200, 405)


def test_tags_are_escaped_and_only_of_the_head():
    told = Told('a "title" <b>', "${x} & <script>", {"arr_q": "a&b"}, None)
    made = head(told, "https://a.b")
    assert "<b>" not in made and "<script>" not in made and "&quot;title&quot;" in made
    page = (
        '<html><head lang="x"><meta property="og:title" content="G"><title>t</title></head><body>'
    )
    body = '<meta property="og:title" content="in the body"></body></html>'
    changed = with_tags(page + body, made)
    assert changed.startswith(f'<html><head lang="x">{made}<title>t</title></head>')
    assert changed.endswith(body) and with_tags("no head", made) == "no head"


@pytest.mark.parametrize(
    ("space", "host", "base"),
    [
        ("a-b.hf.space", b"x", "https://a-b.hf.space"),
        ("a.hf.space,b.example", b"x", "https://a.hf.space"),
        ("", b"127.0.0.1:7860", "http://127.0.0.1:7860"),
        ("", b'x"><script>', "http://localhost"),
        ("", b"", "http://localhost"),
    ],
)
def test_the_address_is_absolute(monkeypatch, space, host, base):
    monkeypatch.setenv("SPACE_HOST", space)
    assert address({"scheme": "http", "headers": [(b"Host", host)]}) == base
