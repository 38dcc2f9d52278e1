// The client of the Model Context Protocol: it reads what its server says about itself, then signs in at the issuer.
import { clientId, issuer, redirectUri, resource, seen, visit } from './conversation.mjs';
import { auth } from '@modelcontextprotocol/sdk/client/auth.js';

const kept = {};
const provider = {
  redirectUrl: redirectUri,
  clientMetadata: { client_name: 'An MCP client', redirect_uris: [redirectUri] },
  state: () => 'a state',
  clientInformation: () => ({ client_id: clientId }),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => { kept.tokens = tokens; },
  saveCodeVerifier: (verifier) => { kept.verifier = verifier; },
  codeVerifier: () => kept.verifier,
  redirectToAuthorization: (url) => { kept.url = url; },
};
const ofServer = { resource, authorization_servers: [issuer], scopes_supported: ['read:things', 'offline_access'] };
const fetchFn = (url, init) => // the server is not part of the test: only its metadata is
  new URL(url).origin === new URL(resource).origin ? Promise.resolve(Response.json(ofServer)) : fetch(url, init);
const options = { serverUrl: resource, scope: 'read:things offline_access', fetchFn };

const begun = await auth(provider, options);
const back = await visit(kept.url);
const done = await auth(provider, { ...options, authorizationCode: back.searchParams.get('code') });
const first = kept.tokens;
const renewed = await auth(provider, options);
const audience = (token) => JSON.parse(Buffer.from(token.split('.')[1], 'base64url')).aud;
seen({
  steps: [begun, done, renewed],
  audiences: [audience(first.access_token), audience(kept.tokens.access_token)],
  scope: kept.tokens.scope,
  rotated: first.refresh_token !== kept.tokens.refresh_token,
});
