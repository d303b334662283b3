"""The status page as people see it: in Debian's Chromium, with all that it asks for and complains of noted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Request, async_playwright

from mm2py.devkit.jars import cache_directory
from tests.support.debian import debian_program
from tests.support.eventually import eventually, scaled


_LOADED_S = 30.0
#: Chromium itself asks for nothing either: no name but this machine's leads anywhere.
_ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1")
DESKTOP, PHONE = (1440, 900), (360, 780)


def artifacts() -> Path:
    """
    Return the folder for screenshots: $MM2PY_ARTIFACTS, else one beside what is downloaded; never in the checkout.
    """
    folder = Path(os.environ.get("MM2PY_ARTIFACTS") or cache_directory() / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Run a browser for the block."""
    program = await asyncio.to_thread(debian_program, "chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=program, args=_ARGUMENTS, timeout=scaled(_LOADED_S) * 1000
        )
        try:
            yield browser
        finally:
            await browser.close()


@attrs.define
class Looked:
    """A page in a browser, and what it did besides what can be seen."""

    page: Page
    url: str
    requests: list[str] = attrs.field(factory=list)
    #: Errors and warnings in the console, and uncaught exceptions.
    complaints: list[str] = attrs.field(factory=list)

    async def open(self, path: str = "#/") -> None:
        """Load the page at a place in it."""
        await self.page.goto(f"{self.url}/{path}")

    async def sees(self, text: str, where: str = "body", *, within_s: float = 20.0) -> str:
        """Wait until *text* can be read there; return all that can be."""

        async def read() -> str | None:
            shown = await self.text(where)
            assert text in shown, shown
            return shown

        return await eventually(read, within_s=within_s, what=f"the page shows {text!r} in {where}")

    async def text(self, where: str = "body") -> str:
        """
        Return what can be read in the first element that *where* chooses, thin spaces as spaces; empty without one.
        """
        found = self.page.locator(where).first
        if not await found.count() or not await found.is_visible():
            return ""
        # What is drawn has no innerText.
        shown: str = await found.evaluate("node => node.innerText ?? node.textContent")
        return shown.replace("\u202f", " ")

    async def rows(self, table: str, column: int = 1) -> list[str]:
        """Return the texts of a column of a table, from top to bottom."""
        cells = await self.page.locator(f"table.{table} > tbody > tr:not(.under) > td:nth-child({column})").all()
        return [(await cell.inner_text()).replace("\u202f", " ").strip() for cell in cells]

    async def click(self, name: str, where: str = "body") -> None:
        """Click on the button with that name."""
        await self.page.locator(where).get_by_role("button", name=name, exact=True).first.click()

    async def answer(self, name: str) -> None:
        """Answer the question that the page asks by the button with that name."""
        await self.page.locator("dialog[open]").get_by_role("button", name=name, exact=True).click()

    async def log_in(self, token: str) -> None:
        """Enter a token in the page's log-in."""
        await self.page.fill("dialog[open] input[name=token]", token)
        await self.answer("Log in")

    async def keep_picture(self, name: str) -> None:
        """Keep a picture of the whole page for people to look at."""
        await self.page.evaluate("window.scrollTo(0, 0)")
        await self.page.screenshot(path=artifacts() / f"status-page-{name}.png", full_page=True)

    async def width(self) -> int:
        """Return how wide the page's content is."""
        found: int = await self.page.evaluate("document.documentElement.scrollWidth")
        return found

    async def evaluate(self, script: str) -> Any:
        return await self.page.evaluate(script)

    def assert_quiet(self) -> None:
        """Check that nothing was complained of, and that no request left this machine."""
        away = [url for url in self.requests if urlsplit(url).hostname != urlsplit(self.url).hostname]

        assert away == []
        assert self.complaints == []


@asynccontextmanager
async def looking(
    browser: Browser, url: str, *, size: tuple[int, int] = DESKTOP, scheme: str = "light", expects: tuple[str, ...] = ()
) -> AsyncIterator[Looked]:
    """
    Look at the page in a window of its own. At the end it must have been quiet, but for complaints that hold *expects*.

    A browser writes each refused request into its console; tests that have one refused say so.
    """
    context: BrowserContext = await browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        reduced_motion="reduce",
    )
    context.set_default_timeout(scaled(_LOADED_S) * 1000)
    try:
        page = await context.new_page()
        looked = Looked(page, url)

        def complained(message: ConsoleMessage) -> None:
            if message.type in {"error", "warning"} and not any(it in message.text for it in expects):
                looked.complaints.append(message.text)

        def asked(request: Request) -> None:
            looked.requests.append(request.url)

        page.on("console", complained)
        page.on("pageerror", lambda error: looked.complaints.append(str(error)))
        page.on("request", asked)
        yield looked
        looked.assert_quiet()
    finally:
        await context.close()
