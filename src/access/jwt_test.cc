#include "access/jwt.h"

#include <gtest/gtest.h>

#include "access/oidc.h"
#include "base/base64.h"

#ifdef LOCKSTEP_OPENSSL
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rsa.h>
#endif

namespace lockstep {
namespace {

constexpr const char* kClaims = R"({"iss":"https://login.example.com","aud":"lockstep","sub":"7","nonce":"n",)"
                                R"("iat":1000,"exp":2000})";

IdTokenExpected expected() {
  return {"https://login.example.com", "lockstep", "n", 1500};
}

std::string with(std::string_view from, std::string_view to) {
  std::string claims = kClaims;
  return claims.replace(claims.find(from), from.size(), to);
}

TEST(IdToken, IsTakenWhereEverythingFits) {
  EXPECT_TRUE(check_id_token(kClaims, expected()).ok());
  EXPECT_TRUE(check_id_token(with("\"lockstep\"", R"(["other","lockstep"])"), expected()).ok());
  EXPECT_TRUE(check_id_token(with("2000", "1441"), expected()).ok()) << "within the leeway";
}

TEST(IdToken, IsRefusedForEachThingThatDoesNotFit) {
  for (const std::string& wrong :
       {with("login.", "evil."), with("\"lockstep\"", "\"other\""), with("\"lockstep\"", R"(["other"])"),
        with("\"n\"", "\"m\""), with("2000", "1440"), with("1000", "1561"), with("\"exp\"", "\"nothing\""),
        with("\"sub\"", "\"bus\""), with("\"iat\"", R"("azp":"other","iat")"), with("\"iat\"", R"("nbf":1561,"iat")"),
        std::string("[]"), std::string("{}"), std::string()})
    EXPECT_FALSE(check_id_token(wrong, expected()).ok()) << wrong;
}

#ifdef LOCKSTEP_OPENSSL

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using Key = std::unique_ptr<EVP_PKEY, FreeKey>;

std::string number_text(EVP_PKEY* key, const char* name) {
  BIGNUM* number = nullptr;
  EXPECT_EQ(EVP_PKEY_get_bn_param(key, name, &number), 1);
  std::string bytes(static_cast<size_t>(BN_num_bytes(number)), '\0');
  BN_bn2bin(number, reinterpret_cast<unsigned char*>(bytes.data()));
  BN_free(number);
  if (bytes.size() < 32 && name[0] == 'q') bytes.insert(0, 32 - bytes.size(), '\0');
  return base64url(bytes);
}

std::string rsa_jwk(EVP_PKEY* key, const std::string& more) {
  return R"({"kty":"RSA",)" + more + R"("n":")" + number_text(key, OSSL_PKEY_PARAM_RSA_N) + R"(","e":")" +
         number_text(key, OSSL_PKEY_PARAM_RSA_E) + "\"}";
}

std::string ec_jwk(EVP_PKEY* key) {
  return R"({"kty":"EC","crv":"P-256","kid":"e","x":")" + number_text(key, OSSL_PKEY_PARAM_EC_PUB_X) + R"(","y":")" +
         number_text(key, OSSL_PKEY_PARAM_EC_PUB_Y) + "\"}";
}

JwkSet keys(const std::string& list) {
  return std::move(JwkSet::parse(R"({"keys":[)" + list + "]}")).value();
}

