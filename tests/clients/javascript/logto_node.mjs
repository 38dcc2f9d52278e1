// @logto/node: sign-in, tokens for a resource and an organization, refresh, sign-out.
import { baseUrl, clientId, clientSecret, goodbye, organization, permission, redirectUri, resource, seen, visit } from './conversation.mjs';
import LogtoClient, { UserScope } from '@logto/node';

const stored = new Map();
const storage = {
  getItem: async (key) => stored.get(key) ?? null,
  setItem: async (key, value) => void stored.set(key, value),
  removeItem: async (key) => void stored.delete(key),
};
let address;
const client = new LogtoClient({
  endpoint: baseUrl,
  appId: clientId,
  appSecret: clientSecret,
  resources: [resource],
  scopes: [UserScope.Email, UserScope.Organizations, 'read:things', permission],
}, { storage, navigate: async (url) => { address = url; } });

await client.signIn(redirectUri);
await client.handleSignInCallback((await visit(new URL(address))).href);
const claims = await client.getIdTokenClaims();
const person = await client.fetchUserInfo();

const ofOrganization = await client.getOrganizationTokenClaims(organization);
const ofResource = await client.getAccessTokenClaims(resource);
const before = await client.getRefreshToken();
await client.clearAccessToken();
const renewed = await client.getAccessTokenClaims(resource);
const rotated = before !== await client.getRefreshToken();

await client.signOut(goodbye);
const gone = await visit(new URL(address));

seen({
  sub: claims.sub,
  organizations: claims.organizations,
  name: person.name,
  organization: [ofOrganization.aud, ofOrganization.scope],
  resource: [ofResource.aud, ofResource.scope],
  renewed: [renewed.aud, renewed.jti !== ofResource.jti, rotated],
  authenticated: await client.isAuthenticated(),
  goodbye: gone.href,
});
