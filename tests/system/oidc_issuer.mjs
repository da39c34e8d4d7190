// An OpenID Connect issuer (the package oidc-provider) for tests. It signs in whoever ?login_hint or the file PEOPLE says without asking.
//
//   node oidc_issuer.mjs PORT CLIENT_ID REDIRECT_URL SECRET_FILE < people.json     {"ada": {"groups": ["ml"], "email": "ada@example.com"}}
//
// The person who signs in next is whoever was named by POST /next?who=NAME; "ready" is printed once it listens.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(new URL("../../web/package.json", import.meta.url));
const { default: Provider } = await import(require.resolve("oidc-provider"));

const [port, client, redirect, secretFile] = process.argv.slice(2);
const people = JSON.parse(readFileSync(0, "utf8"));
let next = Object.keys(people)[0];

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{ client_id: client, client_secret: readFileSync(secretFile, "utf8").trim(), redirect_uris: [redirect], grant_types: ["authorization_code"], response_types: ["code"] }],
  claims: { openid: ["sub", "groups"], email: ["email", "email_verified"], profile: [] },
  conformIdTokenClaims: false,
  features: { devInteractions: { enabled: false } },
  cookies: { keys: ["for tests"] },
  pkce: { required: () => true },
  interactions: { url: (_context, interaction) => `/interaction/${interaction.uid}` },
  findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id, email_verified: true, ...people[id] }) }),
  async loadExistingGrant(context) {
    const grant = new context.oidc.provider.Grant({ clientId: context.oidc.client.clientId, accountId: context.oidc.session.accountId });
    grant.addOIDCScope("openid email profile");
    await grant.save();
    return grant;
  },
});

provider.use(async (context, proceed) => {
  if (context.method === "POST" && context.path === "/next") {
    next = context.query.who;
    context.body = "ok\n";
    return;
  }
  if (context.path.startsWith("/interaction/")) {
    await provider.interactionFinished(context.req, context.res, { login: { accountId: next, remember: false } });
    context.respond = false;
    return;
  }
  await proceed();
});
provider.listen(Number(port), "127.0.0.1", () => console.log("ready"));
