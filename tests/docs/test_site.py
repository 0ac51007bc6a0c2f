"""The documentation as a site: it builds without a warning, and nothing in it leads nowhere."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import fraxenv

ROOT = Path(__file__).parents[2]
MODULES = re.findall(
    r"^# `(fraxenv[a-z.]*)`$",
    "\n".join(path.read_text("utf-8") for path in sorted(ROOT.glob("docs/api/*.md"))),
    re.MULTILINE,
)
"""What the reference is about."""


class Page(HTMLParser):
    """The places that a page has, those that it leads to, and what a browser loads with it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        elif "src" in found:
            self.loads.add(found["src"])
        elif tag == "link" and "stylesheet" in found.get("rel", ""):
            self.loads.add(found["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, of a copy of the settings, so that nothing is written into the checkout."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_link_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        for link in page.links | page.loads:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            target = target / "index.html" if target.is_dir() else target
            place = unquote(url.fragment)
            if not target.exists() or (place and place not in pages[target].ids):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_of_the_repository_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / name).read_text("utf-8"))
    own = [link.partition("#")[0] for link in links if not urlsplit(link).netloc]
    assert not [link for link in own if not (ROOT / link).exists()]


def test_nothing_is_loaded_from_the_network(pages: dict[Path, Page]) -> None:
    loads = {url for page in pages.values() for url in page.loads}
    assert loads
    assert not [url for url in loads if urlsplit(url).netloc]


@pytest.mark.parametrize("id", fraxenv.list_envs())
def test_every_environment_has_a_page_with_a_picture(
    id: str, site: Path, pages: dict[Path, Page]
) -> None:
    page = site / "environments" / id / "index.html"
    assert [url for url in pages[page].loads if url.endswith(f"{id}.png")]
    table = pages[site / "environments" / "index.html"]
    assert [link for link in table.links if link.strip("/").endswith(id)]


@pytest.mark.parametrize("name", MODULES)
def test_the_reference_has_every_public_function_and_class(
    name: str, site: Path, pages: dict[Path, Page]
) -> None:
    module = importlib.import_module(name)
    reference = [page for path, page in pages.items() if (site / "api") in path.parents]
    documented = set().union(*(page.ids for page in reference))
    missing = [
        n
        for n in getattr(module, "__all__", vars(module))
        if callable(x := getattr(module, n)) and x.__module__.startswith(name)
        if not {f"{name}.{n}", f"{x.__module__}.{n}"} & documented
        if not n.startswith("_")
    ]
    assert not missing
