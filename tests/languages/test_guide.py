from __future__ import annotations

from stark.languages.guide import fenced

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
    assert ["plain\n"] == fenced(TEXT, "")
    assert [] == fenced(TEXT, "cpp")
