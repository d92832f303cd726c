"""The page's files: small, complete in themselves, and nothing in them that a content security policy would stop."""

from __future__ import annotations

import re

from tests.support.page_server import FILES, STATIC

#: What would run or draw text from outside.
DANGEROUS = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|javascript:"


def test_all_files_together_are_at_most_100_kilobytes() -> None:
    sizes = {name: len(file.read_bytes()) for name, (file, _) in FILES.items()}
    assert sum(sizes.values()) <= 100_000, sizes


def test_nothing_is_inline_and_nothing_is_loaded_from_elsewhere() -> None:
    for name in ("index.html", "login.html"):
        text = (STATIC / name).read_text("utf-8")
        assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=", text)
        loaded = re.findall(r'(?:src|href|action)="([^"]*)"', text)
        assert all(one in FILES or one == "/login" for one in loaded), loaded
        assert "http" not in text
    assert "http" not in (STATIC / "page.css").read_text("utf-8")
    assert "http" not in (STATIC / "page.js").read_text("utf-8")
    assert "<!--wrong-->" in (STATIC / "login.html").read_text("utf-8")


def test_text_from_outside_is_only_ever_text() -> None:
    for name in ("page.js", "ask.js"):
        script = (STATIC / name).read_text("utf-8")
        assert not re.search(DANGEROUS, script)
        assert "textContent" in script


def test_every_element_that_the_script_names_is_on_the_page() -> None:
    named = set(re.findall(r'\$\("(\w+)"\)', (STATIC / "page.js").read_text("utf-8")))
    there = set(re.findall(r'id="(\w+)"', (STATIC / "index.html").read_text("utf-8")))
    assert named <= there, named - there
