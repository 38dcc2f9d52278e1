"""The tables of management-service."""

from sqlalchemy import MetaData

metadata = MetaData()
