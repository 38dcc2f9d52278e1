// oidc-provider with its development pages: a person is who types the name, with the claims of that name.
import { readFileSync } from 'node:fs';
import { Provider } from 'oidc-provider';

const configuration = () => JSON.parse(readFileSync(process.env.CONFIGURATION, 'utf8'));
const { issuer, clients, keys } = configuration();
const provider = new Provider(issuer, {
  clients,
  jwks: { keys },
  claims: { profile: ['name'], email: ['email', 'email_verified'], groups: ['groups'] },
  cookies: { keys: ['a secret of the provider alone'] },
  features: { backchannelLogout: { enabled: true } },
  fetch: (url, { dispatcher, ...options }) => fetch(url, options), // its dispatcher calls no loopback address
  findAccount: (context, id) => ({
    accountId: id,
    claims: () => ({ sub: id, ...configuration().people[id] }),
  }),
});
provider.listen(Number(new URL(issuer).port), '127.0.0.1');
