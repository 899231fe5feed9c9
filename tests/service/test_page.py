"""The page of the service in a real browser: its functions, its layout, and no errors in the console."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import everypair as ep

from services import WAIT, ServiceProcess, fitted, serving

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.full, pytest.mark.skipif(BROWSER is None, reason="there is no Chromium: apt-get install chromium")]
PICTURES = os.environ.get("EVERYPAIR_PICTURES")  # a folder for screenshots
SIZES = {"light": (1440, 1000), "dark": (1440, 1000), "phone": (390, 844)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    data = ep.datasets.youtube_like(600, 300, seed=0, titles=True)
    split = ep.evaluation.LeaveLast().split(data)
    attributes = ep.Attributes("age", "gender", "country", "device")
    context = [ep.UserId(), attributes, ep.Previous(), ep.History(last=50)]
    model = ep.FM(factors=16, epochs=8)
    recommender = ep.Recommender(model, context, [ep.ItemId(), ep.Attributes("category")]).fit(split.train)
    recommender.evaluation_ = ep.evaluation.evaluate(recommender, split.test).summary()
    recommender.save(folder)
    return folder


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[ServiceProcess]:
    with serving(folder) as remote:
        yield remote


Serve = Callable[[ep.Recommender], ServiceProcess]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """A service of a given recommender: one process whose model each test replaces, as a reload is quicker than a start."""
    folder = tmp_path_factory.mktemp("replaced")
    fitted().save(folder)
    with serving(folder, "--no-watch") as service:

        def replace(recommender: ep.Recommender) -> ServiceProcess:
            recommender.save(folder)
            assert service.post("/reload").status_code == 200
            return service

        yield replace


class Visit:
    """An open page, with its console messages and its requests."""

    def __init__(self, browser: Any, service: ServiceProcess, size: tuple[int, int] = (1440, 1000), **options: Any) -> None:
        options = {"viewport": {"width": size[0], "height": size[1]}, "reduced_motion": "reduce", **options}
        self.service, self.context = service, browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * WAIT)
        self.messages: list[str] = []  # errors and warnings of the console
        self.requested: list[str] = []
        self.page.on(
            "console", lambda message: self.messages.append(message.text) if message.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requested.append(request.url))
        self.page.goto(service.url)

    def settled(self) -> Visit:
        """Wait until all responses are drawn."""
        self.page.wait_for_selector("#items li")
        self.page.wait_for_selector("main[aria-busy=false]")
        return self

    def choose_user(self, user: str) -> None:
        self.page.fill("#user", user)
        self.page.wait_for_selector(f"#user-options li:text-is('{user}')")
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("#restore", state="hidden")
        self.settled()

    def listed(self) -> list[str]:
        return [each.get_attribute("data-item") for each in self.page.query_selector_all("#items .item")]

    def recommended(self, **body: Any) -> list[str]:
        """The items that the service recommends."""
        return [entry["item"] for entry in self.service.post("/recommend", **body).json()["items"]]

    def fits(self) -> bool:
        """Whether the page is not wider than the screen."""
        return self.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.fixture
def visit(browser: Any, service: ServiceProcess) -> Iterator[Visit]:
    visit = Visit(browser, service).settled()
    yield visit
    visit.settled()
    visit.context.close()
    assert visit.messages == []
    assert all(url.startswith(service.url) for url in visit.requested), "the page must work without a network"


def test_a_known_user(visit: Visit) -> None:
    visit.choose_user("u007")
    assert visit.listed() == visit.recommended(user="u007")
    profile = visit.service.post("/profile", user="u007").json()
    shown = visit.page.locator("#history li span").all_inner_texts()
    assert shown == [entry["title"] for entry in reversed(profile["history"])][:30]
    for name, value in profile["attributes"].items():
        assert visit.page.input_value(f"#attribute-{name}") == (value or "")
    visit.page.select_option("#n", "20")
    visit.settled()
    assert visit.listed() == visit.recommended(user="u007", n=20)
    visit.page.uncheck("#seen")
    visit.settled()
    assert visit.listed() == visit.recommended(user="u007", n=20, exclude_seen=False)


def test_recommendations_follow_attributes_and_history(visit: Visit) -> None:
    visit.choose_user("u003")
    before = visit.listed()
    visit.page.select_option("#attribute-country", "JP")
    visit.settled()
    request: dict[str, Any] = {"user": "u003", "country": "JP"}
    assert visit.listed() == visit.recommended(request=request) != before
    assert visit.page.locator(".moved").count() > 0
    visit.page.fill("#add", "v01")
    visit.page.wait_for_selector("#add-options li:has-text('v01')")
    visit.page.keyboard.press("ArrowDown")
    visit.page.keyboard.press("Enter")
    visit.settled()
    seen = [entry["item"] for entry in visit.service.post("/profile", user="u003").json()["history"]]
    added = visit.service.client.get("/items?query=v01&limit=20").json()["items"][1]
    assert visit.page.locator("#history li.added").inner_text().startswith(added["title"])
    assert visit.listed() == visit.recommended(request={**request, "history": [*seen, added["item"]]})
    visit.page.get_by_label(f"Remove {added['title']}", exact=True).first.click()
    visit.settled()
    assert visit.listed() == visit.recommended(request=request)
    visit.page.click("#restore")
    visit.settled()
    assert visit.listed() == before


def test_enter_before_the_search_result(visit: Visit) -> None:
    """Enter chooses the best match of the typed text, not an option that was listed before."""
    visit.page.focus("#user")
    visit.page.wait_for_selector("#user-options li")
    visit.page.keyboard.type("u042")
    visit.page.keyboard.press("Enter")
    visit.page.wait_for_selector("#user-options", state="hidden")
    wanted = visit.recommended(user="u042")
    end = time.monotonic() + WAIT
    while visit.listed() != wanted and time.monotonic() < end:
        visit.page.wait_for_timeout(20)
    visit.settled()
    assert visit.page.input_value("#user") == "u042"
    assert visit.listed() == wanted


def test_a_new_visitor(visit: Visit) -> None:
    visit.page.click("#nobody")
    visit.settled()
    assert visit.listed() == visit.recommended(request={})
    visit.page.select_option("#attribute-age", "25-34")
    visit.settled()
    assert visit.listed() == visit.recommended(request={"age": "25-34"})
    first = visit.listed()[0]
    visit.page.locator("#items .plus").first.click()
    visit.settled()
    assert visit.listed() == visit.recommended(request={"age": "25-34", "history": [first]})
    assert first not in visit.listed()


def test_contributions_add_up_and_similar_items_follow(visit: Visit) -> None:
    visit.choose_user("u011")
    visit.page.locator("#items .item").nth(1).click()
    visit.settled()
    item = visit.listed()[1]
    explained = visit.service.post("/explain", user="u011", item=item).json()
    amounts = [float(text) for text in visit.page.locator("#bars .amount").all_inner_texts()]
    assert sum(amounts[:-1]) == pytest.approx(amounts[-1], abs=0.01)
    assert amounts[-1] == pytest.approx(explained["score"], abs=0.001)
    ends = visit.page.evaluate("[...document.querySelectorAll('#bars .fill')].map(f => [f.style.left, f.style.width])")
    assert all(re.fullmatch(r"-?[\d.e-]+%", text) for pair in ends for text in pair)
    similar = visit.service.post("/similar", item=item, n=6, details=True).json()["items"]
    assert visit.page.locator("#similar .name").all_inner_texts() == [entry["title"] for entry in similar]
    visit.page.locator("#similar .item").first.click()
    visit.settled()
    assert visit.page.inner_text("#why-item").startswith(similar[0]["title"])


def test_everything_by_keyboard(visit: Visit) -> None:
    page = visit.page
    page.focus("#user")
    page.keyboard.type("u02")
    page.wait_for_selector("#user-options li:text-is('u020')")
    page.keyboard.press("Escape")
    assert page.is_hidden("#user-options")
    assert not page.input_value("#user").startswith("u02 "), "Escape restores the user"
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("u02")
    page.wait_for_selector("#user-options li:text-is('u020')")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    visit.settled()
    assert page.input_value("#user").startswith("u02")
    page.locator("#items .item").first.focus()
    page.keyboard.press("Enter")
    visit.settled()
    assert page.is_visible("#bars")
    page.keyboard.press("Tab")
    assert "to the history" in page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("Enter")
    visit.settled()
    assert page.is_visible("#restore")
    focused = "document.activeElement.dataset.key ?? document.activeElement.id"
    assert page.evaluate(focused) == "plus:0", "the focus survives a redraw"
    page.locator("#history button").first.focus()
    page.keyboard.press("Enter")
    visit.settled()
    assert page.evaluate(focused) == "remove:0"
    page.locator("#similar .item").first.focus()
    page.keyboard.press("Enter")
    visit.settled()
    assert page.evaluate(focused) == "similar:0"
    page.focus("#any")
    page.keyboard.type("v100")
    page.wait_for_selector("#any-options li:has-text('v100')")
    page.keyboard.press("Enter")
    visit.settled()
    assert "v100" in page.inner_text("#why-item")
    page.focus("#attribute-country")
    page.keyboard.press("ArrowDown")
    visit.settled()
    assert page.evaluate("document.activeElement.id") == "attribute-country"


def test_typed_text_is_not_a_user_before_it_is_chosen(visit: Visit) -> None:
    visit.choose_user("u008")
    visit.page.fill("#user", "nobody at all")
    visit.page.wait_for_selector("#user-options .none")
    visit.page.keyboard.press("Tab")
    assert visit.page.input_value("#user") == "u008"


def delay(visit: Visit, pattern: str, milliseconds: int, times: int = 1) -> None:
    """Delay the next responses to requests that match a pattern."""
    held: list[Any] = []

    def handle(route: Any) -> None:
        if len(held) < times:
            held.append(route)
            visit.page.evaluate(f"setTimeout(() => fetch('health?late'), {milliseconds})")
        else:
            route.continue_()

    visit.page.route(re.compile(pattern), handle)
    visit.page.route(
        re.compile("health.late"), lambda route: (route.fulfill(status=200, body="{}"), [each.continue_() for each in held])
    )


def test_outdated_responses_are_ignored(visit: Visit) -> None:
    visit.choose_user("u001")
    delay(visit, "/profile$", 600)
    visit.page.fill("#user", "u002")
    visit.page.wait_for_selector("#user-options li:text-is('u002')")
    visit.page.keyboard.press("Enter")
    visit.page.click("#nobody")
    visit.page.wait_for_timeout(1000)
    visit.settled()
    assert visit.page.input_value("#user") == ""
    assert visit.listed() == visit.recommended(request={})
    delay(visit, "/map.by=language", 600)
    visit.page.select_option("#colour", "language")
    visit.page.select_option("#colour", "category")
    visit.page.wait_for_timeout(1000)
    visit.settled()
    assert "values of category" in visit.page.inner_text("#map-note")
    assert "travel" in visit.page.locator("#legend button").all_inner_texts()


def test_bars_are_never_those_of_another_item(visit: Visit) -> None:
    visit.choose_user("u001")
    visit.page.locator("#items .item").first.click()
    visit.settled()
    visit.page.route(
        re.compile("/explain$"), lambda route: route.fulfill(status=503, json={"error": {"message": "too slow", "fields": []}})
    )
    visit.page.locator("#items .item").nth(3).click()
    visit.page.wait_for_selector("#trouble:visible")
    assert visit.page.locator("#bars .bar").count() == 0
    assert "too slow" in visit.page.inner_text("#trouble")
    visit.messages.clear()  # the browser reports the 503


def test_a_long_history_is_kept_whole(browser: Any, serve: Serve) -> None:
    """Items that are not shown still count when one is added."""
    items = [f"v{j:03d}" for j in range(400)]
    events = {"user": ["ann"] * 300 + ["bob"] * 100, "item": items[:300] + items[250:350]}
    visit = Visit(browser, serve(ep.Recommender(ep.MF(factors=4, epochs=3)).fit(ep.Dataset(events)))).settled()
    visit.choose_user("ann")
    assert visit.page.locator("#history li").count() == 31
    assert "the last 100 of 300" in visit.page.inner_text("#history-hint")
    visit.page.locator("#items .plus").first.click()
    visit.settled()
    assert not set(visit.listed()) & set(items[:300])
    visit.context.close()
    assert visit.messages == []


def test_ids_that_are_large_numbers(browser: Any, serve: Serve) -> None:
    ids = [2**53 + j for j in range(1, 40, 2)]
    dataset = ep.Dataset({"user": ids * 3, "item": ids + ids[1:] + ids[:1] + ids[::-1]})
    visit = Visit(browser, serve(ep.Recommender(ep.MF(factors=2, epochs=2)).fit(dataset))).settled()
    visit.choose_user(str(ids[7]))
    assert visit.listed() == [str(item) for item in visit.recommended(user=ids[7])]
    visit.page.locator("#items .plus").nth(1).click()
    visit.settled()
    visit.page.locator("#items .item").first.click()
    visit.settled()
    assert visit.page.locator("#bars .bar").count() > 1
    visit.context.close()
    assert visit.messages == []


def test_several_values_and_numbers(browser: Any, serve: Serve) -> None:
    users = {
        "user": [1, 2, 3, 4],
        "likes": ["a|b", "b", "", "c"],
        "height": [1.5, 1.6, 1.7, 1.8],
        "member": [True, False, True, None],
    }
    events = {"user": [1, 1, 2, 2, 3, 4], "item": [10, 11, 10, 12, 11, 13]}
    recipes = [ep.Attributes("likes", separator="|"), ep.Attributes("height", kind="value"), ep.Attributes("member")]
    recommender = ep.Recommender(ep.FM(factors=2, epochs=2), context=recipes).fit(ep.Dataset(events, users))
    visit = Visit(browser, serve(recommender)).settled()
    visit.page.click("#nobody")
    visit.settled()
    visit.page.get_by_label("a", exact=True).check()
    visit.page.get_by_label("c", exact=True).check()
    visit.page.select_option("#attribute-member", "false")
    visit.page.fill("#attribute-height", "1.65")
    visit.page.locator("#items .item").nth(1).click()  # the click counts although the field changes when it loses the focus
    visit.settled()
    request = {"likes": "a|c", "member": False, "height": 1.65}
    assert visit.listed() == [str(item) for item in visit.recommended(request=request)]
    assert visit.page.is_visible("#bars")
    visit.context.close()
    assert visit.messages == []


def test_titles_are_escaped(browser: Any, serve: Serve) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    events = {"user": [evil, evil, "b", "b"], "item": [evil, "y", "y", "z" * 400]}
    items = {"item": [evil, "y", "z" * 400], "title": [evil, "  ", "long " * 100], "kind": [evil, "", None]}
    recommender = ep.Recommender(ep.MF(factors=2, epochs=2)).fit(ep.Dataset(events, items=items))
    visit = Visit(browser, serve(recommender), (390, 844)).settled()
    visit.page.on("dialog", lambda dialog: visit.messages.append("a script ran"))
    visit.page.uncheck("#seen")
    visit.settled()
    for j in range(3):
        visit.page.locator("#items .item").nth(j).click()
        visit.settled()
    assert visit.fits()
    assert visit.page.locator("#items img, #why img, #legend img").count() == 0
    visit.context.close()
    assert visit.messages == []


def test_the_map(visit: Visit) -> None:
    page = visit.page
    visit.choose_user("u005")
    page.locator("#map-card").scroll_into_view_if_needed()
    colours = (
        "new Set(new Uint32Array(document.getElementById('map').getContext('2d').getImageData(0, 0, 600, 300).data.buffer)).size"
    )
    assert page.evaluate(colours) > 10
    legend = page.locator("#legend button").all_inner_texts()
    assert "travel" in legend
    page.select_option("#colour", "language")
    visit.settled()
    assert "en" in page.locator("#legend button").all_inner_texts()
    assert "values of language lie farthest apart" in page.inner_text("#map-note")
    page.select_option("#arrange", "most")
    visit.settled()
    assert "in which they differ most" in page.inner_text("#map-note")
    page.locator("#legend button").first.click()
    assert page.locator("#legend button").first.get_attribute("aria-pressed") == "true"
    box = page.locator("#map").bounding_box()
    for x in range(60, int(box["width"]) - 60, 7):  # until the pointer is over an item
        page.mouse.move(box["x"] + x, box["y"] + box["height"] / 2)
        if page.is_visible("#tip"):
            break
    assert page.inner_text("#tip")
    page.mouse.click(box["x"] + x, box["y"] + box["height"] / 2)
    visit.settled()
    assert page.inner_text("#why-item").split("\n")[0] in page.inner_text("#tip")


def test_the_model_card(visit: Visit) -> None:
    facts = visit.service.client.get("/model").json()
    assert facts["model"] in visit.page.inner_text("#summary")
    assert "factors" in visit.page.inner_text("#settings")
    assert visit.page.locator("#objective circle").count() == len(facts["facts"]["objective"]) == 8
    (recall, ndcg) = facts["facts"]["evaluation"]["metrics"].values()
    assert f"{recall['value']:.4f}" in visit.page.inner_text("#evaluation")
    assert f"{ndcg['low']:.4f} to {ndcg['high']:.4f}" in visit.page.inner_text("#evaluation")


def test_light_and_dark(browser: Any, service: ServiceProcess) -> None:
    visit = Visit(browser, service, color_scheme="dark").settled()
    ground = "getComputedStyle(document.body).backgroundColor"
    dark = visit.page.evaluate(ground)
    visit.page.click("#theme")
    light = visit.page.evaluate(ground)
    assert light != dark
    visit.page.click("#theme")
    assert visit.page.evaluate(ground) == dark
    visit.page.reload()
    visit.settled()
    assert visit.page.inner_text("#theme") == "Dark"
    visit.context.close()
    assert visit.messages == []


@pytest.mark.parametrize("look", SIZES)
def test_layout_as_shown_in_the_docs(browser: Any, service: ServiceProcess, look: str) -> None:
    """With EVERYPAIR_PICTURES set, this also takes the screenshots of the documentation."""
    visit = Visit(
        browser, service, SIZES[look], color_scheme="dark" if look == "dark" else "light", has_touch=look == "phone",
        is_mobile=look == "phone", device_scale_factor=2 if look == "phone" else 1,
    ).settled()  # fmt: skip
    visit.choose_user("u007")
    visit.page.select_option("#attribute-country", "FR")
    visit.settled()
    visit.page.locator("#items .item").nth(1).click()
    visit.settled()
    assert visit.fits()
    visit.page.evaluate("window.scrollTo({top: 300, behavior: 'instant'})")
    assert visit.page.evaluate("document.getElementById('why').getBoundingClientRect().bottom") <= visit.page.evaluate(
        "document.getElementById('map-card').getBoundingClientRect().top"
    )
    for target in visit.page.query_selector_all("button:visible, select:visible, input[type=text]:visible"):
        assert target.bounding_box()["height"] >= 24, target.inner_html()
    if PICTURES:
        Path(PICTURES).mkdir(parents=True, exist_ok=True)
        top = "document.getElementById('recommended').offsetTop - 8" if look == "phone" else "0"
        visit.page.evaluate(f"window.scrollTo({{top: {top}, behavior: 'instant'}})")
        visit.page.mouse.move(2, 2)
        visit.page.wait_for_timeout(300)
        visit.page.screenshot(path=f"{PICTURES}/page-{look}.png", full_page=look != "phone")
    visit.context.close()
    assert visit.messages == []


def test_a_new_model_under_an_open_page(browser: Any, serve: Serve) -> None:
    visit = Visit(browser, serve(fitted(seed=1))).settled()
    before = visit.page.inner_text("#summary")
    after = serve(fitted(seed=2)).client.get("/health").json()["model"]
    visit.page.select_option("#n", "20")
    visit.page.wait_for_selector(f"#summary:has-text('{after}')")
    assert visit.settled().page.inner_text("#summary") != before
    assert visit.messages == []
    visit.choose_user("u05")
    visit.page.locator("#items .item").first.click()
    visit.page.select_option("#attribute-country", "JP")
    visit.settled()
    # other users, items and columns
    other = ep.Dataset({"uid": ["x", "x", "y", "z"], "item": ["p", "q", "q", "r"]}, user="uid")
    last = serve(ep.Recommender(ep.MF(factors=2, epochs=1)).fit(other)).client.get("/health").json()["model"]
    visit.page.select_option("#n", "50")
    visit.page.wait_for_selector(f"#summary:has-text('{last}')")
    visit.settled()
    assert visit.page.input_value("#user") in ("x", "y", "z")
    assert visit.page.is_hidden("#why-body")
    assert visit.page.is_hidden("#trouble")
    visit.context.close()


def test_a_page_without_users(browser: Any, folder: Path) -> None:
    """It starts with someone new, and offers nothing that the service refuses."""
    with serving(folder, "--no-users") as service:
        visit = Visit(browser, service).settled()
        assert not visit.page.is_visible("#user")
        assert not visit.page.is_visible("#anyone")
        assert visit.listed() == visit.recommended(request={})
        visit.page.locator("#items .plus").first.click()
        visit.settled()
        visit.page.click("#restore")
        visit.settled()
        assert visit.listed() == visit.recommended(request={})
        if PICTURES:
            visit.page.screenshot(path=f"{PICTURES}/page-without-users.png")
        visit.context.close()
        assert visit.messages == []
        assert not [url for url in visit.requested if re.search("/users|/profile", url)]


def test_a_page_with_a_token_for_recommendations_alone(browser: Any, folder: Path) -> None:
    """It says so, and asks for the other one."""
    tokens = {"EVERYPAIR_TOKEN": "a token for everything", "EVERYPAIR_RECOMMEND_TOKEN": "a token for recommendations"}
    with serving(folder, **tokens) as service:
        visit = Visit(browser, service)
        for _ in range(2):
            visit.page.wait_for_selector("#token-dialog[open]")
            visit.page.fill("#token", tokens["EVERYPAIR_RECOMMEND_TOKEN"])
            visit.page.keyboard.press("Enter")
            visit.page.wait_for_selector("#token-note:has-text('for recommendations alone')")
        visit.page.fill("#token", tokens["EVERYPAIR_TOKEN"])
        visit.page.keyboard.press("Enter")
        visit.settled()
        visit.context.close()


def test_a_page_with_a_token(browser: Any, tmp_path: Path) -> None:
    fitted().save(tmp_path)
    token = "0123456789abcdef"
    with serving(tmp_path, EVERYPAIR_TOKEN=token) as service:
        visit = Visit(browser, service)
        visit.page.wait_for_selector("#token-dialog[open]")
        visit.page.keyboard.press("Escape")
        visit.page.wait_for_selector("#trouble:visible")
        assert "needs a token" in visit.page.inner_text("#trouble")
        visit.page.click("#retry")
        visit.page.wait_for_selector("#token-dialog[open]")
        visit.page.fill("#token", "not this one")
        visit.page.keyboard.press("Enter")
        visit.page.wait_for_selector("#token-note:has-text('refused')")
        visit.page.fill("#token", token)
        visit.page.keyboard.press("Enter")
        visit.settled()
        assert len(visit.listed()) == 10
        visit.context.close()


@pytest.mark.parametrize("model", [ep.MF(factors=4, epochs=3), ep.Popularity()], ids=lambda model: type(model).__name__)
def test_models_without_attributes(browser: Any, serve: Serve, model: Any) -> None:
    visit = Visit(browser, serve(fitted(model, context=[ep.UserId()]))).settled()
    assert visit.page.locator("#attributes select").count() == 0
    assert visit.page.is_visible("#map-card") == isinstance(model, ep.MF)
    visit.page.locator("#items .item").first.click()
    visit.settled()
    assert visit.page.locator("#bars .bar").count() >= 2
    visit.page.click("#nobody")
    visit.settled()
    if isinstance(model, ep.MF):
        assert "can say nothing of this visitor yet" in visit.page.inner_text("#status")
    visit.context.close()
    assert [text for text in visit.messages if "422" not in text] == []  # the page shows the refusal


def test_a_map_that_fails_to_load(browser: Any, service: ServiceProcess) -> None:
    visit = Visit(browser, service)
    visit.page.route(re.compile(r"/map\?"), lambda route: route.fulfill(status=502, body="<html>"))
    visit.page.reload()
    visit.settled()
    assert len(visit.listed()) == 10
    assert "The map cannot be shown now: The service answered 502" in visit.page.inner_text("#map-note")
    visit.context.close()


def test_a_service_that_has_ended(browser: Any, tmp_path: Path) -> None:
    fitted().save(tmp_path)
    with serving(tmp_path) as service:
        visit = Visit(browser, service).settled()
        service.process.terminate()
        service.process.wait(WAIT)
        visit.page.select_option("#n", "20")
        visit.page.wait_for_selector("#trouble:visible")
        assert "does not answer" in visit.page.inner_text("#trouble")
        visit.context.close()
