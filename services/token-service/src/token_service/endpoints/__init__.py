"""The protocol over HTTP: parse, call, render. Owns no rule and no store."""
