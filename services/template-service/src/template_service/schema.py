"""The tables of template-service."""

from sqlalchemy import MetaData

metadata = MetaData()
