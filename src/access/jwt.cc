#include "access/jwt.h"

#include <array>

#include "base/base64.h"
#include "base/json_reader.h"
#include "base/text.h"

#ifdef LOCKSTEP_OPENSSL
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>
#endif

namespace lockstep {
namespace {

constexpr size_t kTokenBytesMax = 16 * 1024;
constexpr size_t kKeysMax = 64;
constexpr JsonLimits kJsonLimits{.bytes_max = 256 * 1024, .values_max = 20'000, .depth_max = 16};

}  // namespace

#ifdef LOCKSTEP_OPENSSL

namespace {

struct Free {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  void operator()(BIGNUM* number) const { BN_free(number); }
  void operator()(OSSL_PARAM_BLD* builder) const { OSSL_PARAM_BLD_free(builder); }
  void operator()(OSSL_PARAM* parameters) const { OSSL_PARAM_free(parameters); }
  void operator()(ECDSA_SIG* signature) const { ECDSA_SIG_free(signature); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

Owned<BIGNUM> number_of(std::string_view bytes) {
  return Owned<BIGNUM>(
      BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<int>(bytes.size()), nullptr));
}

Owned<EVP_PKEY> key_from(const char* kind, OSSL_PARAM_BLD* builder) {
  const Owned<OSSL_PARAM> parameters(OSSL_PARAM_BLD_to_param(builder));
  const Owned<EVP_PKEY_CTX> context(EVP_PKEY_CTX_new_from_name(nullptr, kind, nullptr));
  EVP_PKEY* key = nullptr;
  if (parameters && context && EVP_PKEY_fromdata_init(context.get()) == 1)
    EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, parameters.get());
  ERR_clear_error();
  return Owned<EVP_PKEY>(key);
}

std::string bytes_of(JsonValue value) {
  const std::optional<std::string> text = value.string();
  return text ? decode_base64url(*text).value_or("") : "";
}

Owned<EVP_PKEY> rsa_key(JsonValue jwk) {
  const std::string modulus = bytes_of(jwk["n"]), exponent = bytes_of(jwk["e"]);
  if (modulus.size() < 256 || modulus.size() > 1024 || exponent.empty() || exponent.size() > 8) return nullptr;
  const Owned<BIGNUM> n = number_of(modulus), e = number_of(exponent);
  const Owned<OSSL_PARAM_BLD> builder(OSSL_PARAM_BLD_new());
  if (!n || !e || !builder || OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, n.get()) != 1 ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, e.get()) != 1)
    return nullptr;
  Owned<EVP_PKEY> key = key_from("RSA", builder.get());
  return key && EVP_PKEY_get_bits(key.get()) >= 2048 ? std::move(key) : nullptr;
}

Owned<EVP_PKEY> p256_key(JsonValue jwk) {
  const std::string x = bytes_of(jwk["x"]), y = bytes_of(jwk["y"]);
  if (jwk["crv"].string() != "P-256" || x.size() != 32 || y.size() != 32) return nullptr;
  const std::string point = "\x04" + x + y;
  const Owned<OSSL_PARAM_BLD> builder(OSSL_PARAM_BLD_new());
  if (!builder || OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) != 1 ||
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(), point.size()) != 1)
    return nullptr;
  return key_from("EC", builder.get());
}

// The two numbers of an ES256 signature, side by side in a JWS, as OpenSSL wants them.
std::string der_signature(std::string_view raw) {
  if (raw.size() != 64) return {};
  const Owned<ECDSA_SIG> signature(ECDSA_SIG_new());
  Owned<BIGNUM> r = number_of(raw.substr(0, 32)), s = number_of(raw.substr(32));
  if (!signature || !r || !s || ECDSA_SIG_set0(signature.get(), r.get(), s.get()) != 1) return {};
  (void)r.release();
  (void)s.release();
  unsigned char* bytes = nullptr;
  const int length = i2d_ECDSA_SIG(signature.get(), &bytes);
  std::string der = length > 0 ? std::string(reinterpret_cast<char*>(bytes), static_cast<size_t>(length)) : "";
  OPENSSL_free(bytes);
  return der;
}

bool is_signed(EVP_PKEY* key, std::string_view algorithm, std::string_view text, std::string signature) {
  if (algorithm == "ES256") signature = der_signature(signature);
  const Owned<EVP_MD_CTX> context(EVP_MD_CTX_new());
  EVP_PKEY_CTX* options = nullptr;  // the context's
  bool good = context && EVP_DigestVerifyInit(context.get(), &options, EVP_sha256(), nullptr, key) == 1;
  if (good && algorithm == "PS256")
    good = EVP_PKEY_CTX_set_rsa_padding(options, RSA_PKCS1_PSS_PADDING) == 1 &&
           EVP_PKEY_CTX_set_rsa_pss_saltlen(options, RSA_PSS_SALTLEN_DIGEST) == 1;
  good =
      good && EVP_DigestVerify(context.get(), reinterpret_cast<const unsigned char*>(signature.data()),
                               signature.size(), reinterpret_cast<const unsigned char*>(text.data()), text.size()) == 1;
  ERR_clear_error();
  return good;
}

}  // namespace

