"""The tables of token-service that are known to SQLAlchemy."""

from sqlalchemy import MetaData

metadata = MetaData()
