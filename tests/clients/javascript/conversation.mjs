// Parameters of a run, and its protocol with the test: one JSON object a line.
import { createInterface } from 'node:readline';

export const {
  ISSUER: issuer,
  CLIENT_ID: clientId,
  CLIENT_SECRET: clientSecret,
  MACHINE_ID: machineId,
  MACHINE_SECRET: machineSecret,
  REDIRECT_URI: redirectUri,
  GOODBYE: goodbye,
  RESOURCE: resource,
  SUBJECT_TOKEN: subjectToken,
  BASE_URL: baseUrl,
  ORGANIZATION: organization,
  PERMISSION: permission,
  ACCESS_TOKEN: accessToken,
} = process.env;

export const scope = 'openid profile email offline_access read:things write:things';
export const accessTokenType = 'urn:ietf:params:oauth:token-type:access_token';
export const tokenExchange = 'urn:ietf:params:oauth:grant-type:token-exchange';

const lines = createInterface({ input: process.stdin });
const answers = lines[Symbol.asyncIterator]();

/** Send the user's browser to a URL; return the URL at which it returns to the application. */
export async function visit(url) {
  console.log(JSON.stringify({ visit: url.href }));
  const { value } = await answers.next();
  return new URL(value);
}

/** End the run and report its results. */
export function seen(facts) {
  console.log(JSON.stringify({ seen: facts }));
  lines.close();
}
