"""An integrator's support desk: agents act as customers, with a reason; see ../README.md.

Three programs, which would run separately in production: ``backend`` decides who may act as whom, ``orders_api`` is the
API that agents and customers use, and ``app`` with ``desk`` is the web application in between.
"""
