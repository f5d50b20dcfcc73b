// An OpenID provider for tests/it/oidc.rs: oidc-provider as it is, with three people and no login form. `/interaction/ID?as=PERSON` logs in;
// `/rotate` replaces the keys that it signs with; `/rename?person=PERSON&to=NAME` is a person who calls themselves otherwise. `/logout-token?claims=JSON`
// signs the claims as a logout token; `/session?person=PERSON` returns the id of the person's latest session. Prints its address once it listens. Ends
// when its standard input does.
import { generateKeyPairSync, sign } from "node:crypto";
import { createServer } from "node:http";
import Provider from "oidc-provider";

const [redirect, secret] = process.argv.slice(2);
const people = { ada: ["fleet-admins", "everybody"], bob: ["watchers"], eve: [] };
const names = {};
const sessions = {};
let provider;
let signLogout;

function start(issuer) {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  const key = { ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256", kid: String(Math.random()) };
  signLogout = (claims) => {
    const header = JSON.stringify({ alg: "RS256", kid: key.kid, typ: "logout+jwt" });
    const signed = [header, claims].map((part) => Buffer.from(part).toString("base64url")).join(".");
    return `${signed}.${sign("sha256", Buffer.from(signed), privateKey).toString("base64url")}`;
  };
  provider = new Provider(issuer, {
    clients: [{
      client_id: "muster",
      client_secret: secret,
      redirect_uris: [redirect],
      backchannel_logout_uri: new URL("logout", redirect).href,
      backchannel_logout_session_required: true,
    }],
    jwks: { keys: [key] },
    cookies: { keys: ["of a test"] },
    scopes: ["openid", "profile", "groups"],
    claims: { openid: ["sub"], profile: ["preferred_username"], groups: ["groups"] },
    conformIdTokenClaims: false,
    pkce: { required: () => true },
    features: { devInteractions: { enabled: false }, backchannelLogout: { enabled: true } },
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
  provider.on("authorization.success", ({ oidc: { session, client } }) => {
    sessions[session.accountId] = session.sidFor(client.clientId);
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
  } else if (url.pathname === "/logout-token") {
    response.end(signLogout(url.searchParams.get("claims")));
  } else if (url.pathname === "/session") {
    response.end(sessions[url.searchParams.get("person")]);
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
