//! The certificate authority trusted by server and agents, to the exclusion of all others but its
//! successor. The authority certifies the server for the agents' listener, and each agent for a
//! site. The key is stored sealed in the database and is the same for all replicas.

use std::str::FromStr as _;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use jiff::{SignedDuration, Timestamp};
use muster_core::ids::{AgentId, ObjectId};
use muster_core::values::Digest;
use muster_core::wire::enrol::SERVER_NAME;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ED25519,
    PublicKeyData as _, SanType, SerialNumber, date_time_ymd,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use uuid::Uuid;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// Default lifetime of an agent's certificate.
pub const LASTS: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Time by which a certificate's start lies before the signing. Replicas' clocks follow the
/// database's within seconds.
pub const EARLIER: SignedDuration = SignedDuration::from_mins(1);

/// Longest certificate request accepted, in bytes. An honest request is shorter.
const LONGEST_REQUEST: usize = 4096;

/// The common name of the first authority. A successor has a number behind the name.
const NAME: &str = "Muster agents' authority";

/// An authority of one installation.
pub struct Authority {
    certificate: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    subject: Digest,
}

/// The agent and site named by a certificate, the certificate's key and validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Certified {
    pub agent: AgentId,
    pub site: ObjectId,
    /// The digest that identifies the key, as of [`Requested::digest`].
    pub key: Digest,
    /// The digest of the name of the certificate's authority, as of [`Authority::subject`].
    pub issuer: Digest,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// A new certificate.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub pem: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

/// The public key of a certificate request. The holder of the key has signed the request.
#[derive(Clone, Debug)]
pub struct Requested(rcgen::PublicKey);

impl Requested {
    /// Reads a PKCS#10 request of an Ed25519 key. Every other attribute of the request is ignored.
    ///
    /// # Errors
    ///
    /// When the text is not a request, is too long, is of another kind of key, or was not signed by
    /// the key.
    pub fn read(pem: &str) -> anyhow::Result<Self> {
        ensure!(
            pem.len() <= LONGEST_REQUEST,
            "longer than {LONGEST_REQUEST} bytes"
        );
        let request = CertificateSigningRequestParams::from_pem(pem)?;
        ensure!(
            request.public_key.algorithm() == &PKCS_ED25519,
            "not of an Ed25519 key"
        );
        Ok(Self(request.public_key))
    }

    /// Returns the digest that identifies the key.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.0.subject_public_key_info())
    }
}

impl Authority {
    /// Makes a new authority in the form to be sealed: key and certificate as PEM. The validity is
    /// as wide as the format allows, because a machine with a dead clock must still be able to
    /// enrol. Only agents' certificates end, by the server's time.
    ///
    /// # Errors
    ///
    /// When the system has no randomness.
    pub fn make() -> anyhow::Result<String> {
        Self::make_named(NAME)
    }

    /// Makes the successor of an authority. The name differs in each rotation, so a certificate
    /// names its authority.
    ///
    /// # Errors
    ///
    /// As of [`Authority::make`].
    pub fn make_next() -> anyhow::Result<String> {
        Self::make_named(&format!("{NAME} {:016x}", rand::random::<u64>()))
    }

    fn make_named(name: &str) -> anyhow::Result<String> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = params.self_signed(&key)?;
        Ok(key.serialize_pem() + &certificate.pem())
    }

    /// Opens an authority made by [`Authority::make`].
    ///
    /// # Errors
    ///
    /// When the text has another form.
    pub fn open(sealed: &str) -> anyhow::Result<Self> {
        let certificate = CertificateDer::from_pem_slice(sealed.as_bytes())
            .context("the authority's certificate")?;
        let key =
            PrivatePkcs8KeyDer::from_pem_slice(sealed.as_bytes()).context("the authority's key")?;
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ED25519)?;
        let issuer = Issuer::from_ca_cert_der(&certificate, key)?;
        let pem = sealed
            .find("-----BEGIN CERTIFICATE")
            .and_then(|at| sealed.get(at..))
            .unwrap_or_default()
            .to_owned();
        let subject = subject_of(&certificate)?;
        Ok(Self {
            certificate,
            pem,
            issuer,
            subject,
        })
    }

    /// Returns the authority's certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Returns the authority's certificate as PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the digest of the certificate. Enrolment tokens contain the digest, so an agent can
    /// authenticate the server at first contact.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.certificate)
    }

    /// Returns the id in events and reports: the first 16 hex digits of the digest.
    pub fn id(&self) -> String {
        self.digest().hex()[..16].to_owned()
    }

    /// Returns the digest of the authority's name. Certificates of the authority contain the name.
    pub fn subject(&self) -> Digest {
        self.subject
    }

    /// Certifies an agent's key for a site.
    ///
    /// # Errors
    ///
    /// When the time is outside the range of a certificate.
    pub fn certify(
        &self,
        key: &Requested,
        agent: AgentId,
        site: ObjectId,
        now: Timestamp,
        lasts: SignedDuration,
    ) -> anyhow::Result<Certificate> {
        // Certificates have a resolution of whole seconds.
        let not_before = Timestamp::from_second((now - EARLIER).as_second())?;
        let not_after = Timestamp::from_second((now + lasts).as_second())?;
        let mut params = named(&format!("agent {agent}"));
        let epoch = date_time_ymd(1970, 1, 1);
        params.not_before = epoch + Duration::from_secs(not_before.as_second().try_into()?);
        params.not_after = epoch + Duration::from_secs(not_after.as_second().try_into()?);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = vec![SanType::URI(
            format!("muster:{}/{}", site.0, agent.0).try_into()?,
        )];
        let certificate = params.signed_by(&key.0, &self.issuer)?;
        Ok(Certificate {
            pem: certificate.pem(),
            not_before,
            not_after,
        })
    }

    /// Generates a key for the agents' listener, valid for the life of the process. Returns the
    /// certificate chain and the key.
    ///
    /// # Errors
    ///
    /// When the system has no randomness.
    pub fn certify_server(
        &self,
    ) -> anyhow::Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut params = named("Muster server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = vec![SanType::DnsName(SERVER_NAME.try_into()?)];
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Ok((
            vec![certificate.der().clone(), self.certificate.clone()],
            key.into(),
        ))
    }
}

