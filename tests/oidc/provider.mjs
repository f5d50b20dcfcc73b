// An OpenID provider for tests/it/oidc.rs: oidc-provider as it is, with three people and no login form. `/interaction/ID?as=PERSON` logs in;
// `/rotate` replaces the keys that it signs with; `/rename?person=PERSON&to=NAME` is a person who calls themselves otherwise. Prints its address once it listens. Ends when its standard input does.
import { generateKeyPairSync } from "node:crypto";
import { createServer } from "node:http";
import Provider from "oidc-provider";

const [redirect, secret] = process.argv.slice(2);
const people = { ada: ["fleet-admins", "everybody"], bob: ["watchers"], eve: [] };
const names = {};
let provider;

function start(issuer) {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const key = { ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256", kid: String(Math.random()) };
  provider = new Provider(issuer, {
    clients: [{ client_id: "muster", client_secret: secret, redirect_uris: [redirect] }],
    jwks: { keys: [key] },
    cookies: { keys: ["of a test"] },
    scopes: ["openid", "profile", "groups"],
    claims: { openid: ["sub"], profile: ["preferred_username"], groups: ["groups"] },
    conformIdTokenClaims: false,
    pkce: { required: () => true },
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => ({ sub: id, preferred_username: names[id] ?? id, groups: people[id] }),
    }),
    loadExistingGrant: async (context) => {
      const { client, session, params } = context.oidc;
      const grant = new context.oidc.provider.Grant({ clientId: client.clientId, accountId: session.accountId });
      grant.addOIDCScope(params.scope);
      await grant.save();
      return grant;
    },
  });
}

const server = createServer(async (request, response) => {
  const url = new URL(request.url, "http://localhost");
  if (url.pathname === "/rotate") {
    start(`http://127.0.0.1:${server.address().port}`);
    response.end();
  } else if (url.pathname === "/rename") {
    names[url.searchParams.get("person")] = url.searchParams.get("to");
    response.end();
  } else if (url.pathname.startsWith("/interaction/")) {
    await provider.interactionFinished(request, response, { login: { accountId: url.searchParams.get("as") } });
  } else {
    provider.callback()(request, response);
  }
});
server.listen(0, "127.0.0.1", () => {
  start(`http://127.0.0.1:${server.address().port}`);
  console.log(`http://127.0.0.1:${server.address().port}`);
});
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
