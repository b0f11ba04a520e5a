//! PEM files: reading them, what is wrong with them, and whether they have changed.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::certificate::CertificateFacts;
use super::provider;
use crate::config::tree::Spanned;
use crate::config::written::KeyPair;
use crate::config::{Diagnostic, Diagnostics};
use crate::limits::{CERTIFICATES_PER_FILE_MAX, TLS_FILE_BYTES_MAX};

/// A file that was read, as it stood before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Its path.
    pub path: PathBuf,
    /// How it stood; none where it was not to be had.
    pub stamp: Option<Stamp>,
}

/// By what a file that was changed or exchanged is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    modified: (i64, i64),
    size: u64,
    inode: (u64, u64),
}

impl Stamp {
    /// How the file at `path` stands; links are followed.
    pub fn of(path: &Path) -> Option<Stamp> {
        let found = std::fs::metadata(path).ok()?;
        Some(Stamp {
            modified: (found.mtime(), found.mtime_nsec()),
            size: found.len(),
            inode: (found.dev(), found.ino()),
        })
    }
}

/// The files of one configuration: those that were read, and what is wrong with them.
#[derive(Debug, Default)]
pub struct Files {
    /// Each once.
    pub watched: Vec<Watched>,
    /// What refuses the configuration.
    pub errors: Diagnostics,
    /// What does not.
    pub warnings: Diagnostics,
}

/// A chain with its key, checked.
pub(super) struct Chain {
    pub(super) key: Arc<CertifiedKey>,
    /// What the first of it says.
    pub(super) facts: CertificateFacts,
}

type Named = Spanned<PathBuf>;

impl Files {
    /// The chain and the key of a pair; what is wrong has been said where there is none.
    pub(super) fn chain(&mut self, pair: &KeyPair) -> Option<Chain> {
        let key = self.private_key(&pair.key);
        let (chain, facts) = self.certificates(&pair.cert)?;
        for (at, (one, next)) in facts.iter().zip(facts.iter().skip(1)).enumerate() {
            if one.issued.by != next.issued.to {
                let (at, next) = (at + 1, at + 2);
                let message = format!(
                    "the chain in `{}` is broken: certificate {next} did not issue certificate {at}",
                    pair.cert.value.display()
                );
                let remedy = "put the server's own certificate first, and behind each the one that \
                              issued it";
                self.fail(&pair.cert, message, "no chain", remedy);
                return None;
            }
        }
        for (at, facts) in facts.iter().enumerate() {
            self.check_dates(&pair.cert, at + 1, facts);
        }
        let certified = CertifiedKey::from_der(chain, key?, provider());
        let certified = match certified {
            Ok(certified) => Arc::new(certified),
            Err(error) => {
                self.unusable(pair, &error);
                return None;
            }
        };
        Some(Chain { key: certified, facts: facts.into_iter().next()? })
    }

    /// The certificates of authorities; none where that has been said.
    pub(super) fn roots(&mut self, file: &Named) -> Option<(RootCertStore, Vec<u8>)> {
        let (certificates, facts) = self.certificates(file)?;
        let mut store = RootCertStore::empty();
        for (at, (certificate, facts)) in certificates.iter().zip(&facts).enumerate() {
            self.check_dates(file, at + 1, facts);
            if let Err(error) = store.add(certificate.clone()) {
                let path = file.value.display();
                let message = format!("certificate {} of `{path}` is unusable: {error}", at + 1);
                self.fail(file, message, "not an authority's", "leave it out");
                return None;
            }
        }
        let all = certificates.iter().flat_map(|der| der.to_vec()).collect();
        Some((store, all))
    }

