from __future__ import annotations

import pytest

from stark.languages.guide import section


def test_a_section_is_what_stands_under_its_heading() -> None:
    guide = "# Title\n\n## One\nfirst\n\n## Two\nsecond\n"

    assert "first" == section(guide, "One")
    assert "second" == section(guide, "Two")
    with pytest.raises(ValueError, match="no section 'Three'"):
        section(guide, "Three")
