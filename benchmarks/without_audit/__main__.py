"""Serves token-service without the audit trail of its requests, with the settings of the service."""

import argparse

from identity_common.serving import serve

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.without_audit")
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    serve("benchmarks.without_audit", host="127.0.0.1", port=options.port, workers=1)