    /// Lists of revoked certificates.
    pub(super) fn revocations(
        &mut self,
        file: &Named,
    ) -> Option<Vec<CertificateRevocationListDer<'static>>> {
        let text = self.read(file)?;
        let lists: Result<Vec<_>, _> =
            CertificateRevocationListDer::pem_slice_iter(&text).collect();
        let path = file.value.display();
        match lists {
            Ok(lists) if !lists.is_empty() => Some(lists),
            Ok(_) => {
                let message = format!("there is no revocation list in `{path}`");
                self.fail(file, message, "holds none", "name a PEM file with `X509 CRL` in it");
                None
            }
            Err(error) => self.malformed(file, &text, &error),
        }
    }

    fn certificates(
        &mut self,
        file: &Named,
    ) -> Option<(Vec<CertificateDer<'static>>, Vec<CertificateFacts>)> {
        let text = self.read(file)?;
        let path = file.value.display();
        let certificates: Result<Vec<_>, _> =
            CertificateDer::pem_slice_iter(&text).take(CERTIFICATES_PER_FILE_MAX + 1).collect();
        let certificates = match certificates {
            Ok(certificates) if !certificates.is_empty() => certificates,
            Err(error) => return self.malformed(file, &text, &error),
            Ok(_) if !is_pem(&text) => {
                return self.malformed(file, &text, &pem::Error::NoItemsFound);
            }
            Ok(_) => {
                let message = format!("there is no certificate in `{path}`");
                self.fail(file, message, "holds none", "name a PEM file with `CERTIFICATE` in it");
                return None;
            }
        };
        if certificates.len() > CERTIFICATES_PER_FILE_MAX {
            let most = CERTIFICATES_PER_FILE_MAX;
            let message = format!("`{path}` holds more than {most} certificates");
            self.fail(file, message, "too many", "leave out those that nobody needs");
            return None;
        }
        let mut facts = Vec::with_capacity(certificates.len());
        for (at, certificate) in certificates.iter().enumerate() {
            let Some(read) = CertificateFacts::parse(certificate) else {
                let message = format!("certificate {} of `{path}` is malformed", at + 1);
                self.fail(file, message, "not X.509", "have it issued again");
                return None;
            };
            facts.push(read);
        }
        Some((certificates, facts))
    }

    fn private_key(&mut self, file: &Named) -> Option<PrivateKeyDer<'static>> {
        let text = self.read(file)?;
        let path = file.value.display();
        let holds = |words: &[u8]| memchr::memmem::find(&text, words).is_some();
        if holds(b"BEGIN ENCRYPTED PRIVATE KEY") || holds(b"Proc-Type: 4,ENCRYPTED") {
            let message = format!("the key in `{path}` is encrypted");
            let remedy =
                "decrypt it with `openssl pkey`, and let only ringway's user read the file";
            self.fail(file, message, "wants a pass phrase", remedy);
            return None;
        }
        match PrivateKeyDer::from_pem_slice(&text) {
            Ok(key) => Some(key),
            Err(pem::Error::NoItemsFound) if is_pem(&text) => {
                let message = format!("there is no private key in `{path}`");
                self.fail(file, message, "holds none", "name a PEM file with `PRIVATE KEY` in it");
                None
            }
            Err(error) => self.malformed(file, &text, &error),
        }
    }

    /// Notes how the file stands before it is read, so that no change is missed.
    fn read(&mut self, file: &Named) -> Option<Vec<u8>> {
        let path = &file.value;
        if !self.watched.iter().any(|watched| watched.path == *path) {
            self.watched.push(Watched { path: path.clone(), stamp: Stamp::of(path) });
        }
        let error = match read(path) {
            Ok(text) => return Some(text),
            Err(error) => error,
        };
        let message = format!("file `{}` cannot be read: {error}", path.display());
        let (label, remedy) = match error.kind() {
            io::ErrorKind::NotFound => {
                ("not found", "correct the path: it is relative to the file it stands in")
            }
            io::ErrorKind::PermissionDenied => {
                ("not readable", "let the user that ringway runs as read it")
            }
            _ => ("not readable", "name a PEM file"),
        };
        self.fail(file, message, label, remedy);
        None
    }

    fn check_dates(&mut self, file: &Named, number: usize, facts: &CertificateFacts) {
        let now = unix_time_s();
        let path = file.value.display();
        let (what, label) = match () {
            () if facts.not_after < now => ("has expired", "expired"),
            () if facts.not_before > now => ("is not valid yet", "not valid yet"),
            () => return,
        };
        let message = format!("certificate {number} of `{path}` {what}");
        let warning = Diagnostic::warning(file.span(), message);
        let remedy = "have it renewed: whoever verifies it will refuse it";
        self.warnings.push(warning.label(label).remedy(remedy));
    }

    fn unusable(&mut self, pair: &KeyPair, error: &rustls::Error) {
        let (cert, key) = (pair.cert.value.display(), pair.key.value.display());
        let found = match error {
            rustls::Error::InconsistentKeys(_) => Diagnostic::error(
                pair.key.span(),
                format!("the key in `{key}` does not match the certificate in `{cert}`"),
            )
            .label("the key")
            .other(pair.cert.span(), "the certificate")
            .remedy("name the key that the certificate was issued for"),
            error => Diagnostic::error(
                pair.key.span(),
                format!("the key in `{key}` cannot be used: {error}"),
            )
            .label("not usable")
            .remedy("use a key for ECDSA (P-256, P-384), Ed25519 or RSA (2048 bits or more)"),
        };
        self.errors.push(found);
    }

    fn malformed<T>(&mut self, file: &Named, text: &[u8], error: &pem::Error) -> Option<T> {
        let path = file.value.display();
        let message = match error {
            pem::Error::NoItemsFound => format!("`{path}` is not PEM"),
            error => format!("`{path}` is not PEM: {error:?}"),
        };
        let remedy = match text {
            // A sequence of more than 127 bytes.
            [0x30, 0x81..=0x84, ..] => {
                "it looks like DER: convert it with `openssl x509 -inform der`"
            }
            _ => "name a PEM file: a text with `-----BEGIN` in it",
        };
        self.fail(file, message, "not PEM", remedy);
        None
    }

    pub(super) fn fail(&mut self, file: &Named, message: String, label: &str, remedy: &str) {
        self.errors.push(Diagnostic::error(file.span(), message).label(label).remedy(remedy));
    }
}

fn is_pem(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"-----BEGIN ").is_some()
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Opening a FIFO would wait for whoever writes to it.
    let file: File = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(TLS_FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > TLS_FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is larger than {TLS_FILE_BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

/// Seconds since 1970.
pub fn unix_time_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
