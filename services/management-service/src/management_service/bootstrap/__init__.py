"""What a new system starts with: the first client of the Management API, the console's, and the first administrator.

Owns where their credentials are kept: a Secret of Kubernetes, or a file.
"""
