//! TLS from the outside: an authority that issues certificates, a client, and an origin.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256,
    RevokedCertParams, RsaKeySize, SerialNumber, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConfig, ServerConnection,
    SupportedProtocolVersion,
};

use super::http2::{GOAWAY, frame};

/// Who issues certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: rcgen::Certificate,
}

/// A certificate with its key.
pub struct Leaf {
    /// PEM.
    pub cert: String,
    /// PEM.
    pub key: String,
    /// The certificate.
    pub der: CertificateDer<'static>,
    key_der: Vec<u8>,
    serial: u64,
}

/// What a leaf is to be.
pub struct Wanted<'a> {
    pub names: &'a [&'a str],
    pub common_name: &'a str,
    pub serial: u64,
    pub rsa: bool,
    /// The year in whose beginning it ends.
    pub until: i32,
}

impl Wanted<'_> {
    /// A plain one for these names.
    pub fn of<'a>(names: &'a [&'a str], serial: u64) -> Wanted<'a> {
        Wanted { names, common_name: "leaf", serial, rsa: false, until: 2100 }
    }
}

impl Authority {
    /// A new one.
    pub fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    /// Issues a certificate for servers and clients.
    pub fn issue(&self, wanted: &Wanted<'_>) -> Leaf {
        let names: Vec<String> = wanted.names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, wanted.common_name);
        params.serial_number = Some(SerialNumber::from(wanted.serial));
        params.not_after = date_time_ymd(wanted.until, 1, 1);
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = match wanted.rsa {
            true => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
            false => KeyPair::generate(),
        };
        let key = key.expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Leaf {
            cert: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().clone(),
            key_der: key.serialize_der(),
            serial: wanted.serial,
        }
    }

    /// Its own certificate in PEM.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    /// A list of revoked certificates in PEM.
    pub fn revoke(&self, leaves: &[&Leaf]) -> String {
        let revoked = |leaf: &&Leaf| RevokedCertParams {
            serial_number: SerialNumber::from(leaf.serial),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: leaves.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).and_then(|list| list.pem()).expect("a list")
    }

    /// What trusts it.
    pub fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).expect("an authority");
        roots
    }
}

impl Leaf {
    /// Puts it into two files of a folder, by renaming as certificate managers do; an element of
    /// `certs`.
    pub fn put(&self, folder: &Path, name: &str) -> String {
        let cert = put(folder, &format!("{name}.pem"), &self.cert);
        let key = put(folder, &format!("{name}.key"), &self.key);
        format!("{{ cert = \"{}\", key = \"{}\" }}", cert.display(), key.display())
    }

    fn chain(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (vec![self.der.clone()], PrivatePkcs8KeyDer::from(self.key_der.clone()).into())
    }
}

/// Puts a file into a folder in one step.
pub fn put(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (new, path) = (folder.join(format!("{name}.new")), folder.join(name));
    fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).expect("written");
    path
}

/// How a client speaks.
pub struct Speaks {
    pub versions: &'static [&'static SupportedProtocolVersion],
    pub alpn: &'static [&'static str],
    /// Only suites whose name contains this.
    pub suites: &'static str,
}

impl Default for Speaks {
    fn default() -> Speaks {
        Speaks { versions: rustls::ALL_VERSIONS, alpn: &["http/1.1"], suites: "" }
    }
}

/// A client's configuration, which trusts `authority` and shows `leaf`.
pub fn client(authority: &Authority, speaks: &Speaks, leaf: Option<&Leaf>) -> Arc<ClientConfig> {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| format!("{suite:?}").contains(speaks.suites));
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(speaks.versions)
        .expect("versions")
        .with_root_certificates(authority.roots());
    let mut config = match leaf.map(Leaf::chain) {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).expect("a pair"),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = speaks.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// A client's connection.
pub struct TlsClient {
    connection: ClientConnection,
    socket: TcpStream,
}

