"""Words in PostgreSQL: what ``identity_common.words`` finds, as a ``tsvector``.

It is that of the configuration ``simple``, without stems and stop words, but not of PostgreSQL's parser: that takes an
address for one word, leaves out emoji, and depends on the locale.
"""

import functools
from typing import Final

from sqlalchemy import ColumnElement, Index, Text, bindparam, cast, literal_column, select
from sqlalchemy.dialects.postgresql import TSQUERY

from identity_common.words import MAX_WORD_CHARACTERS, SEPARATORS

_QUERY: Final = bindparam("query", type_=Text)

# Indexes use it, which PostgreSQL may compute with an empty search path: it calls no function of ours.
CREATE_SEARCH_WORDS: Final = f"""
    CREATE FUNCTION search_words(sort_key text) RETURNS tsvector LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
    BEGIN
        RETURN array_to_tsvector(ARRAY(
            SELECT left(word, {MAX_WORD_CHARACTERS})
            FROM regexp_split_to_table(sort_key, '[{SEPARATORS.replace("'", "''")}]+') AS word WHERE word <> ''
        ));
    END $$
"""  # noqa: S608 - of constants
DROP_SEARCH_WORDS: Final = "DROP FUNCTION search_words"


def words_of(*columns: str) -> str:
    """Return the SQL of the words in several columns of a table, with the parentheses that PostgreSQL shows."""
    first, *others = (f"COALESCE({column}, '')" for column in columns)
    text = functools.reduce(lambda before, column: f"(({before} || ' ') || {column})", others, first)
    return f"search_words(name_sort_key({text[1:-1]}))"


def words_index(table: str, *columns: str) -> Index:
    """Return the index of the words in some columns of a table; it has no column for the tenant."""
    return Index(f"{table}_by_words", literal_column(words_of(*columns)), postgresql_using="gin")


def create_words_index(table: str, *columns: str) -> str:
    """Return the statement that creates the index."""
    return f"CREATE INDEX {table}_by_words ON {table} USING gin ({words_of(*columns)})"


def has_words(words: str) -> ColumnElement[bool]:
    """Return whether these words have each beginning in the parameter ``query``, from ``prefix_query``.

    The query is a subquery, whose matches the planner does not estimate: of a common word it would expect so many that
    it read the table instead of the index.
    """
    query = select(cast(cast(_QUERY, Text), TSQUERY)).scalar_subquery()
    return literal_column(words).bool_op("@@")(query)