struct JwkSet::Key {
  std::string name;       // kid
  std::string algorithm;  // empty: what its kind can do
  bool rsa = false;
  Owned<EVP_PKEY> key;

  bool serves(std::string_view wanted) const {
    if (!algorithm.empty() && algorithm != wanted) return false;
    return rsa ? wanted == "RS256" || wanted == "PS256" : wanted == "ES256";
  }
};

Result<JwkSet> JwkSet::parse(std::string_view json) {
  const JsonDocument document = LOCKSTEP_TRY(JsonDocument::parse(json, kJsonLimits));
  JwkSet set;
  for (const JsonValue jwk : document.root()["keys"]) {
    if (set.keys_.size() == kKeysMax) break;
    if (const std::optional<std::string> use = jwk["use"].string(); use && *use != "sig") continue;
    const std::string kind = jwk["kty"].string().value_or("");
    Owned<EVP_PKEY> key = kind == "RSA" ? rsa_key(jwk) : kind == "EC" ? p256_key(jwk) : nullptr;
    if (!key) continue;
    set.keys_.push_back(
        {jwk["kid"].string().value_or(""), jwk["alg"].string().value_or(""), kind == "RSA", std::move(key)});
  }
  if (set.keys_.empty()) return Error{"the issuer's key set has no key for RS256, PS256 or ES256"};
  return set;
}

Result<std::string> JwkSet::verify(std::string_view token) const {
  if (token.size() > kTokenBytesMax) return Error{"the ID token is too large"};
  const size_t first = token.find('.'), last = token.rfind('.');
  if (first == std::string_view::npos || first == last || token.find('.', first + 1) != last)
    return Error{"the ID token is not of the form header.claims.signature"};
  const std::optional<std::string> header = decode_base64url(token.substr(0, first));
  const std::optional<std::string> claims = decode_base64url(token.substr(first + 1, last - first - 1));
  const std::optional<std::string> signature = decode_base64url(token.substr(last + 1));
  if (!header || !claims || !signature) return Error{"the ID token is not base64url"};
  const Result<JsonDocument> parsed = JsonDocument::parse(*header, kJsonLimits);
  if (!parsed.ok()) return prefixed(parsed.failure(), "the ID token's header: ");
  const std::string algorithm = parsed->root()["alg"].string().value_or("");
  if (algorithm != "RS256" && algorithm != "PS256" && algorithm != "ES256")
    return Error{"the ID token is signed by an algorithm that is not taken (RS256, PS256 and ES256 are)"};
  if (parsed->root()["crit"].present()) return Error{"the ID token's header asks for an extension that is not known"};
  const std::optional<std::string> name = parsed->root()["kid"].string();
  bool tried = false;
  for (const Key& key : keys_) {
    if ((name && key.name != *name) || !key.serves(algorithm)) continue;
    tried = true;
    if (is_signed(key.key.get(), algorithm, token.substr(0, last), *signature)) return *claims;
  }
  if (!tried) return Error{"the issuer has no such key as the ID token was signed by", ErrorCode::kNotFound};
  return Error{"the signature of the ID token is wrong"};
}

#else

struct JwkSet::Key {};

Result<JwkSet> JwkSet::parse(std::string_view) {
  return Error{"signing in through OIDC needs a build with OpenSSL"};
}

Result<std::string> JwkSet::verify(std::string_view) const {
  return Error{"signing in through OIDC needs a build with OpenSSL"};
}

#endif

JwkSet::JwkSet() = default;
JwkSet::JwkSet(JwkSet&&) noexcept = default;
JwkSet& JwkSet::operator=(JwkSet&&) noexcept = default;
JwkSet::~JwkSet() = default;

Result<void> check_id_token(std::string_view claims, const IdTokenExpected& expected) {
  const JsonDocument document = LOCKSTEP_TRY(JsonDocument::parse(claims, kJsonLimits));
  const JsonValue root = document.root();
  if (root["iss"].string() != expected.issuer) return Error{"the ID token is of another issuer"};
  bool for_us = root["aud"].string() == expected.client_id;
  for (const JsonValue audience : root["aud"])
    if (audience.string() == expected.client_id) for_us = true;
  if (!for_us) return Error{"the ID token is for another client"};
  if (const JsonValue party = root["azp"]; party.present() && party.string() != expected.client_id)
    return Error{"the ID token was asked for by another client"};
  const auto time_of = [&](const char* name) -> std::optional<double> { return root[name].number(); };
  const double now = static_cast<double>(expected.now_unix_s), leeway = static_cast<double>(kClockLeewayS);
  const std::optional<double> expires = time_of("exp"), issued = time_of("iat"), begins = time_of("nbf");
  if (!expires || !issued) return Error{"the ID token says not when it was made or ends"};
  if (*expires + leeway <= now) return Error{"the ID token has expired (are the clocks right?)"};
  if (*issued - leeway > now || (begins && *begins - leeway > now))
    return Error{"the ID token is from the future (are the clocks right?)"};
  if (root["nonce"].string() != expected.nonce) return Error{"the ID token answers another request"};
  if (root["sub"].string().value_or("").empty()) return Error{"the ID token names nobody"};
  return {};
}

}  // namespace lockstep
