"""The areas of the console; each module declares the pages and forms of one."""