/// Reads the agent, site and validity from a certificate. The TLS handshake has already verified
/// the issuer.
///
/// # Errors
///
/// When the certificate is not an agent's.
pub fn read(certificate: &CertificateDer<'_>) -> anyhow::Result<Certified> {
    let (_, certificate) =
        X509Certificate::from_der(certificate).map_err(|error| anyhow!("{error}"))?;
    let names = certificate
        .subject_alternative_name()?
        .context("the certificate has no alternative name")?;
    let [GeneralName::URI(uri)] = names.value.general_names.as_slice() else {
        anyhow::bail!("the certificate does not name a single agent");
    };
    let ids = uri
        .strip_prefix("muster:")
        .and_then(|ids| ids.split_once('/'))
        .context("it names no agent")?;
    let validity = certificate.validity();
    Ok(Certified {
        site: ObjectId(Uuid::from_str(ids.0)?),
        agent: AgentId(Uuid::from_str(ids.1)?),
        key: Digest::of(certificate.public_key().raw),
        issuer: Digest::of(certificate.issuer().as_raw()),
        not_before: Timestamp::from_second(validity.not_before.timestamp())?,
        not_after: Timestamp::from_second(validity.not_after.timestamp())?,
    })
}

fn subject_of(certificate: &CertificateDer<'_>) -> anyhow::Result<Digest> {
    let (_, certificate) =
        X509Certificate::from_der(certificate).map_err(|error| anyhow!("{error}"))?;
    Ok(Digest::of(certificate.subject().as_raw()))
}

/// Returns parameters for a certificate without a purpose, valid for all times. The serial number
/// is random and cannot be guessed.
fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let mut serial = rand::random::<[u8; 16]>();
    // Clears the top bit, because a serial number must be positive.
    serial[0] &= 0x7f;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.not_before = date_time_ymd(1970, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_says_whose_it_is_and_until_when() {
        let authority = Authority::open(&Authority::make().unwrap()).unwrap();
        let lasts = SignedDuration::from_hours(2);
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let request = CertificateParams::default()
            .serialize_request(&key)
            .unwrap()
            .pem()
            .unwrap();
        let (agent, site) = (AgentId::new(), ObjectId::new());
        let now: Timestamp = "2026-01-05T08:00:00.123Z".parse().unwrap();
        let requested = Requested::read(&request).unwrap();
        let issued = authority
            .certify(&requested, agent, site, now, lasts)
            .unwrap();
        let said = read(&CertificateDer::from_pem_slice(issued.pem.as_bytes()).unwrap()).unwrap();
        let [from, to] =
            ["2026-01-05T07:59:00Z", "2026-01-05T10:00:00Z"].map(|at| at.parse().unwrap());
        assert_eq!(
            said,
            Certified {
                agent,
                site,
                key: requested.digest(),
                issuer: authority.subject(),
                not_before: from,
                not_after: to
            }
        );
        assert!(
            read(&authority.certify_server().unwrap().0[0]).is_err(),
            "the server is no agent"
        );
        assert!(read(authority.certificate()).is_err());
        assert!(!authority.pem().contains("PRIVATE"));
    }

    #[test]
    fn each_successor_has_a_name_of_its_own() {
        let open = |made: anyhow::Result<String>| Authority::open(&made.unwrap()).unwrap();
        let first = open(Authority::make()).subject();
        let [second, third] = [(); 2].map(|()| open(Authority::make_next()).subject());
        assert!(first != second && first != third && second != third);
        assert_eq!(open(Authority::make()).subject(), first);
    }

    #[test]
    fn a_request_that_is_none_or_is_signed_by_another_key_is_refused() {
        let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let other_kind = CertificateParams::default()
            .serialize_request(&key)
            .unwrap()
            .pem()
            .unwrap();
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let good = CertificateParams::default()
            .serialize_request(&key)
            .unwrap();
        let mut changed = good.der().to_vec();
        *changed.last_mut().unwrap() ^= 1;
        let changed = pem_of(&changed);
        assert!(Requested::read(&pem_of(good.der())).is_ok());
        for bad in [
            "",
            "-----BEGIN CERTIFICATE REQUEST-----",
            &other_kind,
            &changed,
            &"x".repeat(LONGEST_REQUEST + 1),
        ] {
            assert!(Requested::read(bad).is_err(), "{bad}");
        }
    }

    fn pem_of(der: &[u8]) -> String {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
    }
}
