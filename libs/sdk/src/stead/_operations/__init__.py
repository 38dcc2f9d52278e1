"""Every operation of the Management API that this library knows, described once (see ``_http.Operation``).

The functions say what to send and how to read the answer; ``_operation_groups`` gives them to clients under short names. A
function that reads a list says which one (see ``_lists``); ``page_size`` is how many items one answer brings, 1 to 100.
"""
