"""Mail: its texts, sending it over SMTP or into a folder, and the mail that could not be sent.

Owns the one worker that reads the stream of mail. Does not own who wants mail sent and when: a use case queues it with
``identity_common.outbox.mail`` in its own transaction.
"""