std::string sign(EVP_PKEY* key, const std::string& header, const std::string& claims, bool pss = false) {
  std::string text = base64url(header) + "." + base64url(claims);
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  EVP_PKEY_CTX* options = nullptr;
  EVP_DigestSignInit(context, &options, EVP_sha256(), nullptr, key);
  if (pss) {
    EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING);
    EVP_PKEY_CTX_set_rsa_pss_saltlen(options, RSA_PSS_SALTLEN_DIGEST);
  }
  size_t length = 0;
  EVP_DigestSign(context, nullptr, &length, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  std::string signature(length, '\0');
  EVP_DigestSign(context, reinterpret_cast<unsigned char*>(signature.data()), &length,
                 reinterpret_cast<const unsigned char*>(text.data()), text.size());
  signature.resize(length);
  EVP_MD_CTX_free(context);
  if (EVP_PKEY_get_base_id(key) == EVP_PKEY_EC) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(signature.data());
    ECDSA_SIG* parts = d2i_ECDSA_SIG(nullptr, &bytes, static_cast<long>(signature.size()));
    signature.assign(64, '\0');
    BN_bn2binpad(ECDSA_SIG_get0_r(parts), reinterpret_cast<unsigned char*>(signature.data()), 32);
    BN_bn2binpad(ECDSA_SIG_get0_s(parts), reinterpret_cast<unsigned char*>(signature.data()) + 32, 32);
    ECDSA_SIG_free(parts);
  }
  return text + "." + base64url(signature);
}

// Made once, and only where a test asks for it: a key takes a while, and each suite is a process.
EVP_PKEY* rsa_key() {
  static const Key key(EVP_RSA_gen(2048));
  return key.get();
}

EVP_PKEY* other_key() {
  static const Key key(EVP_RSA_gen(2048));
  return key.get();
}

EVP_PKEY* ec_key() {
  static const Key key(EVP_EC_gen("P-256"));
  return key.get();
}

TEST(Jwt, OfEachAlgorithmIsTaken) {
  const JwkSet set = keys(rsa_jwk(rsa_key(), R"("kid":"r",)") + "," + ec_jwk(ec_key()));
  EXPECT_EQ(*set.verify(sign(rsa_key(), R"({"alg":"RS256","kid":"r"})", kClaims)), kClaims);
  EXPECT_EQ(*set.verify(sign(rsa_key(), R"({"alg":"PS256","kid":"r"})", kClaims, true)), kClaims);
  EXPECT_EQ(*set.verify(sign(ec_key(), R"({"alg":"ES256","kid":"e"})", kClaims)), kClaims);
  EXPECT_TRUE(set.verify(sign(rsa_key(), R"({"alg":"RS256"})", kClaims)).ok()) << "without a name every key is tried";
}

TEST(Jwt, OfAnotherKeyOrWithOtherClaimsIsRefused) {
  const JwkSet set = keys(rsa_jwk(rsa_key(), R"("kid":"r",)"));
  EXPECT_FALSE(set.verify(sign(other_key(), R"({"alg":"RS256","kid":"r"})", kClaims)).ok());
  std::string token = sign(rsa_key(), R"({"alg":"RS256","kid":"r"})", kClaims);
  const size_t claims = token.find('.') + 1;
  token.replace(claims, token.rfind('.') - claims, base64url(with("\"7\"", "\"0\"")));
  EXPECT_FALSE(set.verify(token).ok());
}

TEST(Jwt, OfAKeyThatIsNotKnownSaysSo) {
  const JwkSet set = keys(rsa_jwk(rsa_key(), R"("kid":"r",)"));
  EXPECT_EQ(set.verify(sign(rsa_key(), R"({"alg":"RS256","kid":"new"})", kClaims)).code(), ErrorCode::kNotFound);
}

TEST(Jwt, WithoutASignatureOrByASharedSecretIsRefusedWhateverItSays) {
  const JwkSet set = keys(rsa_jwk(rsa_key(), R"("kid":"r",)"));
  EXPECT_FALSE(set.verify(base64url(R"({"alg":"none"})") + "." + base64url(kClaims) + ".").ok());
  // The oldest trick: the public key, which everybody has, as the secret of an HMAC.
  const std::string text = base64url(R"({"alg":"HS256","kid":"r"})") + "." + base64url(kClaims);
  const std::string secret = number_text(rsa_key(), OSSL_PKEY_PARAM_RSA_N);
  unsigned char mac[32];
  unsigned length = sizeof mac;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac, &length);
  EXPECT_FALSE(set.verify(text + "." + base64url({reinterpret_cast<char*>(mac), length})).ok());
}