impl TlsClient {
    /// Sends frames of HTTP/2, and reads on until one of this kind comes; its payload.
    ///
    /// # Errors
    /// The connection ended before.
    ///
    /// # Panics
    /// A GOAWAY came that nobody waits for.
    pub fn http2_until(&mut self, send: &[u8], kind: u8) -> io::Result<Vec<u8>> {
        let mut io = self.io();
        io.write_all(send)?;
        loop {
            let mut head = [0; 9];
            io.read_exact(&mut head)?;
            let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
            io.read_exact(&mut payload)?;
            if head[3] == kind {
                return Ok(payload);
            }
            assert_ne!(head[3], GOAWAY, "nothing is wrong");
        }
    }

    /// Connects and shakes hands.
    ///
    /// # Errors
    /// Whatever went wrong.
    pub fn open(
        address: SocketAddr,
        config: &Arc<ClientConfig>,
        name: &str,
    ) -> io::Result<TlsClient> {
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        let connection = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        let socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut client = TlsClient { connection, socket };
        while client.connection.is_handshaking() {
            client.connection.complete_io(&mut client.socket)?;
        }
        Ok(client)
    }

    /// Asks for a path; the answer's head and body.
    ///
    /// # Errors
    /// No answer came.
    pub fn get(&mut self, path: &str) -> io::Result<String> {
        let mut stream = rustls::Stream::new(&mut self.connection, &mut self.socket);
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n").as_bytes())?;
        read_message(&mut stream)
    }

    /// What is spoken over it.
    pub fn io(&mut self) -> rustls::Stream<'_, ClientConnection, TcpStream> {
        rustls::Stream::new(&mut self.connection, &mut self.socket)
    }

    /// Reads to the end, which must be a clean one.
    ///
    /// # Errors
    /// It was cut, or did not end.
    pub fn end(&mut self) -> io::Result<Vec<u8>> {
        let mut rest = Vec::new();
        rustls::Stream::new(&mut self.connection, &mut self.socket).read_to_end(&mut rest)?;
        Ok(rest)
    }

    /// The certificate that was shown.
    pub fn shown(&self) -> Option<CertificateDer<'static>> {
        self.connection
            .peer_certificates()
            .and_then(<[_]>::first)
            .map(|der| der.clone().into_owned())
    }

    /// Whether a ticket was taken.
    pub fn resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// The address of this end.
    pub fn local(&self) -> SocketAddr {
        self.socket.local_addr().expect("a connected socket has one")
    }

    /// The connection.
    pub fn connection(&self) -> &ClientConnection {
        &self.connection
    }
}

/// A head and as much as its Content-Length says.
fn read_message(stream: &mut impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let lower = head.to_ascii_lowercase();
        let length = lower.split("content-length: ").nth(1).and_then(|it| it.lines().next());
        if body.len() >= length.and_then(|length| length.parse().ok()).unwrap_or(0) {
            return Ok(text);
        }
    }
}

/// An origin that speaks TLS and answers "ok".
#[derive(Clone)]
pub struct TlsOrigin {
    /// Where it listens.
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    resumed: Arc<Mutex<Vec<bool>>>,
    protocols: Arc<Mutex<Vec<String>>>,
    ends: Arc<Mutex<Vec<bool>>>,
    held: Arc<Mutex<Option<Held>>>,
    hangs: Arc<AtomicBool>,
}

/// The other half of a record, and where it goes.
type Held = (TcpStream, Vec<u8>);

impl TlsOrigin {
    /// Starts one that shows `leaf`, and asks for certificates of `clients`.
    pub fn start(leaf: &Leaf, clients: Option<&Authority>) -> TlsOrigin {
        TlsOrigin::start_with(leaf, clients, &[])
    }

