"""ASGI layers around an app: what every request or response passes, whatever its route."""
