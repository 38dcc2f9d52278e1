// oauth4webapi with RFC 8414 discovery; it verifies ID tokens and, as a resource server, access tokens.
import {
  accessTokenType, clientId, clientSecret, goodbye, issuer, machineId, machineSecret, redirectUri, resource, scope, seen,
  subjectToken, tokenExchange, visit,
} from './conversation.mjs';
import * as oauth from 'oauth4webapi';

const http = { [oauth.allowInsecureRequests]: true };
const server = await oauth.processDiscoveryResponse(
  new URL(issuer), await oauth.discoveryRequest(new URL(issuer), { algorithm: 'oauth2', ...http }),
);
const client = { client_id: clientId };
const secret = oauth.ClientSecretBasic(clientSecret);
const claimsOf = (accessToken) => {
  const request = new Request(resource, { headers: { Authorization: `Bearer ${accessToken}` } });
  return oauth.validateJwtAccessToken(server, request, resource, http);
};
const introspect = async (token) => oauth.processIntrospectionResponse(
  server, client, await oauth.introspectionRequest(server, client, secret, token, http),
);
const refresh = async (token) => oauth.processRefreshTokenResponse(
  server, client,
  await oauth.refreshTokenGrantRequest(server, client, secret, token, { additionalParameters: { resource }, ...http }),
);

const verifier = oauth.generateRandomCodeVerifier();
const state = oauth.generateRandomState();
const nonce = oauth.generateRandomNonce();
const authorization = new URL(server.authorization_endpoint);
authorization.search = new URLSearchParams({
  client_id: clientId,
  redirect_uri: redirectUri,
  response_type: 'code',
  scope,
  resource,
  state,
  nonce,
  code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
  code_challenge_method: 'S256',
});
const answer = oauth.validateAuthResponse(server, client, await visit(authorization), state);
const response = await oauth.authorizationCodeGrantRequest(server, client, secret, answer, redirectUri, verifier, http);
const first = await oauth.processAuthorizationCodeResponse(server, client, response, {
  expectedNonce: nonce, requireIdToken: true,
});
await oauth.validateApplicationLevelSignature(server, response, http);
const { sub } = oauth.getValidatedIdTokenClaims(first);
const person = await oauth.processUserInfoResponse(
  server, client, sub, await oauth.userInfoRequest(server, client, first.access_token, http),
);

const second = await refresh(first.refresh_token);
const renewed = await claimsOf(second.access_token);
const introspected = await introspect(second.access_token);

const exchanged = await oauth.processGenericTokenEndpointResponse(
  server, client,
  await oauth.genericTokenEndpointRequest(server, client, secret, tokenExchange, {
    subject_token: subjectToken,
    subject_token_type: accessTokenType,
    actor_token: first.access_token,
    actor_token_type: accessTokenType,
    resource,
    scope: 'read:things',
  }, http),
);
const impersonated = await claimsOf(exchanged.access_token);

await oauth.processRevocationResponse(
  await oauth.revocationRequest(server, client, secret, second.refresh_token, http),
);
const afterRevocation = await introspect(second.access_token);
const refused = await refresh(second.refresh_token).catch((error) => error);

const machine = { client_id: machineId };
const machineTokens = await oauth.processClientCredentialsResponse(
  server, machine,
  await oauth.clientCredentialsGrantRequest(
    server, machine, oauth.ClientSecretPost(machineSecret), { resource, scope: 'read:things' }, http,
  ),
);
const machineClaims = await claimsOf(machineTokens.access_token);

const ending = new URL(server.end_session_endpoint);
ending.search = new URLSearchParams({ post_logout_redirect_uri: goodbye, id_token_hint: first.id_token, state });
const gone = await visit(ending);

seen({
  sub,
  name: person.name,
  refreshed: renewed.scope,
  introspected: [introspected.active, introspected.sub],
  impersonated: [impersonated.sub, impersonated.act],
  afterRevocation,
  refused: refused.error,
  machine: [machineClaims.sub, machineClaims.scope],
  goodbye: gone.href === `${goodbye}?state=${state}`,
});
