from __future__ import annotations

import pytest

from stark.languages.guide import fenced, section

TEXT = """\
Text with `code`.

```python problem
one
```
between
```python
two

```
```
plain
```
"""


def test_blocks_are_found_by_their_whole_info_string():
    assert ["one\n"] == fenced(TEXT, "python problem")
    assert ["two\n\n"] == fenced(TEXT, "python")
    assert [] == fenced(TEXT, "cpp")


def test_a_section_is_what_stands_under_its_heading() -> None:
    guide = "# Title\n\n## One\nfirst\n\n## Two\nsecond\n"

    assert "first" == section(guide, "One")
    assert "second" == section(guide, "Two")
    with pytest.raises(ValueError, match="no section 'Three'"):
        section(guide, "Three")
