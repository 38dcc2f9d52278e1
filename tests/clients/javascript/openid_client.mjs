// openid-client with ClientSecretBasic; jose, which it is built on, verifies access tokens.
import {
  accessTokenType, clientId, clientSecret, goodbye, issuer, machineId, machineSecret, redirectUri, resource, scope, seen,
  subjectToken, tokenExchange, visit,
} from './conversation.mjs';
import * as jose from 'jose';
import * as client from 'openid-client';

const configured = (id, secret) =>
  client.discovery(new URL(issuer), id, undefined, client.ClientSecretBasic(secret), {
    execute: [client.allowInsecureRequests, client.enableNonRepudiationChecks], // the latter: signatures of ID tokens
  });
const config = await configured(clientId, clientSecret);
const jwks = jose.createRemoteJWKSet(new URL(config.serverMetadata().jwks_uri));
const claimsOf = async (accessToken) =>
  (await jose.jwtVerify(accessToken, jwks, { issuer, audience: resource, typ: 'at+jwt' })).payload;

const pkceCodeVerifier = client.randomPKCECodeVerifier();
const expectedState = client.randomState();
const expectedNonce = client.randomNonce();
const callback = await visit(client.buildAuthorizationUrl(config, {
  redirect_uri: redirectUri,
  scope,
  resource,
  state: expectedState,
  nonce: expectedNonce,
  code_challenge: await client.calculatePKCECodeChallenge(pkceCodeVerifier),
  code_challenge_method: 'S256',
}));
const first = await client.authorizationCodeGrant(config, callback, {
  pkceCodeVerifier, expectedState, expectedNonce, idTokenExpected: true,
});
const { sub } = first.claims();
const person = await client.fetchUserInfo(config, first.access_token, sub);

const second = await client.refreshTokenGrant(config, first.refresh_token, { resource });
const renewed = await claimsOf(second.access_token);
const introspected = await client.tokenIntrospection(config, second.access_token);

const exchanged = await client.genericGrantRequest(config, tokenExchange, {
  subject_token: subjectToken,
  subject_token_type: accessTokenType,
  actor_token: first.access_token,
  actor_token_type: accessTokenType,
  resource,
  scope: 'read:things',
});
const impersonated = await claimsOf(exchanged.access_token);

await client.tokenRevocation(config, second.refresh_token, { token_type_hint: 'refresh_token' });
const afterRevocation = await client.tokenIntrospection(config, second.access_token);
const refused = await client.refreshTokenGrant(config, second.refresh_token).catch((error) => error);

const machine = await client.clientCredentialsGrant(await configured(machineId, machineSecret), {
  resource, scope: 'read:things',
});
const machineClaims = await claimsOf(machine.access_token);

const gone = await visit(client.buildEndSessionUrl(config, {
  post_logout_redirect_uri: goodbye, id_token_hint: first.id_token, state: expectedState,
}));

seen({
  sub,
  name: person.name,
  refreshed: renewed.scope,
  introspected: [introspected.active, introspected.sub],
  impersonated: [impersonated.sub, impersonated.act],
  afterRevocation,
  refused: refused.error,
  machine: [machineClaims.sub, machineClaims.scope],
  goodbye: gone.href === `${goodbye}?state=${expectedState}`,
});
