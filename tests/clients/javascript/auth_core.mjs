// @auth/core, which Auth.js for Next.js, SvelteKit and Express is built on; the provider is of the type "oidc".
import { clientId, clientSecret, issuer, redirectUri, seen, visit } from './conversation.mjs';
import { Auth } from '@auth/core';

const { origin } = new URL(redirectUri);
const config = {
  secret: 'a secret of the application alone',
  trustHost: true,
  basePath: '/auth',
  providers: [{
    id: 'stead', name: 'Stead', type: 'oidc', issuer, clientId, clientSecret, checks: ['pkce', 'state', 'nonce'],
    authorization: { params: { scope: 'openid profile email' } },
  }],
};
const jar = new Map();
const call = async (url, init = {}) => {
  const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join('; ');
  const response = await Auth(new Request(new URL(url, origin), { ...init, headers: { cookie } }), config);
  for (const line of response.headers.getSetCookie()) {
    const [, name, value] = /^([^=]+)=([^;]*)/.exec(line);
    jar.set(name, value);
  }
  return response;
};

const { csrfToken } = await (await call('/auth/csrf')).json();
const leaving = await call('/auth/signin/stead', { method: 'POST', body: new URLSearchParams({ csrfToken }) });
const back = await call(await visit(new URL(leaving.headers.get('Location'))));
const session = await (await call('/auth/session')).json();

seen({ back: [back.status, back.headers.get('Location')], user: session.user });
