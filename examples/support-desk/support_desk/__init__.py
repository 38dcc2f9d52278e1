"""An integrator's support desk: agents act as customers, with a reason; see ../README.md.

Three programs, which elsewhere would run apart from each other: ``backend`` says who may act as whom, ``orders_api``
is what agents and customers use, ``app`` with ``desk`` is the web application in between.
"""
