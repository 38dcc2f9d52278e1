// express-oauth2-jwt-bearer in front of an API: it finds issuer and keys by discovery.
import { accessToken, issuer, resource, seen } from './conversation.mjs';
import express from 'express';
import { auth, requiredScopes } from 'express-oauth2-jwt-bearer';

const app = express();
app.use(auth({ issuerBaseURL: issuer, audience: resource, tokenSigningAlg: 'ES256', strict: true }));
app.get('/things', requiredScopes('read:things'), (request, response) => response.json(request.auth.payload.sub));
app.get('/purge', requiredScopes('purge:things'), (_, response) => response.json('purged'));
app.use((error, _request, response, _next) => response.status(error.status ?? 500).json(error.code ?? error.message));

const server = app.listen(0, '127.0.0.1', async () => {
  const get = async (path, token) => {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const response = await fetch(`http://127.0.0.1:${server.address().port}${path}`, { headers });
    return [response.status, await response.json()];
  };
  const forged = `${accessToken.slice(0, -8)}AAAAAAAA`;
  seen({
    right: await get('/things', accessToken),
    tooNarrow: await get('/purge', accessToken),
    none: (await get('/things'))[0],
    forged: (await get('/things', forged))[0],
  });
  server.close();
});