    /// The same for one that knows these protocols; one that knows none takes what comes for HTTP/1.1.
    pub fn start_with(leaf: &Leaf, clients: Option<&Authority>, alpn: &[&str]) -> TlsOrigin {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(rustls::ALL_VERSIONS)
            .expect("versions");
        let builder = match clients {
            Some(authority) => {
                let roots = Arc::new(authority.roots());
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
            None => builder.with_no_client_auth(),
        };
        let (chain, key) = leaf.chain();
        let mut config = builder.with_single_cert(chain, key).expect("a pair");
        config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let origin = TlsOrigin {
            address,
            heads: Arc::default(),
            resumed: Arc::default(),
            protocols: Arc::default(),
            ends: Arc::default(),
            held: Arc::default(),
            hangs: Arc::default(),
        };
        let of = origin.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (config, of) = (config.clone(), of.clone());
                std::thread::spawn(move || {
                    let connection = ServerConnection::new(config).expect("a session");
                    drop(of.answer(connection, socket));
                });
            }
        });
        origin
    }

    /// What was spoken on its connections: the name that ALPN chose, or nothing.
    pub fn protocols(&self) -> Vec<String> {
        self.protocols.lock().expect("nobody panics").clone()
    }

    /// Which of its connections of HTTP/1.1 that ended by the other side did so by close_notify.
    pub fn ends(&self) -> Vec<bool> {
        self.ends.lock().expect("nobody panics").clone()
    }

    /// Sends the other half of the record of which `/half` has sent one behind its answer.
    pub fn release(&self) {
        let held = self.held.lock().expect("nobody panics").take();
        let (mut socket, rest) = held.expect("half a record was sent");
        socket.write_all(&rest).expect("sent");
    }

    /// From now on requests of HTTP/1.1 are read, and nothing is said.
    pub fn hang(&self) {
        self.hangs.store(true, Ordering::SeqCst);
    }

    /// The heads that came.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("nobody panics").clone()
    }

    /// Which connections were resumed.
    pub fn resumed(&self) -> Vec<bool> {
        self.resumed.lock().expect("nobody panics").clone()
    }

    fn answer(&self, mut connection: ServerConnection, mut socket: TcpStream) -> io::Result<()> {
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        let kind = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        self.resumed.lock().expect("nobody panics").push(kind);
        let spoken = connection.alpn_protocol().unwrap_or_default();
        let spoken = String::from_utf8_lossy(spoken).into_owned();
        self.protocols.lock().expect("nobody panics").push(spoken.clone());
        let mut stream = rustls::Stream::new(&mut connection, &mut socket);
        if spoken == "h2" {
            return answer_http2(&mut stream);
        }
        loop {
            let head = read_message(&mut stream).inspect_err(|error| {
                let clean = error.get_ref().is_none() && error.raw_os_error().is_none();
                self.ends.lock().expect("nobody panics").push(clean);
            })?;
            let half = head.starts_with("GET /half ");
            let close = head.starts_with("GET /close ");
            self.heads.lock().expect("nobody panics").push(head);
            if self.hangs.load(Ordering::SeqCst) {
                continue;
            }
            let more = if close { "Connection: close\r\n" } else { "" };
            let text = format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{more}\r\nok");
            stream.write_all(text.as_bytes())?;
            stream.flush()?;
            if close {
                stream.conn.send_close_notify();
                return stream.flush();
            }
            if half {
                stream.conn.refresh_traffic_keys().map_err(io::Error::other)?;
                let mut record = Vec::new();
                stream.conn.write_tls(&mut record)?;
                let rest = record.split_off(record.len() / 2);
                let held = (stream.sock.try_clone()?, rest);
                self.held.lock().expect("nobody panics").replace(held);
                stream.sock.write_all(&record)?;
            }
        }
    }
}

/// Answers each head of a request at once, whatever it asks for.
fn answer_http2(stream: &mut (impl Read + Write)) -> io::Result<()> {
    stream.read_exact(&mut [0; 24])?;
    stream.write_all(&frame(4, 0, 0, b""))?;
    loop {
        stream.flush()?;
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        stream.read_exact(&mut vec![0; length as usize])?;
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        match (head[3], head[4] & 1) {
            (1, _) => {
                stream.write_all(&frame(1, 4, id, b"\x88"))?;
                stream.write_all(&frame(0, 1, id, b"ok"))?;
            }
            (4, 0) => stream.write_all(&frame(4, 1, 0, b""))?,
            _ => {}
        }
    }
}
