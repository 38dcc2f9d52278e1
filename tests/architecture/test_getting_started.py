"""docs/getting-started.md shows exactly the walk-through that the program prints."""

from pathlib import Path

from all_in_one.walkthrough import walkthrough

ROOT = Path(__file__).parents[2]


def test_the_page_shows_the_walkthrough_that_is_printed() -> None:
    printed = walkthrough("http://localhost:3000", Path.cwd() / ".local", Path.cwd() / ".venv/bin/python")
    shown = (
        (ROOT / "docs/getting-started.md")
        .read_text()
        .partition("## The walk-through")[2]
        .split("```sh\n")[1]
        .split("```")[0]
    )
    commands = "".join(f"{line.removeprefix('  ')}\n" for line in printed.splitlines() if line.startswith("  "))
    assert [line for line in shown.splitlines() if line] == [line for line in commands.splitlines() if line]
