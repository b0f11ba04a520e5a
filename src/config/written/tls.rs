//! `tls` of listeners and upstreams, as written.

use std::path::PathBuf;

use crate::config::decode::{Decode, Decoder, Fields};
use crate::config::diagnostic::{Diagnostic, Span};
use crate::config::read::{boolean, choice, list, spanned, string};
use crate::config::tree::{Node, Spanned};
use crate::limits::{TLS_CERTS_MAX, TLS_CIPHERS_MAX};

/// `listener.NAME.tls`
#[derive(Clone, Debug)]
pub struct ListenerTls {
    /// Where it stands.
    pub span: Span,
    /// `certs`, at least one; the first is the one for clients that ask for no known name.
    pub certs: Vec<KeyPair>,
    /// `alpn`, the most wanted first.
    pub alpn: Vec<Alpn>,
    /// `min_version`
    pub min_version: TlsVersion,
    /// `ciphers`; empty is all that are good.
    pub ciphers: Vec<Spanned<Box<str>>>,
    /// `client_ca`
    pub client_ca: Option<Spanned<PathBuf>>,
    /// `client_crl`
    pub client_crl: Option<Spanned<PathBuf>>,
    /// `client_auth`, where it was given.
    pub client_auth: Option<Spanned<ClientAuth>>,
}

/// `upstream.NAME.tls`
#[derive(Clone, Debug)]
pub struct UpstreamTls {
    /// Where it stands.
    pub span: Span,
    /// `verify`, and where it stands.
    pub verify: Option<Spanned<bool>>,
    /// `ca`; none is the authorities that the system trusts.
    pub ca: Option<Spanned<PathBuf>>,
    /// `sni`; none is the host of the endpoint.
    pub sni: Option<Spanned<Box<str>>>,
    /// `cert` and `key`
    pub pair: Option<KeyPair>,
    /// `min_version`
    pub min_version: TlsVersion,
}

/// A certificate chain and its key.
#[derive(Clone, Debug)]
pub struct KeyPair {
    /// `cert`: PEM, the server's own certificate first.
    pub cert: Spanned<PathBuf>,
    /// `key`: PEM, not encrypted.
    pub key: Spanned<PathBuf>,
}

/// One of `alpn`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpn {
    /// "h2"
    Http2,
    /// "http/1.1"
    Http11,
}

impl Alpn {
    /// Its identification sequence (RFC 7301 section 6).
    pub fn name(self) -> &'static str {
        match self {
            Alpn::Http2 => "h2",
            Alpn::Http11 => "http/1.1",
        }
    }
}

/// `min_version`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// "1.2"
    #[default]
    Tls12,
    /// "1.3"
    Tls13,
}

/// `client_auth`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// "off": no certificate is asked for.
    #[default]
    Off,
    /// "optional": a client may come without; one that it sends must be good.
    Optional,
    /// "required"
    Required,
}

impl Decode for ListenerTls {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<ListenerTls> {
        let mut f = Fields::of("listener.NAME.tls", node, decoder)?;
        let example = r#"[{ cert = "server.pem", key = "server.key" }]"#;
        let certs = f.required("certs", example, list(1..=TLS_CERTS_MAX, KeyPair::decode));
        let alpn =
            f.optional("alpn", list(0..=ALPNS.len(), |node, decoder| choice(ALPNS)(node, decoder)));
        let min_version = f.optional("min_version", choice(VERSIONS)).unwrap_or_default();
        let cipher = |node: &Node, decoder: &mut Decoder| {
            Some(Spanned::new(string(node, decoder)?.into(), &node.span))
        };
        let ciphers = f.optional("ciphers", list(1..=TLS_CIPHERS_MAX, cipher));
        let client_ca = f.optional("client_ca", file);
        let client_crl = f.optional("client_crl", file);
        let client_auth = f.optional("client_auth", spanned(choice(CLIENT_AUTHS)));
        f.finish();
        Some(ListenerTls {
            span: node.span.clone(),
            certs: certs?,
            alpn: alpn.unwrap_or_else(|| vec![Alpn::Http2, Alpn::Http11]),
            min_version,
            ciphers: ciphers.unwrap_or_default(),
            client_ca,
            client_crl,
            client_auth,
        })
    }
}

impl Decode for UpstreamTls {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<UpstreamTls> {
        let mut f = Fields::of("upstream.NAME.tls", node, decoder)?;
        let verify = f.optional("verify", spanned(boolean));
        let ca = f.optional("ca", file);
        let sni = f.optional("sni", |node, decoder| {
            Some(Spanned::new(string(node, decoder)?.into(), &node.span))
        });
        let cert = f.optional("cert", file);
        let key = f.optional("key", file);
        if cert.is_some() != key.is_some() {
            f.complain(|span| {
                Diagnostic::error(span, "`cert` and `key` belong together")
                    .label("has one of the two")
                    .remedy("give both, or none for an upstream that asks for no certificate")
            });
        }
        let min_version = f.optional("min_version", choice(VERSIONS)).unwrap_or_default();
        f.finish();
        let pair = cert.zip(key).map(|(cert, key)| KeyPair { cert, key });
        Some(UpstreamTls { span: node.span.clone(), verify, ca, sni, pair, min_version })
    }
}

impl KeyPair {
    fn decode(node: &Node, decoder: &mut Decoder) -> Option<KeyPair> {
        let mut f = Fields::of("listener.NAME.tls.certs", node, decoder)?;
        let cert = f.required("cert", "\"server.pem\"", file);
        let key = f.required("key", "\"server.key\"", file);
        f.finish();
        Some(KeyPair { cert: cert?, key: key? })
    }
}

/// The path of a file, as seen from the file that it is written in.
fn file(node: &Node, decoder: &mut Decoder) -> Option<Spanned<PathBuf>> {
    let text = string(node, decoder)?;
    if text.is_empty() || text.contains('\0') {
        let message = format!("`{}` is not the path of a file", text.escape_debug());
        let error = Diagnostic::error(node.span.clone(), message);
        decoder.found.push(error.remedy("write the path of a PEM file"));
        return None;
    }
    // What became of an unset variable has been said.
    if !decoder.found.is_known(&node.span) {
        return None;
    }
    Some(Spanned::new(decoder.resolve(&node.span, text), &node.span))
}

const ALPNS: &[(&str, Alpn)] = &[("h2", Alpn::Http2), ("http/1.1", Alpn::Http11)];
const VERSIONS: &[(&str, TlsVersion)] = &[("1.2", TlsVersion::Tls12), ("1.3", TlsVersion::Tls13)];
const CLIENT_AUTHS: &[(&str, ClientAuth)] = &[
    ("off", ClientAuth::Off),
    ("optional", ClientAuth::Optional),
    ("required", ClientAuth::Required),
];