TEST(Jwt, AKeyServesItsOwnAlgorithmAlone) {
  const JwkSet set = keys(rsa_jwk(rsa_key(), R"("kid":"r","alg":"PS256",)"));
  EXPECT_FALSE(set.verify(sign(rsa_key(), R"({"alg":"RS256","kid":"r"})", kClaims)).ok());
  EXPECT_FALSE(JwkSet::parse(R"({"keys":[)" + rsa_jwk(rsa_key(), R"("use":"enc",)") + "]}").ok());
}

TEST(Jwt, OfAnyOtherFormGetsOneLine) {
  const JwkSet set = keys(rsa_jwk(rsa_key(), ""));
  const std::string good = sign(rsa_key(), R"({"alg":"RS256"})", kClaims);
  for (const std::string& wrong :
       {std::string(), std::string("."), std::string(".."), good + ".x", good.substr(0, good.rfind('.')), "!" + good,
        std::string(20'000, 'a'), sign(rsa_key(), R"({"alg":"RS256","crit":["x"]})", kClaims)}) {
    const Result<std::string> claims = set.verify(wrong);
    ASSERT_FALSE(claims.ok());
    EXPECT_EQ(claims.error().find('\n'), std::string::npos);
  }
}

TEST(Jwk, OfASmallRsaKeyIsNotUsed) {
  const Key small(EVP_RSA_gen(1024));
  EXPECT_FALSE(JwkSet::parse(R"({"keys":[)" + rsa_jwk(small.get(), "") + "]}").ok());
}

#endif

constexpr const char* kConfig = R"({"issuer":"https://login.example.com","client_id":"lockstep",)"
                                R"("redirect_url":"https://lockstep.example.com/api/session/oidc/callback",)"
                                R"("rules":[{"value":"ml","role":"read","tenant":"acme"}]})";

TEST(OidcConfig, IsReadWithItsRules) {
  const Result<OidcConfig> config = parse_oidc_config(kConfig);
  ASSERT_TRUE(config.ok()) << config.error();
  EXPECT_EQ(config->rules.at(0).role, Role::kRead);
  EXPECT_EQ(config->rules.at(0).tenant, "acme");
}

TEST(OidcConfig, IsRefusedWithTheLineThatHelps) {
  const auto why = [](std::string_view from, std::string_view to) {
    std::string text = kConfig;
    text.replace(text.find(from), from.size(), to);
    const Result<OidcConfig> config = parse_oidc_config(text);
    return config.ok() ? "taken" : config.error();
  };
  EXPECT_EQ(why("https://login", "http://login"), "issuer: must be https");
  EXPECT_EQ(why("\"read\"", "\"root\""), "role \"root\" is not one of ingest, read, operate, admin");
  EXPECT_EQ(why("\"read\"", "\"ingest\""), "role ingest is for agents' tokens, not for people");
  EXPECT_EQ(why("client_id", "client"), "\"client\" is not known here");
  EXPECT_EQ(why("/api/session/oidc/callback", "/"), "redirect_url must end with /api/session/oidc/callback");
}

TEST(OidcConfig, WithoutTlsAnIssuerIsOnThisMachineWhateverItsNameBeginsWith) {
  const auto is_taken = [](std::string_view issuer) {
    std::string text = kConfig;
    return parse_oidc_config(text.replace(text.find("https://login.example.com"), 25, issuer)).ok();
  };
  for (const char* here : {"http://127.0.0.1:8080", "http://127.9.9.9", "http://localhost:8080", "http://[::1]:8080"})
    EXPECT_TRUE(is_taken(here)) << here;
  for (const char* elsewhere : {"http://127.evil.example", "http://127.0.0.1.evil.example", "http://localhost.evil"})
    EXPECT_FALSE(is_taken(elsewhere)) << elsewhere;
}

}  // namespace
}  // namespace lockstep
