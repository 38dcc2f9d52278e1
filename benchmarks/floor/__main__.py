"""Serves the floor with the settings of the services: one worker, uvloop, httptools."""

import argparse

from identity_common.serving import serve

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor")
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    serve("benchmarks.floor", host="127.0.0.1", port=options.port, workers=1)
