// passport-openidconnect; it reads no metadata, has no PKCE, and sends its secret in the body.
import { clientId, clientSecret, issuer, redirectUri, seen, visit } from './conversation.mjs';
import { served } from './served.mjs';
import express from 'express';
import Strategy from 'passport-openidconnect';

const session = {};
const strategy = new Strategy({
  issuer,
  authorizationURL: `${issuer}/auth`,
  tokenURL: `${issuer}/token`,
  userInfoURL: `${issuer}/me`,
  clientID: clientId,
  clientSecret,
  callbackURL: redirectUri,
  scope: 'openid profile',
  nonce: true,
  skipUserProfile: false,
}, (_issuer, profile, verified) => verified(null, { sub: profile.id, name: profile.displayName }));

const app = express();
app.use((request, response) => {
  request.session = session;
  const attempt = Object.create(strategy);
  attempt.redirect = (url) => response.redirect(url);
  attempt.success = (user) => response.json(user);
  attempt.fail = (challenge) => response.status(401).json(challenge);
  attempt.error = (error) => response.status(500).json(error.message);
  attempt.authenticate(request, {});
});
const open = await served(app);

const back = await visit(new URL((await open('/')).headers.get('Location')));
const arrived = await open(back.pathname + back.search);
seen({ back: arrived.status, user: await arrived.json() });
