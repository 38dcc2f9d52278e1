"""The Management API: its clients, their operations and lists."""
