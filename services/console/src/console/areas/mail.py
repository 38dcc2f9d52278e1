"""``/console/settings/mail``: the mail that was given up."""

from typing import Final

from litestar import Response

from console.console import Area
from console.requests import ConsoleRequest

_PAGE_SIZE: Final = 25

AREA: Final = Area()


@AREA.page("/settings/mail")
async def mail_failures(request: ConsoleRequest) -> Response[str]:
    search, number = request.parameter("search"), request.page_number()
    found = await request.page_of(request.api.mail.failures(search=search or None, page_size=_PAGE_SIZE))
    return await request.page("settings/mail.html", area="mail", failures=found, search=search, number=number)
