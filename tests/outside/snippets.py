"""Takes the programs out of pages: python3 snippets.py FOLDER PAGE...

A block of code whose first line is a comment with the name of a file becomes that file, in a folder named after its page.
"""

import re
import sys
from pathlib import Path


def snippets(page: str) -> dict[str, str]:
    blocks = re.findall(r"^```\w+\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    named = ((re.match(r"(?://|#) ([\w.]+\.(?:cpp|py|txt))\n", block), block) for block in blocks)
    return {name[1]: block for name, block in named if name}


if __name__ == "__main__":
    folder, *pages = sys.argv[1:]
    for page in pages:
        found = snippets(Path(page).read_text())
        if not found:
            sys.exit(f"{page} has no program that names its file in its first line.")
        place = Path(folder) / Path(page).stem
        place.mkdir(parents=True)
        for name, text in found.items():
            (place / name).write_text(text)
