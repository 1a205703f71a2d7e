import gzip

import pytest

from albert_tf.config import UserError
from data_prep.text_sources import TEXT_SOURCES, read_source


def read(monkeypatch, name, pattern):
    source = TEXT_SOURCES[name]._replace(files=str(pattern))
    monkeypatch.setitem(TEXT_SOURCES, name, source)
    return list(read_source(name))


def test_entries_of_a_dictionary_keep_definitions_and_quotations(
    tmp_path, monkeypatch
):
    entries = """Lamp \\Lamp\\ (l[a^]mp), n. [F. lampe.]
   1. (Naut.) A vessel that gives light on a {pier}. "He lit the
      lamp at dusk." --A. Keeper.
      [1913 Webster]

   2. A light.

   Syn: The word lantern means the same.
        [1913 Webster]

Pier \\Pier\\, n.
   A walk that is built out into the sea.
"""
    path = tmp_path / "words.dict.dz"
    path.write_bytes(gzip.compress(entries.encode()))
    assert read(monkeypatch, "gcide", path) == [
        (
            "words.dict.dz:0",
            (
                'A vessel that gives light on a pier. "He lit the lamp at '
                'dusk."',
            ),
        ),
        ("words.dict.dz:1", ("A walk that is built out into the sea.",)),
    ]


@pytest.mark.parametrize("name", TEXT_SOURCES)
def test_a_source_that_is_missing_is_refused(tmp_path, monkeypatch, name):
    install = TEXT_SOURCES[name].install
    with pytest.raises(UserError, match=f"'{name}' is not .*none; .*{install}"):
        read(monkeypatch, name, tmp_path / "none")
