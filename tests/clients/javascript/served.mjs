// A web application on a port of its own, and the cookies of one browser.
/** Start it; return a function that opens a path as that browser, without following redirects. */
export async function served(app) {
  const jar = new Map();
  const server = await new Promise((resolve) => {
    const listening = app.listen(0, '127.0.0.1', () => resolve(listening));
  });
  server.unref();
  return async (path) => {
    const headers = { cookie: [...jar].map(([name, value]) => `${name}=${value}`).join('; '), 'x-forwarded-proto': 'https' };
    const response = await fetch(`http://127.0.0.1:${server.address().port}${path}`, { headers, redirect: 'manual' });
    for (const line of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
      jar.set(name, value);
    }
    return response;
  };
}
