// express-openid-connect with the authorization code flow; it finds everything by discovery.
import { clientId, clientSecret, goodbye, issuer, redirectUri, seen, visit } from './conversation.mjs';
import { served } from './served.mjs';
import express from 'express';
import { auth } from 'express-openid-connect';

const app = express();
app.set('trust proxy', true);
app.use(auth({
  issuerBaseURL: issuer,
  baseURL: new URL(redirectUri).origin,
  clientID: clientId,
  clientSecret,
  secret: 'a secret of the application alone',
  idTokenSigningAlg: 'ES256',
  authorizationParams: { response_type: 'code', scope: 'openid profile' },
  idpLogout: true,
  routes: { postLogoutRedirect: goodbye },
}));
app.get('/', (request, response) => response.json(request.oidc.user));
const open = await served(app);

const leaving = await open('/');
const back = await visit(new URL(leaving.headers.get('Location')));
const arrived = await open(back.pathname + back.search);
const user = await (await open('/')).json();
const gone = await visit(new URL((await open('/logout')).headers.get('Location')));
seen({ back: arrived.status, sub: user.sub, name: user.name, goodbye: gone.href });
